/* What `kiln bench` reports: see bench.h. */
#include "bench/bench.h"

#include "common/replace.h"
#include "common/report.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static const char *timer_name(const kt_bench *b) {
    return !b->gpu ? "host" : kt_bench_cupti_path() ? "cupti" : "events";
}

int kt_bench_report_begin(kt_bench *b) {
    char date[32];
    time_t now = time(NULL);
    struct tm utc;
    gmtime_r(&now, &utc);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &utc);
    json_t *r = b->report;
    json_object_set_new(r, "kiln", json_string(kt_call_string(b->lib, "kiln_version", 0, NULL)));
    json_object_set_new(r, "date", json_string(date));
    json_object_set_new(r, "gpu", json_string(b->gpu ? kt_json_text(b->device_json, "name", "") : ""));
    json_object_set_new(r, "driver", json_string(b->gpu ? kt_gpu_driver(b->gpu) : ""));
    json_object_set_new(r, "timer", json_string(timer_name(b)));
    json_object_set_new(r, "iterations", json_integer(b->iterations));
    json_object_set_new(r, "l2_written_over_bytes", json_integer((json_int_t)b->timer.flush_bytes));
    json_object_set_new(r, "bytes_per_s", json_real(b->bytes_per_s));
    json_object_set_new(r, "bytes_per_s_measured", json_boolean(b->gpu != NULL));
    json_object_set_new(r, "tensor_flops", json_real(b->tensor_flops));
    json_object_set_new(r, "peers", kt_bench_peers_json(b->peers));
    json_object_set_new(r, "cases", json_array());
    return KT_GOOD;
}

/* "cold" where it was measured. */
static double us_of(const json_t *row) {
    const json_t *cold = json_object_get(row, "cold");
    return kt_json_number(json_is_object(cold) ? cold : json_object_get(row, "hot"), "us", 0);
}

static json_t *mean_of(const kt_bench *b, const kt_bench_case *first) {
    double sum = 0, floor = 0;
    size_t n = 0, i;
    json_t *row;
    json_array_foreach(json_object_get(b->report, "cases"), i, row) {
        if (strcmp(kt_json_text(row, "group", ""), first->group) != 0) continue;
        sum += log(us_of(row));
        floor += log(kt_json_number(json_object_get(row, "floor"), "us", 1));
        n++;
    }
    if (n == 0) return NULL;
    json_t *o = json_pack("{s:s, s:I, s:f, s:f}", "group", first->group, "cases", (json_int_t)n, "us",
                          exp(sum / (double)n), "floor_us", exp(floor / (double)n));
    if (first->best_public_us > 0) json_object_set_new(o, "best_public_us", json_real(first->best_public_us));
    return o;
}

void kt_bench_report_means(kt_bench *b) {
    json_t *means = json_array();
    for (size_t i = 0; i < b->cases.n; i++) {
        const kt_bench_case *c = &b->cases.item[i];
        if (i > 0 && strcmp(c->group, b->cases.item[i - 1].group) == 0) continue;
        json_t *mean = mean_of(b, c);
        if (mean) json_array_append_new(means, mean);
    }
    json_object_set_new(b->report, "geometric_means", means);
    json_object_set_new(b->report, "timer", json_string(timer_name(b))); /* CUPTI may have been given up */
}

