#!/usr/bin/env bash
# headers.sh INCLUDE COMPILER: the public headers compile alone, as C11 and C++17, with DLPack's header and without, under
# strict warnings, and pull in nothing of CUDA.
set -euo pipefail
include=$1 cc=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
warnings=(-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror)

for header in kiln/kiln.h kiln/kiln_tools.h; do
    printf '#include <%s>\n#include <%s>\nint uses_header(void);\nint uses_header(void) { return KILN_OK + (int)sizeof(DLTensor); }\n' \
        "$header" "$header" >"$work/uses.c"
    for dlpack in "" -DKILN_NO_DLPACK_HEADER; do
        "$cc" -std=c11 "${warnings[@]}" -Wstrict-prototypes $dlpack -I"$include" -c "$work/uses.c" -o "$work/uses.o"
        "$cc" -x c++ -std=c++17 "${warnings[@]}" $dlpack -I"$include" -c "$work/uses.c" -o "$work/uses.o"
        "$cc" -std=c11 $dlpack -I"$include" -M "$work/uses.c" >"$work/needs"
        if grep -iE 'cuda|nvrtc' "$work/needs"; then
            echo "$header includes a header of CUDA"
            exit 1
        fi
        if [ -n "$dlpack" ] && grep dlpack "$work/needs"; then
            echo "$header was compiled with DLPack's header where it should be without"
            exit 1
        fi
    done
done
# The table is of use without the headers and with any subset of its macros.
printf '#define KILN_OP(op, problem) #op ","\nconst char *ops(void);\nconst char *ops(void) { return\n#include <kiln/kiln_abi.def>\n""; }\n' >"$work/table.c"
"$cc" -std=c11 "${warnings[@]}" -I"$include" -c "$work/table.c" -o "$work/table.o"
