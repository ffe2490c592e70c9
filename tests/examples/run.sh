#!/usr/bin/env bash
# run.sh EXAMPLE SOURCE BUILD: run one example by the command that its first comment gives, in a folder where build/release is
# BUILD. Exits with 77 where its language or torch is not installed; under CI=true that is a failure.
set -euo pipefail
example=$1 source=$2 build=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PATH=/usr/bin:$PATH # the distribution's Python has the distribution's torch
missing() { echo "skipped: no $1"; [ "${CI:-}" = true ] && exit 1; exit 77; }

case $example in
    rust/*) command -v rustc >/dev/null || missing rustc ;;
    go/*) command -v go >/dev/null || missing go ;;
    python/first.py) python3 -c 'import numpy' 2>/dev/null || missing python3-numpy ;;
    python/*) python3 -c 'import torch' 2>/dev/null || missing python3-torch ;;
esac

command=$(sed -nE '1s#^(//|/\*|\#) ##p' "$source/examples/$example")
[ -n "$command" ] || { echo "the first comment of $example gives no command"; exit 1; }
mkdir "$work/build"
ln -s "$build" "$work/build/release"
for folder in examples include python; do ln -s "$source/$folder" "$work/$folder"; done
cd "$work"
# Python looks through links for the package's source tree, which may have another build/release.
export KILN_LIBRARY=$build/libkiln.so PYTHONDONTWRITEBYTECODE=1 GOCACHE=$work/cache
echo "$command"
eval "${command%% \[*}" # without optional arguments
