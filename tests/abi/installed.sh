#!/usr/bin/env bash
# installed.sh BUILD COMPILER: an installed tree is usable from CMake and from pkg-config, shared and static, from C and C++,
# also after it was moved; the README's C program runs on it; its tool finds its library.
set -euo pipefail
build=$1 cc=$2
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export KILN_CACHE_DIR=off
unset KILN_LIBRARY

cmake --install "$build" --prefix "$work/first" >"$work/log" || { cat "$work/log"; exit 1; }
mv "$work/first" "$work/moved"
prefix=$work/moved
libdir=$(dirname "$(find "$prefix" -name libkiln.so)")

echo "-- find_package"
cmake -G Ninja -S "$here/consumer" -B "$work/consumer" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$cc" >"$work/log" 2>&1 ||
    { cat "$work/log"; exit 1; }
cmake --build "$work/consumer" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
"$work/consumer/with_shared"
"$work/consumer/with_static"

echo "-- pkg-config"
export PKG_CONFIG_PATH=$libdir/pkgconfig
read -ra cflags <<<"$(pkg-config --cflags kiln)"
read -ra shared <<<"$(pkg-config --libs kiln)"
read -ra private <<<"$(pkg-config --static --libs-only-l kiln | sed 's/-lkiln//')"
"$cc" "${cflags[@]}" "$here/consumer/consumer.c" -o "$work/pc_shared" "${shared[@]}"
LD_LIBRARY_PATH=$libdir "$work/pc_shared"
"$cc" "${cflags[@]}" "$here/consumer/consumer.c" -o "$work/pc_static" "$libdir/libkiln.a" "${private[@]}"
"$work/pc_static"
"$cc" -x c++ -std=c++17 "${cflags[@]}" "$here/consumer/consumer.c" -x none -o "$work/pc_cxx" "${shared[@]}"
LD_LIBRARY_PATH=$libdir "$work/pc_cxx"

echo "-- the README's program"
awk '/^```c$/ { on = 1; next } /^```$/ { on = 0 } on' "$here/../../README.md" >"$work/first.c"
"$cc" -std=c11 -Wall -Wextra -Werror "${cflags[@]}" "$work/first.c" -o "$work/readme" "${shared[@]}"
[ "$(LD_LIBRARY_PATH=$libdir "$work/readme")" = 0.25 ]

echo "-- the tool"
"$prefix/bin/kiln" ops load_balance_backward >"$work/ops"
grep -q grad_expert_mask_out "$work/ops"
