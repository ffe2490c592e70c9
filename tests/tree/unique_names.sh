#!/usr/bin/env bash
# unique_names.sh SOURCE-TREE: no two source files have the same name, so that a name in a message or a review names one
# file. Data, and the names that CMake and readers expect in every folder, do not count.
set -euo pipefail
cd "$1"
names=$(find base bench cache cmake docs examples include jit ops ptx_templates python sim tests tools -type f \
    -not -path 'tests/data/*' -not -path 'tests/cache/corpus/*' -not -path '*/__pycache__/*' -not -path 'bench/results/*' \
    -not -name CMakeLists.txt -not -name README.md -not -name __init__.py -printf '%f %p\n' | sort)
count=$(wc -l <<<"$names")
twice=$(cut -d' ' -f1 <<<"$names" | uniq -d)
for name in $twice; do
    echo "the name $name is taken twice:" $(awk -v n="$name" '$1 == n {print $2}' <<<"$names")
done
echo "$count file names compared"
[ -z "$twice" ] && [ "$count" -gt 100 ]
