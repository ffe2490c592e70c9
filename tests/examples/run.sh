# run.sh LANGUAGE SOURCE BUILD CC: build and run one example. Exits with 77 where the language is not installed; under CI=true
# that is a failure.
set -euo pipefail
language=$1 source=$2 build=$3 cc=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$source"
need() { command -v "$1" >/dev/null && return; echo "skipped: no $1"; [ "${CI:-}" = true ] && exit 1; exit 77; }
case $language in
    c)
        "$cc" -std=c11 -Wall -Werror examples/c/first.c -Iinclude -L"$build" -lkiln -lm -Wl,-rpath,"$build" -o "$work/first"
        "$work/first" ;;
    python)
        python=/usr/bin/python3
        "$python" -c 'import numpy' 2>/dev/null || { python=; need numpy-for-python3; }
        PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=python KILN_LIBRARY=$build/libkiln.so "$python" examples/python/first.py ;;
    rust)
        need rustc
        rustc -O examples/rust/first.rs -L "$build" -l kiln -C link-arg=-Wl,-rpath,"$build" -o "$work/first"
        "$work/first" ;;
    go)
        need go
        CGO_CFLAGS="-I$PWD/include" CGO_LDFLAGS="-L$build -lkiln -Wl,-rpath,$build" GOCACHE=$work/cache GO111MODULE=off \
            go run examples/go/first.go ;;
esac
