#!/usr/bin/env bash
# From a bare Debian 12 or Ubuntu 24.04 machine to all tests passing.
#   tools/test.sh         the quick tier: format, build without warnings, all quick tests, and again under ASan + UBSan
#   tools/test.sh --all   adds TSan, the release build, clang-tidy, long fuzzing, the full torture and mutation tests
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/setup.sh

all=0
case "${1:-}" in
    "") ;;
    --all) all=1 ;;
    *) echo "usage: tools/test.sh [--all]" >&2; exit 2 ;;
esac

need_packages "${BUILD_PACKAGES[@]}" "${TEST_PACKAGES[@]}"
need_nvjitlink || true
jobs=$(nproc)
started=$SECONDS

preset() { # preset NAME [ctest arguments]: configure, build, test
    local name=$1
    shift
    say "$name: build"
    cmake --preset "$name" >/dev/null
    cmake --build --preset "$name" -j "$jobs" | tail -1
    say "$name: test"
    ctest --preset "$name" -j "$jobs" "$@"
}

say "Format"
git ls-files '*.c' '*.h' | xargs clang-format --dry-run -Werror

preset dev -L quick
preset asan -L quick -LE slow_under_sanitizers
if [ $all -eq 1 ]; then
    export KN_LONG=1
    preset tsan -L quick -LE slow_under_sanitizers
    preset release
    say "clang-tidy"
    git ls-files '*.c' | xargs -P "$jobs" -n 8 clang-tidy --quiet -p build/dev
fi
if ! command -v nvidia-smi >/dev/null; then
    echo "No GPU here: the tests of label gpu were skipped."
fi
say "All tests passed in $((SECONDS - started)) s"
