#!/usr/bin/env bash
# container.sh BUILD: kernels that are built here run from a read-only image that lies elsewhere, for another user,
# without an assembler and without a cache directory. Nothing is compiled there and nothing is written.
#
# Machine code (where nvJitLink is at hand to make it) goes to a GPU that the fake driver plays: it loads, and computes
# nothing. What the kernels compute is checked on the simulator.
set -uo pipefail
build=$(realpath "$1")
golden=$(cd "$(dirname "$0")" && pwd)/../data/golden
top=$(mktemp -d)
trap 'chmod -R u+w "$top"; rm -rf "$top"' EXIT
chmod 0755 "$top"
stage=$top/stage
cases="load_balance_backward/b5_e60_k4_t0 router_backward/t1_h64_e8_k1 expert_mlp_backward/b40_t13_h64_f96
    moe_layer_backward/t20_h64_i48_e16_k4 routed_experts_backward/t16_h64_i48_e8_k2"
for name in $(compgen -e KILN_); do unset "$name"; done
failures=0
fail() {
    failures=$((failures + 1))
    printf '%s\n' "$@"
}

# ---- here: record the shapes, build their kernels ----

mkdir -p "$stage/usr/bin" "$stage/srv/cases"
cp "$build/kiln" "$build/libkiln.so.0" "$stage/usr/bin"
cp "$build/fake/fakecuda/libcuda.so.1" "$stage/srv"
for c in $cases; do
    cp "$golden/$c.safetensors" "$stage/srv/cases"
    KILN_CACHE_DIR=off KILN_RECORD=$top/shapes.jsonl "$build/kiln" run "$golden/$c.safetensors" --device sim --no-assembler >"$top/log" 2>&1 ||
        fail "recording $c:" "$(cat "$top/log")"
done
"$build/kiln" warm "$top/shapes.jsonl" --device sim --pack "$stage/srv/sim.pack" || fail "warming for the simulator failed"
machine_code=no
if "$build/kiln" env | grep -q '^  nvJitLink  *[0-9]'; then
    machine_code=yes
    "$build/kiln" warm "$top/shapes.jsonl" --arch sm_90a --pack "$stage/srv/sm_90a.pack" || fail "warming for sm_90a failed"
fi

# ---- the image: another place, nobody may write, root's where there is a root ----

image=$top/image/rootfs
mkdir -p "$top/image"
mv "$stage" "$image"
find "$image" -type d -exec chmod 0555 {} +
find "$image" -type f -exec chmod a-w,a+r {} +
as_other=()
if [ "$(id -u)" = 0 ]; then
    chown -R 0:0 "$image"
    if command -v setpriv >/dev/null; then as_other=(setpriv --reuid 12345 --regid 12345 --clear-groups); fi
fi
state() { find "$image" -printf '%p %m %U %s %T@\n' | sort; }
before=$(state)

# inside NAME=VALUE... -- ARGUMENTS: the image's kiln, in the image's environment and no other
inside() {
    local settings=()
    while [ "$1" != -- ]; do
        settings+=("$1")
        shift
    done
    shift
    (cd / && exec ${as_other[@]+"${as_other[@]}"} env -i PATH=/usr/bin:/bin HOME=/nonexistent KILN_ON_MISS=error \
        KILN_LIBNVJITLINK=off KILN_CACHE_SHARED=1 KILN_CACHE_DIR=off \
        "ASAN_OPTIONS=${ASAN_OPTIONS-}" "LSAN_OPTIONS=${LSAN_OPTIONS-}" ${settings[@]+"${settings[@]}"} \
        "$image/usr/bin/kiln" "$@")
}

# ---- there: run everything, compile nothing ----

for c in $cases; do
    file=$image/srv/cases/$(basename "$c").safetensors
    out=$(inside "KILN_CACHE_RO=$image/srv/sim.pack" -- run "$file" --device sim --check 2>&1) || fail "$c on the simulator: exit code $?" "$out"
    grep -q '^cache: 0 built, .* [1-9][0-9]* from packs' <<<"$out" || fail "$c on the simulator did not take its kernels from the pack:" "$out"
    [ $machine_code = yes ] || continue
    out=$(inside "KILN_CACHE_RO=$image/srv/sm_90a.pack" "KILN_LIBCUDA=$image/srv/libcuda.so.1" -- run "$file" --device cuda:0 2>&1) || fail "$c as machine code: exit code $?" "$out"
    grep -q '^cache: 0 built, .* [1-9][0-9]* from packs' <<<"$out" || fail "$c did not take its machine code from the pack:" "$out"
done

# Without the pack nothing runs, and the sentence ends with the line to add.
out=$(inside -- run "$image/srv/cases/t1_h64_e8_k1.safetensors" --device sim 2>&1)
[ $? = 3 ] || fail "without the pack the exit code is not 3:" "$out"
grep -q 'the line to add to the warm list is {"v":1,"op":"router_backward",' <<<"$out" || fail "no line to add:" "$out"
# A pack that others may write to is not code that is run.
chmod 0666 "$image/srv/sim.pack"
out=$(inside "KILN_CACHE_RO=$image/srv/sim.pack" -- run "$image/srv/cases/t1_h64_e8_k1.safetensors" --device sim 2>&1) && fail "a pack that everybody may write to was used:" "$out"
chmod 0444 "$image/srv/sim.pack"

[ "$before" = "$(state)" ] || fail "the image has changed:" "$(diff <(echo "$before") <(state))"
echo "machine code: $machine_code; another user: $([ ${#as_other[@]} -gt 0 ] && echo yes || echo no)"
[ $failures -eq 0 ]
