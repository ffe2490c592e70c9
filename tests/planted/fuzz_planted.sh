#!/usr/bin/env bash
# fuzz_planted.sh KILN LIBRARY quick|long: `kiln fuzz` finds every planted fault, at few and many tokens and at three
# scales of the values, and finds nothing in the same library without a fault. quick: few tokens, one scale.
set -euo pipefail
kiln=$1 library=$2 mode=$3
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

# fault | operation | sizes: $T stands for the number of tokens, $D for a width that is smaller where tokens are many
# shellcheck disable=SC2016
table='
zeroed_row         | routed_experts_backward | T=$T H=$D I=$D
swapped_rows       | moe_layer_backward      | T=$T H=$D I=$D
dropped_slot       | routed_experts_backward | T=$T H=$D I=$D
scaled_expert      | router_backward         | T=$T H=$D
shifted_columns    | expert_mlp_backward     | T=$T H=$D F=$D
missing_fence      | gemm                    | M=$T N=$D K=$D
missing_barrier    | routed_experts_backward | T=$T H=$D I=$D
stale_workspace    | routed_experts_backward | T=$T H=$D I=$D
all_zeros          | gemm                    | M=$T N=$D K=$D
wrong_beta         | moe_layer_backward      | T=$T H=$D I=$D
truncated_tail     | expert_mlp_backward     | T=$T H=9 F=$D
wrong_rounding     | load_balance_backward   | B=$T
off_by_one         | load_balance_backward   | B=$T
lost_tile          | grouped_gemm            | M=$T N=$D K=$D
ignored_stride     | load_balance_backward   | B=$T E=33
nan_leak           | load_balance_backward   | B=$T
past_the_end       | gemm                    | M=$T N=$D K=$D
modified_input     | router_backward         | T=$T H=$D
unordered_sum      | grouped_gemm            | M=$T N=$D K=$D
taken_for_zero     | router_backward         | T=$T H=$D
lost_tie           | routed_experts_backward | T=$T H=$D I=$D L=4 E=4 K=2
dropped_last_token | expert_mlp_backward     | T=$T H=$D F=$D
transposed_tile    | gemm                    | M=$T N=$D K=$D
uncounted_ids      | moe_layer_backward      | T=$T H=$D I=$D
'

bad=0 caught=0
# try FAULT OPERATION SIZES SCALE: 40 cases at most, until one fails
try() {
    local text code=0
    # shellcheck disable=SC2086 # sizes are several words
    text=$(KILN_PLANTED_FAULT=$1 "$kiln" fuzz "$2" $3 --scale "$4" --cases 40 --findings 1 --no-shrink \
        --work 3e6 -o "$out" --library "$library" 2>&1) || code=$?
    if [ $code -eq 1 ] && grep -q '^finding: ' <<<"$text"; then
        caught=$((caught + 1))
        printf '%-18s %-24s %-24s scale %-5s %s\n' "$1" "$2" "$3" "$4" "$(grep -m1 '^finding: ' <<<"$text" | cut -c10-100)"
    else
        echo "NOT FOUND: $1 in $2 $3 at scale $4 (exit code $code)"
        tail -n 3 <<<"$text"
        bad=$((bad + 1))
    fi
}

tokens='24' scales='1'
if [ "$mode" = long ]; then tokens='24 4096' scales='1e-3 1 1e3'; fi
while IFS='|' read -r fault op sizes; do
    fault=${fault// /} op=${op// /}
    [ -n "$fault" ] || continue
    for T in $tokens; do
        D=64
        if [ "$T" -gt 1000 ]; then D=16; fi
        text=${sizes//\$T/$T}
        for scale in $scales; do try "$fault" "$op" "${text//\$D/$D}" "$scale"; done
    done
done <<<"$table"

# A finding becomes small, and its file shows it again: to fuzz, with its layout, and to run.
expect() { # expect CODE WHAT COMMAND...
    local wanted=$1 what=$2 code=0
    shift 2
    "$@" > "$out/text" 2>&1 || code=$?
    [ $code -eq "$wanted" ] && return
    echo "$what: exit code $code, expected $wanted"
    cat "$out/text"
    bad=$((bad + 1))
}
export KILN_PLANTED_FAULT=shifted_columns
expect 1 "fuzz with shifted_columns" "$kiln" fuzz gemm --seed 7 --cases 20 --findings 1 --work 3e5 -o "$out" --library "$library" --json
file=$(sed -n 's/.*"file": "\(.*\)".*/\1/p' "$out/text")
elements=1
for size in $(grep -A12 '"shrunk"' "$out/text" | sed -n 's/.*"[MN]": \([0-9]*\).*/\1/p'); do elements=$((elements * size)); done
if [ $elements -gt 64 ] || [ -z "$file" ]; then
    echo "the smallest case has $elements elements"
    bad=$((bad + 1))
fi
expect 1 "replay with the fault" "$kiln" fuzz --replay "$file" --library "$library"
expect 1 "run with the fault" "$kiln" run "$file" --check --device sim --library "$library"
unset KILN_PLANTED_FAULT
expect 0 "replay without the fault" "$kiln" fuzz --replay "$file" --library "$library"
expect 0 "run without the fault" "$kiln" run "$file" --check --device sim --library "$library"

# What has no fault passes.
for op in $(sed 's/.*| *\([a-z_]*\) *|.*/\1/' <<<"$table" | sort -u); do
    if ! "$kiln" fuzz "$op" --cases 3 --work 3e5 --library "$library" -o "$out" > "$out/clean" 2>&1; then
        echo "without a fault, $op fails:"
        cat "$out/clean"
        bad=$((bad + 1))
    fi
done
echo "$caught found, $bad not"
[ $bad -eq 0 ] && [ $caught -gt 0 ]
