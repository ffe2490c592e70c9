/* The cases of `kiln bench`: a file of groups, each an operation with the sizes that all of its cases share. */
#ifndef KILN_TOOL_BENCH_CASES_H
#define KILN_TOOL_BENCH_CASES_H

#include "tensors/tensors.h"

/* One call to measure. Strings and JSON belong to the file. */
typedef struct kt_bench_case {
    const kt_op *op;
    const char *group;      /* what results are gathered under: the operation's name unless the file says another */
    char *name;             /* "B=256 T=64": what differs between the group's cases */
    int64_t size[26];       /* by axis letter; -1 = not given */
    const json_t *settings; /* options of the operation, or NULL */
    const json_t *row, *shared;
    double best_public_us; /* of the whole group: geometric mean of the best published result; 0 = none */
} kt_bench_case;

typedef struct kt_bench_cases {
    json_t *file;
    kt_bench_case *item;
    size_t n;
} kt_bench_cases;

/* The built-in copy of bench/cases/seeds.json. */
extern const unsigned char kt_bench_seeds[];
extern const size_t kt_bench_seeds_bytes;

/** Read a case file (NULL: the built-in copy of bench/cases/seeds.json); `op` keeps one operation or group alone (NULL:
 *  all). */
int kt_bench_cases_read(const char *path, const char *op, kt_bench_cases *out);
/** The same from a file that was read already: takes `file` over; `path` is what errors call it. */
int kt_bench_cases_take(json_t *file, const char *path, const char *op, kt_bench_cases *out);
void kt_bench_cases_free(kt_bench_cases *cases);

/** FLOP/s that the file says a device of this name reaches in a large product, or `dflt`. */
double kt_bench_tensor_flops(const kt_bench_cases *cases, const char *device, double dflt);

/** Is argument i part of the case? Inputs: required ones and those in "with"; outputs: all but those in "without". */
bool kt_bench_has_arg(const kt_bench_case *c, int i);
/** The options of the case, as a struct that the caller frees. */
int kt_bench_case_options(const kt_bench_case *c, void **options);
/** Describe the case's arguments in `tensors` (sizes and types alone). Arguments that the file lists as "transposed"
 * are views whose first axis is contiguous: *transposed has their bits. */
int kt_bench_case_tensors(const kt_bench_case *c, const void *options, kt_tensors *tensors, uint32_t *transposed);

#endif
