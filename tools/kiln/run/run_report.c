/* The text of `kiln run`: see run.h. */
#include "common/report.h"
#include "plan/plan_report.h"
#include "run/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const json_t *get(const json_t *object, const char *key) {
    return json_object_get(object, key);
}

static bool is_simulated(const kt_run *run) {
    return strcmp(kt_json_text(get(run->report, "device"), "kind", ""), "sim") == 0;
}

static void print_head(const kt_run *run) {
    const json_t *device = get(run->report, "device");
    char *axes = kt_tensors_axes_text(&run->tensors);
    printf("%s  %s  on %s%s (%s)\n", run->op->name, axes, is_simulated(run) ? "the simulator, as " : "",
           kt_json_text(device, "name", "?"), kt_json_text(device, "target", "?"));
    free(axes);
    printf("outputs ");
    size_t i;
    json_t *o;
    json_array_foreach(get(run->report, "outputs"), i, o)
        printf("%s%s %s", i ? ", " : "", kt_json_text(o, "name", "?"), kt_json_text(o, "dtype", "?"));
    printf("\n");
}

static void print_run(const kt_run *run) {
    const json_t *r = get(run->report, "run"), *c = get(run->report, "counters");
    double seeds = kt_json_number(r, "seeds", 0);
    printf("ran %.0f time%s", kt_json_number(r, "runs", 0), kt_json_number(r, "runs", 0) == 1 ? "" : "s");
    if (seeds > 1) printf(" and under %.0f schedules", seeds);
    printf(", first call %s", kt_time_text(1e-6 * kt_json_number(r, "first_us", 0)));
    if (kt_json_number(r, "runs", 0) > 1) printf(", median %s", kt_time_text(1e-6 * kt_json_number(r, "median_us", 0)));
    double instructions = kt_json_number(c, "sim_instructions", 0);
    if (instructions > 0) printf(", %.0f warp instructions simulated", instructions);
    printf("\n");
    double skipped = kt_json_number(c, "skipped_ids", 0);
    if (skipped > 0) printf("%.0f ids were out of range and skipped\n", skipped);
}

static void print_cache(const kt_run *run) {
    const json_t *c = get(run->report, "counters");
    printf("cache: %.0f built, %.0f from memory, %.0f from packs, %.0f from disk", kt_json_number(c, "built", 0),
           kt_json_number(c, "memory", 0), kt_json_number(c, "read_only", 0), kt_json_number(c, "disk", 0));
    bool usable = json_is_true(get(c, "cache_usable"));
    printf(" (%s%s", usable ? "" : "no directory: ", kt_json_text(c, usable ? "cache_dir" : "cache_reason", "?"));
    double lost = kt_json_number(c, "publish_failed", 0);
    if (lost > 0) printf("; %.0f could not be written", lost);
    printf(")\n");
}

/* A number that a check has to say, or "-" where the rule does not apply. */
static const char *figure(const json_t *row, const char *key, char *buf, size_t cap) {
    const json_t *v = get(row, key);
    if (!json_is_number(v)) return kt_json_text(row, key, "?"); /* "nan" or "inf" */
    double d = json_number_value(v);
    if (d < 0) return "-";
    if (d > 1e300) return "inf";
    snprintf(buf, cap, "%.2e", d);
    return buf;
}

static void print_check(const kt_run *run) {
    const json_t *check = get(run->report, "check");
    if (!check) return;
    printf("error against %s\n",
           strcmp(kt_json_text(check, "against", ""), "file") == 0 ? "the file's outputs" : "the float64 reference");
    kt_table t = kt_table_begin(
        6, (const char *const[]){"output", ">max error", ">of its bound", ">Frobenius", ">worst slice", ""});
    static const char *const keys[] = {"max_error", "max_ratio", "frobenius", "worst_slice"};
    size_t i;
    json_t *o;
    json_array_foreach(get(check, "outputs"), i, o) {
        char buf[32];
        kt_table_cell(&t, "%s", kt_json_text(o, "name", "?"));
        for (int k = 0; k < 4; k++) kt_table_cell(&t, "%s", figure(o, keys[k], buf, sizeof buf));
        if (json_is_true(get(o, "pass")))
            kt_table_cell(&t, "ok");
        else
            kt_table_cell(&t, "FAILED: %s", kt_json_text(o, "message", "?"));
    }
    kt_table_end(&t, 2);
    printf(json_is_true(get(check, "pass")) ? "check passed\n" : "check FAILED\n");
}

void kt_run_print(const kt_run *run) {
    const json_t *plan = get(run->report, "plan");
    print_head(run);
    kt_print_launches(plan);
    if (is_simulated(run) && *kt_json_text(plan, "assembler", ""))
        printf("assembled only to see registers and spills: the simulator runs the PTX, and that is what is cached\n");
    print_run(run);
    print_cache(run);
    print_check(run);
}
