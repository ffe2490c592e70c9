/* The words and numbers of `kiln fuzz`: see fuzz_report.h. */
#include "fuzz/fuzz_report.h"

#include "common/report.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

double kt_fuzz_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void kt_fuzz_report_begin(kt_fuzz_report *r) {
    *r = (kt_fuzz_report){.drawn = json_object(), .rows = json_array(), .worst = json_object()};
    r->start_s = kt_fuzz_now();
}

void kt_fuzz_report_free(kt_fuzz_report *r) {
    json_decref(r->drawn);
    json_decref(r->rows);
    json_decref(r->worst);
    *r = (kt_fuzz_report){0};
}

/* ---- what was drawn ---------------------------------------------------------------------------------------------- */

static void count(kt_fuzz_report *r, const char *what, const char *value) {
    json_t *values = json_object_get(r->drawn, what);
    if (!values) {
        values = json_object();
        json_object_set_new(r->drawn, what, values);
    }
    json_object_set_new(values, value, json_integer(1 + json_integer_value(json_object_get(values, value))));
}

static const char *size_class(int64_t n) {
    return n == 0     ? "0"
           : n == 1   ? "1"
           : n < 16   ? "2-15"
           : n < 64   ? "16-63"
           : n < 256  ? "64-255"
           : n < 1024 ? "256-1023"
                      : "1024-";
}

static void count_options(kt_fuzz_report *r, const json_t *settings) {
    const char *key;
    json_t *value;
    if (json_object_size(settings) == 0) count(r, "option", "none");
    json_object_foreach((json_t *)(uintptr_t)settings, key, value) {
        bool word = json_is_string(value) || json_is_boolean(value);
        char *text = word ? json_dumps(value, JSON_ENCODE_ANY) : kt_copy("...");
        char *option = kt_format("%s=%s", key, text);
        count(r, "option", option);
        free(option);
        free(text);
    }
}

static void count_layout(kt_fuzz_report *r, const kt_fuzz_case *c, int i) {
    const kt_fuzz_layout *l = &c->layout[i];
    if (kt_fuzz_is_compact(l)) count(r, "layout", "compact");
    if (l->swapped) count(r, "layout", "swapped axes");
    if (l->turned) count(r, "layout", "turned axes");
    if (l->expanded) count(r, "layout", "stride 0");
    if (l->gap) count(r, "layout", "gaps");
    if (l->spread) count(r, "layout", "spread elements");
    if (l->byte_offset) count(r, "layout", "byte_offset");
    int64_t bytes = l->shift * (c->dtype[i]->bits / 8);
    count(r, "alignment", bytes == 0 ? "256" : bytes % 16 == 0 ? "16 to 128" : bytes % 4 == 0 ? "4 or 8" : "1 or 2");
}

void kt_fuzz_report_case(kt_fuzz_report *r, const kt_fuzz_case *c) {
    r->cases++;
    count(r, "op", c->op->name);
    for (int i = 0; i < 26; i++) {
        char what[] = "size A";
        what[5] = (char)('A' + i);
        if (c->size[i] >= 0) count(r, what, size_class(c->size[i]));
    }
    for (int i = 0; i < c->op->n_args; i++) {
        const kt_arg *arg = &c->op->args[i];
        if (arg->role == KT_OPTIONAL) count(r, c->dtype[i] ? "optional given" : "optional absent", arg->name);
        if (arg->role == KT_OUT && !c->dtype[i]) count(r, "output absent", arg->name);
        if (!c->dtype[i]) continue;
        count(r, arg->role == KT_OUT ? "type of an output" : "type of an input", c->dtype[i]->name);
        count_layout(r, c, i);
    }
    count_options(r, c->settings);
    char scale[32];
    snprintf(scale, sizeof scale, "%g", c->scale);
    count(r, "scale", scale);
    count(r, "values", kt_fuzz_values_names[c->values]);
    count(r, "ids", kt_fuzz_ids_names[c->ids]);
    count(r, "ids skipped", c->skip_percent == 0 ? "none" : c->skip_percent == 100 ? "all" : "some");
    count(r, "ids out of range", c->wild_percent == 0 ? "none" : "some");
    count(r, "one row", kt_fuzz_poison_names[c->poison]);
    count(r, "kernels", kt_fuzz_path_names[c->path]);
    if (c->in_place) count(r, "layout", "in place");
}

void kt_fuzz_report_worst(kt_fuzz_report *r, const kt_fuzz_case *c, double worst) {
    if (worst > json_number_value(json_object_get(r->worst, c->op->name)))
        json_object_set_new(r->worst, c->op->name, json_real(worst));
}

/* ---- saying it --------------------------------------------------------------------------------------------------- */

void kt_fuzz_report_progress(kt_fuzz_report *r, const char *op, double left, const char *unit) {
    double t = kt_fuzz_now();
    if (t - r->shown_s < 0.5 || !isatty(STDERR_FILENO)) return;
    r->shown_s = t;
    fprintf(stderr, "\r\033[K%" PRIu64 " cases, %" PRIu64 " findings, %.0f s, %.0f %s left: %s", r->cases, r->findings,
            t - r->start_s, left > 0 ? left : 0, unit, op);
    fflush(stderr);
}

void kt_fuzz_report_clear_progress(const kt_fuzz_report *r) {
    if (r->shown_s > 0) fprintf(stderr, "\r\033[K");
}

json_t *kt_fuzz_report_json(const kt_fuzz_report *r, const char *device, uint64_t seed) {
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:f, s:O, s:O, s:O}", "device", device, "seed", (json_int_t)seed,
                     "cases", (json_int_t)r->cases, "findings", (json_int_t)r->findings, "known", (json_int_t)r->known,
                     "seconds", kt_fuzz_now() - r->start_s, "worst", r->worst, "rows", r->rows, "drawn", r->drawn);
}

void kt_fuzz_report_print(const kt_fuzz_report *r) {
    printf("%" PRIu64 " cases in %.0f s, %" PRIu64 " findings, %" PRIu64 " known\n", r->cases,
           kt_fuzz_now() - r->start_s, r->findings, r->known);
    const char *key;
    json_t *value;
    json_object_foreach(r->worst, key, value)
        printf("  %-24s largest error %.2f of its bound\n", key, json_number_value(value));
    printf("drawn:\n");
    json_object_foreach(r->drawn, key, value) {
        printf("  %-18s", key);
        const char *name;
        json_t *times;
        json_object_foreach(value, name, times) printf(" %s: %d", name, (int)json_integer_value(times));
        printf("\n");
    }
}
