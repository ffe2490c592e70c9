#!/usr/bin/env bash
# report.sh SOURCE-TREE: bench/report on results of this test's own: numbers, refusals, --check; then the tree's own README and
# docs against its results.
set -uo pipefail
tree=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
fail() {
    echo "FAILED: $1" >&2
    failures=$((failures + 1))
}
mkdir -p "$work/bench/results" "$work/docs"
printf 'before\n<!-- bench:begin -->\nold\n<!-- bench:end -->\nafter\n' | tee "$work/README.md" >"$work/docs/benchmarks.md"
report() { python3 "$tree/bench/report" --root "$work" "$@"; }

# row NAME B COLD FLOOR: a case of load_balance_backward
row() {
    cat <<ROW
{"group": "load_balance_backward", "op": "load_balance_backward", "name": "$1", "axes": {"B": $2},
 "verified": {"pass": true, "same_bits_after_timing": true}, "peers": {}, "launches": 1,
 "cold": {"us": $3, "iqr_us": 0.2}, "hot": {"us": 1.5, "iqr_us": 0.1},
 "floor": {"us": $4, "by": "bytes"}, "bytes_per_s": 4.0e12, "flops_per_s": 1e12}
ROW
}
results() { # results ROWS
    echo "{\"gpu\": \"A GPU\", \"driver\": \"1.2\", \"date\": \"2030-01-02T03:04:05Z\", \"timer\": \"cupti\", \"cases\": [$1],
     \"geometric_means\": [{\"group\": \"load_balance_backward\", \"best_public_us\": 7.21}]}" >"$work/bench/results/lb.json"
}
results "$(row B=1 1 2.0 1.0), $(row B=2 2 8.0 4.0)"
cat >"$work/bench/results/peers.json" <<'PEERS'
{"gpu": "A GPU", "driver": "1.2", "date": "2030-01-02", "peers": [
 {"group": "load_balance_backward", "name": "B=1", "peer": "torch_eager", "us": 30},
 {"group": "load_balance_backward", "name": "B=1", "peer": "torch_eager+graph", "us": 6},
 {"group": "load_balance_backward", "name": "B=2", "peer": "torch_compile", "us": 12},
 {"group": "load_balance_backward", "name": "B=2", "peer": "torch_add_only", "us": 4},
 {"group": "load_balance_backward", "name": "B=2", "peer": "torch_eager", "error": "out of memory"}]}
PEERS

report --check >/dev/null && fail "old text passed --check"
report || fail "bench/report"
report --check || fail "its own text does not pass --check"
expect() { # expect FILE TEXT
    grep -qF -- "$2" "$work/$1" || { fail "$1 lacks: $2"; cat "$work/$1"; }
}
# shellcheck disable=SC2016 # the backquotes are the table's
# sqrt(2 * 8) = 4; twice the floor; torch.compile is the closest at 12 / 8, since torch.add does less than the operation.
expect README.md '| `load_balance_backward` | 2 | 4.00 | 2.00 | 1.50x torch.compile (1 cases) | 7.21 |'
expect README.md 'A GPU, driver 1.2, 2030-01-02.'
expect docs/benchmarks.md '| B=1 | 2.00 ±0.10 | 1.50 | 1.00 | 2.00 | 4.00 TB/s | 1 | - | - | 6.00 |'
expect docs/benchmarks.md '| B=2 | 8.00 ±0.10 | 1.50 | 4.00 | 2.00 | 4.00 TB/s | 1 | 4.00 | 12.00 | - |'
[ "$(head -1 "$work/README.md")$(tail -1 "$work/README.md")" = beforeafter ] || fail "text outside of the markers changed"
grep -q '<svg' "$work/bench/plots/load_balance_backward.svg" || fail "no plot"

# Beside Kiln of the same run, and before a run without: 12 / 10 instead of 12 / 8.
cat >"$work/bench/results/same_run.json" <<'PEERS'
{"gpu": "A GPU", "driver": "1.2", "date": "2030-01-02", "peers": [
 {"group": "load_balance_backward", "name": "B=2", "peer": "torch_compile", "us": 12.5},
 {"group": "load_balance_backward", "name": "B=2", "peer": "kiln+graph", "us": 10}]}
PEERS
report
expect README.md '| `load_balance_backward` | 2 | 4.00 | 2.00 | 1.25x torch.compile (1 cases) | 7.21 |'
rm "$work/bench/results/same_run.json"
report

# A number that is not the results' is found; so is a missing plot.
sed -i 's/| 4.00 | 2.00 |/| 3.90 | 2.00 |/' "$work/README.md"
report --check >/dev/null && fail "a changed number passed --check"
report
rm "$work/bench/plots/load_balance_backward.svg"
report --check >/dev/null && fail "a missing plot passed --check"

# Results that prove nothing are refused.
refuse() { # refuse TEXT WHY
    local said
    said=$(report 2>&1) && fail "not refused: $2"
    [[ $said == *"$1"* ]] || fail "refused without saying \"$1\": $said"
}
results "$(row B=1 1 2.0 1.0 | sed 's/"pass": true/"pass": false/')"
refuse 'B=1 was not verified' 'a wrong result'
results "$(row B=1 1 2.0 1.0 | sed 's/"verified": {[^}]*}/"verified": null/')"
refuse 'B=1 was not verified' 'a result without verification'
results "$(row B=1 1 2.0 1.0 | sed 's/timing": true/timing": false/')"
refuse 'B=1 was not verified' 'other bits after timing'
results "$(row B=1 1 2.0 1.0)"
sed -i 's/"driver": "1.2"/"driver": ""/' "$work/bench/results/lb.json"
refuse '"driver" is missing' 'a result without a driver'
printf 'no markers\n' >"$work/README.md"
results "$(row B=1 1 2.0 1.0)"
refuse 'does not have the markers' 'a README without markers'

# The tree itself.
python3 "$tree/bench/report" --check || fail "README.md or docs/benchmarks.md is not what bench/results says"
[ $failures -eq 0 ]
