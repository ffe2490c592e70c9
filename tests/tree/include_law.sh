#!/usr/bin/env bash
# include_law.sh SOURCE-TREE: every #include of our own files obeys the table "Who may include whom" of CONTRIBUTING.md.
set -euo pipefail
cd "$1"

# file pattern | what it may include beside libc; the first matching row counts
law='
base/*            | base/
cache/*           | base/ cache/
sim/*             | base/ sim/
jit/target*       | base/ jit/target
jit/expand*       | base/ jit/expand jit/target
jit/backend_sim*  | base/ jit/expand jit/assemble jit/target jit/backend sim/
jit/backend_cuda* | base/ jit/expand jit/assemble jit/target jit/backend jit/driver jit/dl
jit/driver*       | base/ jit/driver jit/dl
jit/nvrtc*        | base/ jit/expand jit/assemble jit/nvrtc jit/dl
jit/assemble[._]*  | base/ jit/expand jit/assemble jit/target jit/dl
jit/dl*           | base/ jit/dl
jit/backend*      | base/ jit/expand jit/assemble jit/target jit/backend
jit/*             | base/ jit/ cache/ !jit/driver !jit/backend_cuda !jit/backend_sim
ops/api*          | base/ jit/ cache/ ops/ kiln/ !jit/driver !jit/backend_cuda !jit/backend_sim
ops/*             | base/ jit/program.h ops/ kiln/
tools/kiln/common/*   | common/
tools/kiln/abi/*      | common/ abi/ kiln/
tools/kiln/tensors/*  | common/ abi/ tensors/ kiln/
tools/kiln/problems/* | common/ problems/ kiln/
tools/kiln/gpu/*      | common/ gpu/
tools/kiln/shapes/*   | common/ abi/ tensors/ shapes/
tools/kiln/inspect/*  | common/ abi/ commands.h kiln/
tools/kiln/plan/*     | common/ abi/ tensors/ shapes/ plan/ commands.h kiln/
tools/kiln/run/*      | common/ abi/ tensors/ plan/ run/ commands.h kiln/
tools/kiln/warm/*     | common/ abi/ tensors/ shapes/ plan/ warm/ commands.h kiln/
tools/kiln/bench/*    | common/ abi/ tensors/ gpu/ bench/ commands.h kiln/
tools/kiln/tune/*     | common/ abi/ tensors/ bench/ tune/ commands.h kiln/
tools/kiln/fuzz/*     | common/ abi/ tensors/ problems/ gpu/ fuzz/ commands.h kiln/
tools/*               | common/ commands.h
bench/*           | kiln/ bench/
examples/*        | kiln/
include/*         | kiln/
'

# words of the row that covers $1
row_of() {
    local pattern allowed
    while IFS='|' read -r pattern allowed; do
        pattern=${pattern//[[:space:]]/}
        # shellcheck disable=SC2254 # meant as a pattern
        [ -n "$pattern" ] && case "$1" in $pattern) echo "$allowed"; return ;; esac
    done <<<"$law"
}

bad=0 seen=0
judge() { # judge FILE INCLUDED
    local word may=0
    seen=$((seen + 1))
    for word in $(row_of "$1"); do
        case "$word" in
            !*) case "$2" in "${word#!}"*) may=0 ;; esac ;;
            *) case "$2" in "$word"*) may=1 ;; esac ;;
        esac
    done
    # A file beside this one, named without its folder: the benchmarks do that.
    if [[ $2 != */* && -e $(dirname "$1")/$2 ]]; then may=1; fi
    if [ $may -eq 0 ]; then
        echo "$1 includes $2: its folder may include only$(row_of "$1")"
        bad=1
    fi
}

while IFS=: read -r file include; do
    included=$(sed -E 's/^[[:space:]]*#[[:space:]]*include[[:space:]]*[<"]([^>"]+)[>"].*/\1/' <<<"$include")
    case "$included" in
        cuda* | cu[A-Z]* | nvrtc* | nvJitLink* | cupti* | cublas*)
            echo "$file includes $included: declarations of CUDA are our own"
            bad=1
            ;;
    esac
    case "$include" in
        *'"'*) judge "$file" "$included" ;;
        *'<kiln/'* | *'<base/'* | *'<jit/'* | *'<sim/'* | *'<cache/'* | *'<ops/'*) judge "$file" "$included" ;;
    esac
done < <(find base cache sim jit ops tools bench examples include -name '*.[ch]' -o -name '*.def' 2>/dev/null | sort |
    xargs grep -HE '^[[:space:]]*#[[:space:]]*include[[:space:]]*[<"]')
echo "$seen includes judged"
[ $bad -eq 0 ] && [ $seen -gt 0 ]
