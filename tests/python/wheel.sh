#!/usr/bin/env bash
# wheel.sh SOURCE LIBKILN README-PROGRAM: pip builds the wheel without a network, twice the same bytes; installed into an empty
# virtual environment it brings its own library and needs nothing else; the README's Python program runs on it. Exits with 77
# where pip, venv or numpy are not installed; under CI=true that is a failure.
set -euo pipefail
source=$1 library=$2 program=$3
python=/usr/bin/python3
for module in pip venv numpy; do
    "$python" -c "import $module" 2>/dev/null && continue
    echo "skipped: no Python module $module (packages python3-pip python3-numpy)"
    [ "${CI:-}" = true ] && exit 1
    exit 77
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PIP_NO_INDEX=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore PIP_NO_CACHE_DIR=1 KILN_CACHE_DIR=off
export PYTHONDONTWRITEBYTECODE=1
unset PYTHONPATH

echo "-- build"
for folder in first second; do
    KILN_LIBRARY=$library "$python" -m pip wheel --quiet --no-deps -w "$work/$folder" "$source/python"
done
wheel=$(echo "$work"/first/kiln-*-py3-none-manylinux_2_*.whl)
cmp "$wheel" "$work/second/${wheel##*/}"
echo "${wheel##*/}: $(stat -c %s "$wheel") bytes"
[ "$(stat -c %s "$wheel")" -lt 4000000 ]
newest=$(objdump -T "$library" | grep -o 'GLIBC_2\.[0-9]*' | cut -d. -f2 | sort -n | tail -1)
[[ $wheel == *manylinux_2_${newest}_$(uname -m).whl ]]

echo "-- install and run, with nothing but Python"
unset KILN_LIBRARY
cd "$work" # away from the source tree
"$python" -m venv --without-pip "$work/bare"
"$python" -m pip --python "$work/bare/bin/python" install --quiet "$wheel"
"$work/bare/bin/python" - "$work/bare" <<'PROGRAM'
import array, sys, kiln
from kiln import _abi
assert kiln.__file__.startswith(sys.argv[1]) and _abi.library._name.startswith(sys.argv[1]), (kiln.__file__, _abi.library)
f = lambda n, value: array.array("f", [value] * n)
mask, out = (memoryview(f(32, 2.0)).cast("B").cast("f", [4, 8]) for _ in range(2))
with kiln.Context("sim") as ctx:
    ctx.load_balance_backward(grad_tokens_per_expert=f(8, 1.0), grad_expert_mask=mask, grad_load_balance_loss=f(1, 8.0),
                              training=bytearray([1]), grad_expert_mask_out=out, top_k=2)
assert out.tolist() == [[4.0] * 8] * 4, out.tolist()
PROGRAM

echo "-- the README's program"
"$python" -m venv --without-pip --system-site-packages "$work/numpy"
"$python" -m pip --python "$work/numpy/bin/python" install --quiet --ignore-installed "$wheel"
"$work/numpy/bin/python" "$program" "$source/README.md" | tee "$work/log"
grep -q "^OK with $work/numpy/" "$work/log"
