#!/usr/bin/env bash
# symbols.sh LIBKILN KILN SANITIZER: the library exports exactly the functions of symbols.txt, which are those of
# kiln_abi.def (operations: as far as ops.def has them); library and tool need only libc. A deliberate change of the interface changes symbols.txt in the same commit.
set -euo pipefail
lib=$1 tool=$2 sanitizer=${3:-}
here=$(cd "$(dirname "$0")" && pwd)
def=$here/../../include/kiln/kiln_abi.def
bad=0

exported=$(nm -D --defined-only "$lib" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort)
if ! diff <(echo "$exported") "$here/symbols.txt"; then
    echo "the library's exports (<) are not those of symbols.txt (>)"
    bad=1
fi

# Functions of the table, and kiln_<op> for every operation of the table that the library's registry has.
ops=$(sed -n 's/^KN_OP_ROW(\([a-z0-9_]*\),.*/KILN_OP(\1,/p' "$here/../../ops/ops.def")
table=$({ sed -n 's/^KILN_FUNCTION(\([a-z0-9_]*\),.*/\1/p' "$def"
    grep -F "$ops" "$def" | sed -n 's/^KILN_OP(\([a-z0-9_]*\),.*/kiln_\1/p'; } | sort)
if ! diff <(echo "$table") "$here/symbols.txt"; then
    echo "kiln_abi.def and ops.def (<) do not list what symbols.txt (>) lists"
    bad=1
fi

# The library starts no programs, ends no process, installs nothing behind its caller's back and prints nothing.
refused='system|popen|fork|vfork|clone|exec[lv].*|posix_spawnp?|exit|_exit|atexit|signal|sigaction|setlocale|printf|puts|putchar'
if [ -z "$sanitizer" ] && nm -D -u "$lib" | awk '{ sub(/@.*/, "", $2); print $2 }' | grep -xE "$refused"; then
    echo "the library calls what a library must not call"
    bad=1
fi

for file in "$lib" "$tool"; do
    allowed='linux-vdso|ld-linux|libc\.so|libm\.so|libdl\.so|libpthread\.so|librt\.so'
    [ -n "$sanitizer" ] && allowed="$allowed|libasan|libubsan|libtsan|libgcc_s|libstdc"
    if ldd "$file" | grep -vE "$allowed"; then
        echo "$file needs more than libc"
        bad=1
    fi
done
exit $bad
