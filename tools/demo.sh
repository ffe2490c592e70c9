#!/usr/bin/env bash
# From a bare Debian 12 or Ubuntu 24.04 machine to the main job running: a backward pass is generated for the shapes in a
# file, assembled, cached, run (on the GPU if there is one, else on the simulator) and checked against float64; the
# second run takes its kernels from the cache.
#   tools/demo.sh [FILE.safetensors] [--no-assembler]
set -euo pipefail
usage() { echo "usage: tools/demo.sh [FILE.safetensors] [--no-assembler]" >&2; exit 2; }
file='' flags=()
for arg in "$@"; do
    case "$arg" in
        --no-assembler) flags+=(--no-assembler) ;;
        -*) usage ;;
        *) [ -z "$file" ] || usage; file=$(realpath -e -- "$arg") || exit 2 ;;
    esac
done
cd "$(dirname "$0")/.."
source tools/setup.sh
file=${file:-tests/data/golden/load_balance_backward/b130_e100_k3_t1.safetensors}

need_packages "${BUILD_PACKAGES[@]}"
if [ ${#flags[@]} -eq 0 ] && ! need_nvjitlink; then
    echo "No assembler (nvJitLink) here: the simulator needs none. To get one: the CUDA toolkit, or pip install nvidia-nvjitlink"
    flags+=(--no-assembler)
fi
build release -DKILN_TESTS=OFF

cache=$(mktemp -d)
trap 'rm -rf "$cache"' EXIT
export KILN_CACHE_DIR=$cache
say "First run: kernels are generated, assembled and cached"
build/release/kiln run "$file" --check ${flags[@]+"${flags[@]}"}
say "Second run: every kernel comes from the cache"
build/release/kiln run "$file" --check ${flags[@]+"${flags[@]}"}
