#!/usr/bin/env bash
# field_reports.sh SOURCE-TREE: every test that docs/field-reports.md names exists: "folder/file: name" is START_TEST(name) in
# tests/folder/test_file.c or below, "folder/file" such a file or tests/folder/file.sh.
set -euo pipefail
cd "$1"
bad=0 seen=0
while IFS=: read -r where name; do
    file=$(find "tests/${where%%/*}" -name "test_${where#*/}.c")
    name=${name# }
    seen=$((seen + 1))
    if [ -n "$name" ]; then
        grep -qs "^START_TEST($name)" "${file:-/dev/null}" && continue
    else
        [ -n "$file" ] || [ -e "tests/$where.sh" ] && continue
    fi
    echo "docs/field-reports.md names the test $where${name:+: $name}, which is not in ${file:-tests/${where%%/*}}"
    bad=1
done < <(grep -E '^\| [A-Z]-[0-9]+ ' docs/field-reports.md | awk -F'|' '{print $5}' | tr ';' '\n' | sed 's/^ *//; s/ *$//')
echo "$seen tests looked for"
[ $bad -eq 0 ] && [ $seen -gt 0 ]
