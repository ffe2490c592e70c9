#!/usr/bin/env bash
# sanitize_gpu.sh [PROGRAM]: every configuration of the products' kernels on small sizes under compute-sanitizer: memcheck,
# then synccheck. PROGRAM is test_ops_gemm_configurations (default: that of build/release). Needs a GPU; about a minute
# with 12 processes.
#   JOBS   processes at once (default 12)
#   LOGS   folder for their output (default: a temporary one)
#   TOOLS  default "memcheck synccheck"
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
program=$(realpath "${1:-$here/../build/release/tests/ops/test_ops_gemm_configurations}") || exit 3
jobs=${JOBS:-12}
sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
[ -x "$sanitizer" ] || { echo "sanitize_gpu.sh: no compute-sanitizer" >&2; exit 3; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
logs=${LOGS:-$work}
mkdir -p "$logs"
# One process for all: what one has built, the next tool finds.
export KILN_CACHE_DIR=${KILN_CACHE_DIR:-$work/cache} KILN_DEVICE=${KILN_DEVICE:-cuda:0} CK_FORK=no
failed=0
for tool in ${TOOLS:-memcheck synccheck}; do
    start=$SECONDS pids=()
    for ((i = 0; i < jobs; i++)); do
        KN_SHARE=$i/$jobs "$sanitizer" --tool "$tool" --error-exitcode 9 "$program" >"$logs/$tool.$i.txt" 2>&1 &
        pids+=($!)
    done
    for ((i = 0; i < jobs; i++)); do
        wait "${pids[i]}" && continue
        failed=1
        echo "$tool, share $i/$jobs failed:"
        grep -E '=========|Failures|Assertion' "$logs/$tool.$i.txt" | head -20
    done
    echo "$tool: $(cat "$logs/$tool".*.txt | grep -c 'ERROR SUMMARY: 0 errors') of $jobs processes without errors, $((SECONDS - start)) s"
done
exit $failed