int kt_bench_report_write(const kt_bench *b, const char *path) {
    kt_replacement r;
    KT_TRY(kt_replace_begin(&r, path));
    size_t how = JSON_INDENT(1) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(6);
    return kt_replace_end(&r, json_dumpf(b->report, r.file, how) == 0);
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

void kt_bench_print_head(const kt_bench *b) {
    const json_t *r = b->report;
    if (!b->gpu) {
        printf("device \"%s\", in place of %s  %s\n", kt_json_text(b->device_json, "kind", "?"),
               kt_json_text(b->device_json, "name", "?"), kt_json_text(r, "date", "?"));
        printf("times are the host's clock around calls: they say nothing about a GPU\n");
        return;
    }
    printf("%s  driver %s  %s\n", kt_json_text(b->device_json, "name", "?"), kt_gpu_driver(b->gpu),
           kt_json_text(r, "date", "?"));
    printf("times: %s; medians of %" PRId64 "; L2 written over with %s\n",
           kt_bench_cupti_path() ? "first kernel's start to last kernel's end, by CUPTI"
                                 : "CUDA events around the call (no CUPTI found)",
           b->iterations, kt_bytes_text((double)b->timer.flush_bytes));
    printf("floors: %.2f TB/s (a large copy, measured), %.0f TFLOP/s\n", b->bytes_per_s * 1e-12,
           b->tensor_flops * 1e-12);
}

static void time_cell(kt_table *t, const json_t *times) {
    if (json_is_object(times))
        kt_table_cell(t, "%.2f ±%.2f", kt_json_number(times, "us", 0), kt_json_number(times, "iqr_us", 0) / 2);
    else
        kt_table_cell(t, "-");
}

/* "-" where the row has no such number. */
static void number_cell(kt_table *t, const json_t *row, const char *key, double scale, int digits) {
    if (json_object_get(row, key))
        kt_table_cell(t, "%.*f", digits, kt_json_number(row, key, 0) * scale);
    else
        kt_table_cell(t, "-");
}

static const char *verdict_text(const json_t *row) {
    const json_t *v = json_object_get(row, "verified");
    if (!json_is_object(v)) return "not run";
    bool good = json_is_true(json_object_get(v, "pass")) && json_is_true(json_object_get(v, "same_bits_after_timing"));
    return good ? "good" : "WRONG";
}

/* "1.05x cublaslt": how long the peer takes beside us. */
static void peer_cell(kt_table *t, const json_t *row) {
    const char *name;
    json_t *peer;
    char text[128] = "";
    json_object_foreach(json_object_get(row, "peers"), name, peer) {
        size_t n = strlen(text);
        snprintf(text + n, sizeof text - n, "%s%s %.2f", n ? ", " : "", name, us_of(peer));
    }
    kt_table_cell(t, "%s", text);
}

/* Of an operation that says what its launches must move: what they took. */
static void print_steps(const json_t *row) {
    const json_t *steps = json_object_get(row, "steps");
    static const char *const head[] = {"kernel", ">us", ">floor us", ">of floor", ">TB/s"};
    size_t i, told = 0;
    json_t *step;
    json_array_foreach(steps, i, step) told += json_object_get(step, "floor_us") != NULL;
    if (told == 0) return;
    kt_table t = kt_table_begin(5, head);
    json_array_foreach(steps, i, step) {
        double us = kt_json_number(step, "us", 0), floor_us = kt_json_number(step, "floor_us", 0);
        kt_table_cell(&t, "%s", kt_json_text(step, "kernel", "?"));
        kt_table_cell(&t, "%.1f", us);
        if (floor_us > 0 && us > 0) {
            kt_table_cell(&t, "%.1f", floor_us);
            kt_table_cell(&t, "%.2f", us / floor_us);
            kt_table_cell(&t, "%.2f", 1e-6 * kt_json_number(step, "floor_bytes", 0) / us);
        } else {
            for (int empty = 0; empty < 3; empty++) kt_table_cell(&t, "-");
        }
    }
    printf("\n  %s, launch by launch\n", kt_json_text(row, "name", ""));
    kt_table_end(&t, 4);
}

void kt_bench_print_group(const kt_bench *b, const char *group) {
    static const char *const head[] = {"case",     ">cold us",  ">hot us",    ">floor us", ">of floor", ">TB/s",
                                       ">TFLOP/s", ">launches", ">workspace", "check",     "peers, us"};
    kt_table t = kt_table_begin(11, head);
    size_t i;
    json_t *row, *means = json_object_get(b->report, "geometric_means");
    json_array_foreach(json_object_get(b->report, "cases"), i, row) {
        if (strcmp(kt_json_text(row, "group", ""), group) != 0) continue;
        kt_table_cell(&t, "%s", kt_json_text(row, "name", ""));
        time_cell(&t, json_object_get(row, "cold"));
        time_cell(&t, json_object_get(row, "hot"));
        kt_table_cell(&t, "%.2f", kt_json_number(json_object_get(row, "floor"), "us", 0));
        number_cell(&t, row, "times_floor", 1, 2);
        number_cell(&t, row, "bytes_per_s", 1e-12, 2);
        number_cell(&t, row, "flops_per_s", 1e-12, 0);
        kt_table_cell(&t, "%d", (int)kt_json_number(row, "launches", 0));
        kt_table_cell(&t, "%s", kt_bytes_text(kt_json_number(row, "workspace_bytes", 0)));
        kt_table_cell(&t, "%s", verdict_text(row));
        peer_cell(&t, row);
    }
    printf("\n%s\n", group);
    kt_table_end(&t, 2);
    json_array_foreach(json_object_get(b->report, "cases"), i, row) {
        if (strcmp(kt_json_text(row, "group", ""), group) == 0) print_steps(row);
    }
    kt_bench_print_parts(b, group);
    json_array_foreach(means, i, row) {
        if (strcmp(kt_json_text(row, "group", ""), group) != 0) continue;
        printf("  geometric mean of %d: %.2f us; floors %.2f us", (int)kt_json_number(row, "cases", 0),
               kt_json_number(row, "us", 0), kt_json_number(row, "floor_us", 0));
        double public_us = kt_json_number(row, "best_public_us", 0);
        if (public_us > 0) printf("; best public result, on an NVIDIA B200: %.2f us", public_us);
        printf("\n");
    }
}
