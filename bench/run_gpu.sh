#!/usr/bin/env bash
# run_gpu.sh [WHAT]... [-- OPTION...]: check and time everything on the GPU of this machine and leave the results as JSON.
#   operations   load_balance, router, expert_mlp and moe_layer, each in a graph and beside cuBLASLt's products   (about 2 min)
#   gemm         the matrix products beside cuBLASLt                                                             (about 20 s)
#   experts      routed_experts                                                                                  (about 2 min)
#   more_experts routed_experts in bf16 and f16, with 512 experts, fast and accurate                             (about 2 min)
#   host         what a call costs on the host, and building kernels                                             (about 30 s)
#   torch        what a PyTorch user gets: bench/peers/torch_peers.py; needs PyTorch                             (about 5 min)
# The default is operations gemm host. Options after -- go to `kiln bench`.
#   KILN_BIN   folder with kiln, libkiln.so.* and host_cost (default: build/release of the source tree, where it is
#              bench/host_cost); the cases are built into the tool
#   OUT        folder for the results (default: out)
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=${KILN_BIN:-$here/../build/release}
out=${OUT:-out}
what=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    what+=("$1")
    shift
done
[ $# -gt 0 ] && shift
[ ${#what[@]} -gt 0 ] || what=(operations gemm host)
mkdir -p "$out" || exit 3
[ -x "$bin/kiln" ] || { echo "run_gpu.sh: no program $bin/kiln; set KILN_BIN" >&2; exit 3; }

# CUPTI and cuBLASLt: where the loader looks, in /usr/local/cuda, or in the wheels that PyTorch brings.
wheels=$(python3 -c 'import glob, nvidia; print(":".join(d for p in nvidia.__path__ for d in glob.glob(p + "/*/lib")))' 2>/dev/null)
cupti=/usr/local/cuda/extras/CUPTI/lib64
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}/usr/local/cuda/lib64:$cupti${wheels:+:$wheels}
# A cache of this run's own: nothing is timed that an older version has built.
cache=$(mktemp -d)
trap 'rm -rf "$cache"' EXIT
export KILN_CACHE_DIR=$cache

failed=0
bench() { # bench NAME OPERATION OPTION...
    local name=$1 start=$SECONDS
    shift
    "$bin/kiln" bench --device cuda:0 "$@" -o "$out/$name.json" || { failed=1; echo "run_gpu.sh: $name failed" >&2; }
    echo "($name: $((SECONDS - start)) s)"
}
# with_machine FILE KEY: JSON from the standard input, with the machine that it was measured on
with_machine() {
    local gpu driver
    IFS=, read -r gpu driver < <(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -1)
    { printf '{"gpu": "%s", "driver": "%s", "date": "%s", "%s": ' "$gpu" "${driver# }" "$(date -u +%FT%TZ)" "$2"; cat; echo '}'; } >"$1"
}

for part in "${what[@]}"; do
    case $part in
        operations)
            bench load_balance_backward load_balance_backward --graph --peers composed "$@"
            bench router_backward router_backward --graph --peers composed "$@"
            bench expert_mlp_backward expert_mlp_backward --graph --peers cublaslt,composed "$@"
            bench moe_layer_backward moe_layer_backward --graph --peers cublaslt,composed "$@"
            ;;
        gemm) bench gemm gemm --peers cublaslt "$@" ;;
        experts) bench routed_experts_backward routed_experts_backward "$@" ;;
        more_experts) bench more_experts --cases "$here/cases/experts.json" "$@" ;;
        host)
            host_cost=$bin/bench/host_cost
            [ -x "$host_cost" ] || host_cost=$bin/host_cost
            "$host_cost" --device cuda:0 --json | with_machine "$out/host_cost.json" host_cost || failed=1
            cat "$out/host_cost.json"
            ;;
        torch)
            python3 "$here/peers/torch_peers.py" -o "$out/torch_peers.json" --jobs "$(nproc)" || failed=1
            ;;
        *) echo "run_gpu.sh: no part \"$part\"" >&2; exit 2 ;;
    esac
done
exit $failed
