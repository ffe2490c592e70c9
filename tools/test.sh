#!/usr/bin/env bash
# From a bare Debian 12 or Ubuntu 24.04 machine to all tests passing.
#   tools/test.sh         the quick tier: format, build without warnings, all quick tests, and again under ASan + UBSan
#   tools/test.sh --all   adds TSan, the release build, clang, clang-tidy, long fuzzing of inputs and of calls, the full torture and mutation tests
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
need_nvjitlink || echo "No nvJitLink: tests that assemble will say that they were skipped."
need_nvrtc || echo "No NVRTC: tests that compile CUDA C will say that they were skipped."
need_torch || echo "No package python3-torch: examples with torch will say that they were skipped."
jobs=$(nproc)
started=$SECONDS

# Our C files: sources PATTERN...
sources() {
    local patterns=() pattern
    for pattern in "$@"; do patterns+=(-o -name "$pattern"); done
    find base bench cache examples include jit ops sim tests tools -type f \( "${patterns[@]:1}" \) | sort
}

# run_tests PRESET [ctest arguments]
run_tests() {
    say "Tests ($1)"
    ctest --preset "$1" -j "$jobs" "${@:2}"
}

# Two minutes of libFuzzer on each target, from the committed corpora; what it finds stays under build/fuzz.
fuzz() {
    local target corpus
    while read -r target corpus; do
        say "Fuzzing $target"
        mkdir -p "build/fuzz/found/$target"
        "build/fuzz/tests/$target" -max_total_time=120 -print_final_stats=1 -verbosity=0 \
            "build/fuzz/found/$target" "$corpus"
    done <<'TARGETS'
jit/fuzz_expand tests/data/fuzz_expand
sim/fuzz_ptx tests/data/fuzz_ptx
cache/fuzz_cache_entry tests/cache/corpus/entry
cache/fuzz_cache_pack tests/cache/corpus/pack
tools/fuzz_safetensors tests/data/fuzz_safetensors
TARGETS
}

# Five minutes of random calls an operation, on the simulator; failing cases stay under build/release/found.
fuzz_calls() {
    local op
    for op in $(build/release/kiln ops | grep -oE '^[a-z_]+'); do
        say "kiln fuzz $op"
        build/release/kiln fuzz "$op" --seconds 300 -o build/release/found
    done
}

say "Format"
sources '*.c' '*.h' | xargs clang-format-14 --dry-run -Werror

build dev
run_tests dev -L quick
build asan
run_tests asan -L quick
if [ $all -eq 1 ]; then
    need_packages "${ALL_PACKAGES[@]}"
    build tsan
    run_tests tsan -L quick
    export KN_LONG=1
    build release
    run_tests release
    say "Long tests"
    ctest --test-dir build/release -L long -j "$jobs" --output-on-failure
    ctest --test-dir build/dev -R '^planted/long$' --output-on-failure
    fuzz_calls
    build clang
    run_tests clang -L quick
    build fuzz
    fuzz
    say "clang-tidy"
    sources '*.c' | grep -v -e ^examples/ -e ^tests/abi/consumer/ | xargs -P "$jobs" -n 8 clang-tidy-14 --quiet -p build/dev
fi
command -v nvidia-smi >/dev/null || echo "No GPU here: the tests that need one said that they were skipped."
say "All tests passed in $((SECONDS - started)) s"
