# mutate_score.awk: how many mutants of each template some row catches, from what the mutation test of Kiln's kernels says of
# each:  KN_MUTANTS=1 test_sim_mutate_kernels | awk -f tests/sim/mutate_score.awk
#
# A mutant is a change of one instruction of a template (of one expansion of its line, where a line is expanded several times in
# a kernel), whatever rows meet it, and however often. It is caught if any row catches it. It is equivalent if no run of any kernel
# could tell it from the template: tests/data/sim/harmless_mutants.txt says "always:" before the reason. The score is what is caught
# of those that are not equivalent.
#
# A line: template, mutants met in all rows, caught there; mutants, equivalent, caught by a row, score. Below it what is neither.
BEGIN { FS = " [|] " }
$1 == "mutant" {
    split($2, place, ".")
    t = place[1]
    key = $2 "|" $4 "|" $5
    met[t]++
    if (!(key in template)) {
        template[key] = t
        all[t]++
        where[key] = $2 " (" $3 "), " $4 ", " $5
    }
    if ($6 == "caught") {
        caught_there[t]++
        caught[key] = 1
    } else {
        if ($7 ~ /^always: /) equivalent[key] = 1
        reason[key] = $7
    }
}
END {
    for (key in template) {
        t = template[key]
        if (key in caught) n_caught[t]++
        else if (key in equivalent) n_equivalent[t]++
        else rest[t] = rest[t] "\n    " where[key] ": " reason[key]
    }
    for (t in all) {
        counted = all[t] - n_equivalent[t]
        printf "| `%s` | %d | %d | %d | %d | %d | %.1f%% |%s\n", t, met[t], caught_there[t], all[t], n_equivalent[t], n_caught[t],
               counted ? 100 * n_caught[t] / counted : 100, rest[t]
    }
}
