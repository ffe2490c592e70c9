/* `kiln tune`, in files: cmd_tune.c (command line), tune_cases.c (what is tuned: sizes, a case file, a recording),
 * tune_case.c (one call: its products' candidates, measured in turns), tune_file.c (the file that the library reads).
 *
 * The library explains how it would make each product and which other ways there are (kiln_plan_json). Every candidate
 * gets a context of its own, which follows a tuning file that names it; the contexts' calls are timed in turns. */
#ifndef KILN_TOOL_TUNE_H
#define KILN_TOOL_TUNE_H

#include "bench/bench.h"

enum { KT_TUNE_MAX = 64 }; /* candidates of a product */

typedef struct kt_tune_candidate {
    char *name;
    double planned_us, us; /* by the analytic cost, and measured: the whole call's */
} kt_tune_candidate;

typedef struct kt_tune_product {
    char *key, *product, *sizes, *call;
    kt_tune_candidate candidate[KT_TUNE_MAX];
    size_t n, planned, best; /* planned: the analytic choice */
} kt_tune_product;

typedef struct kt_tune {
    kt_bench bench; /* machine, memory, timer; its context follows no file */
    const char *device;
    int64_t top; /* candidates of a product that are measured: the cheapest by the analytic cost */
    /* Fills `cold` of all subjects: kt_bench_time, or what a test says. */
    int (*measure)(void *user, kt_bench_subject *subjects, size_t n);
    void *measure_user;
    kt_tune_product *product;
    size_t n;
    char scratch[64]; /* the file that names the candidate of a context; "" before the first */
} kt_tune;

/** Sizes of one call on the command line: OP axis=value..., with types, options and transposed matrices. */
typedef struct kt_tune_call {
    const kt_list *operands, *dtypes, *settings, *transposed;
} kt_tune_call;
int kt_tune_cases_of_call(const kt_tune_call *call, kt_bench_cases *out);
/** The calls of a recording (KILN_RECORD): one JSON line each. */
int kt_tune_cases_of_record(const char *path, kt_bench_cases *out);

/** Open device, memory and timer. */
int kt_tune_open(kt_tune *t);
/** Measure the candidates of all products of one call that were not measured yet. */
int kt_tune_case(kt_tune *t, const kt_bench_case *c);
void kt_tune_close(kt_tune *t);

/** The analytic choice unless another one is faster by more than this. */
#define KT_TUNE_MARGIN 0.01
size_t kt_tune_best(const kt_tune_product *p);

/** Write the tuning file: for every product the best candidate. */
int kt_tune_write(const kt_tune *t, const char *path);
/** A row a product, and how far the analytic choices are from the best. */
void kt_tune_print(const kt_tune *t);
json_t *kt_tune_json(const kt_tune *t);

#endif
