#!/usr/bin/env bash
# transcript.sh KILN FILE.t: runs the command lines of a transcript and compares what they print, line by line.
#   $ command      run by bash in an empty folder; `kiln` is the tool, $GOLDEN the golden cases, $BUILD the
#                  build folder
#   text           an expected line of output or error; * stands for any text
#   ...            any number of lines
#   [3]            the exit code, if it is not 0
#   # text         a comment
set -uo pipefail
kiln=$(realpath "$1") transcript=$(realpath -e "$2") || exit 2
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin" "$work/here"
ln -s "$kiln" "$work/bin/kiln"
# By links: the tree may lie in a folder whose name has blanks, and command lines shall not be full of quotes.
ln -s "$here/../../data/golden" "$work/golden"
ln -s "$here/../../../bench/cases" "$work/cases"
ln -s "$here/../../../tools" "$work/tools"
ln -s "$(dirname "$kiln")" "$work/build"
export PATH=$work/bin:$PATH GOLDEN=$work/golden CASES=$work/cases TOOLS=$work/tools BUILD=$work/build LC_ALL=C
for name in $(compgen -e KILN_); do unset "$name"; done
export KILN_CACHE_DIR=$work/cache KILN_DEVICE=sim
cd "$work/here" || exit 1
failures=0 commands=0

# matches PATTERN LINE: * is the only special character of PATTERN
matches() {
    local p=$1
    p=${p//\\/\\\\}
    p=${p//\[/\\[}
    p=${p//\?/\\?}
    # shellcheck disable=SC2053 # the right side is meant as a pattern
    [[ $2 == $p ]]
}

# compare what `command` printed with the expected lines
check() {
    local at=0 any=0 pattern
    mapfile -t seen <<<"$output"
    [ -z "$output" ] && seen=()
    for pattern in ${expected[@]+"${expected[@]}"}; do
        if [ "$pattern" = "..." ]; then
            any=1
            continue
        fi
        while ((any && at < ${#seen[@]})) && ! matches "$pattern" "${seen[at]}"; do at=$((at + 1)); done
        if ((at >= ${#seen[@]})); then
            fail "the output ends where this line was expected: $pattern"
            return
        fi
        if ! matches "$pattern" "${seen[at]}"; then
            fail "expected: $pattern"$'\n'"      seen: ${seen[at]}"
            return
        fi
        at=$((at + 1))
        any=0
    done
    if ((!any && at < ${#seen[@]})); then fail "not expected: ${seen[at]}"; fi
    if [ "$code" != "$wanted_code" ]; then fail "exit code $code, expected $wanted_code"; fi
}

fail() {
    failures=$((failures + 1))
    printf '%s:%s: $ %s\n  %s\n' "$(basename "$transcript")" "$line_number" "$command" "$1"
    printf '%s\n' "$output" | sed 's/^/    | /'
}

command='' line_number=0 number=0
finish() { # the command whose expectations have all been read
    [ -z "$command" ] && return
    commands=$((commands + 1))
    output=$(eval "$command" 2>&1)
    code=$?
    check
    command=''
}
while IFS= read -r line || [ -n "$line" ]; do
    number=$((number + 1))
    case "$line" in
        '#'*) ;;
        '$ '*)
            finish
            command=${line#'$ '} line_number=$number expected=() wanted_code=0
            ;;
        '['[0-9]*']') wanted_code=${line//[!0-9]/} ;;
        *) expected+=("$line") ;;
    esac
done <"$transcript"
finish
[ $failures -eq 0 ] && [ $commands -gt 0 ]
