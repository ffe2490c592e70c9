/* What benchmark tensors hold. An argument's elements repeat with a period: element n is block[n % period]. So a tensor
 * of any size is made from a block of a few megabytes on the host, and the host knows every element without a copy of
 * it. A period is a prime number of 16-byte units (or of rows, where rows belong together), so that no two rows that
 * meet in a product are the same. */
#ifndef KILN_TOOL_BENCH_PATTERN_H
#define KILN_TOOL_BENCH_PATTERN_H

#include "bench/bench_cases.h"

typedef struct kt_bench_pattern {
    char *key; /* equal keys: equal contents */
    const kt_dtype *dtype;
    uint64_t period; /* elements */
    void *block;
} kt_bench_pattern;

/* The patterns of one case's inputs, and routing decisions that several of them share. Kept from case to case: what
 * does not change is not made again. */
typedef struct kt_bench_patterns {
    const kt_op *op;
    kt_bench_pattern arg[KT_MAX_ARGS];
    struct kt_bench_routes *routes;
} kt_bench_patterns;

/** Make the patterns of all inputs in `tensors`. */
int kt_bench_patterns_make(kt_bench_patterns *p, const kt_tensors *tensors);
void kt_bench_patterns_free(kt_bench_patterns *p);

/** Store `value` as element i of `data`, rounded to nearest even; the inverse of kt_element. */
void kt_bench_store(const kt_dtype *dtype, void *data, uint64_t i, double value);

#endif
