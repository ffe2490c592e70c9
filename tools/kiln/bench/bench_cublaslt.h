/* Matrix products by cuBLASLt, opened at run time. What we declare of it is compared with its header by a test. */
#ifndef KILN_TOOL_BENCH_CUBLASLT_H
#define KILN_TOOL_BENCH_CUBLASLT_H

#include "bench/bench_time.h"

typedef struct kt_bench_cublaslt kt_bench_cublaslt;

/* d[m,n] = a[m,k] * b[k,n] (+ d), all row-major unless a or b is stored the other way round. */
typedef struct kt_bench_product {
    int64_t m, n, k;
    bool a_transposed, b_transposed; /* its first axis is contiguous */
    bool add;                        /* to what d holds */
    const kt_dtype *dtype;           /* of all three: bf16 or f16 */
    const void *a, *b;
    void *d;
} kt_bench_product;

typedef struct kt_bench_cublaslt_plan kt_bench_cublaslt_plan;

int kt_bench_cublaslt_open(kt_bench_memory *memory, kt_bench_cublaslt **out);
void kt_bench_cublaslt_close(kt_bench_cublaslt *lt); /* NULL is fine */
int64_t kt_bench_cublaslt_version(const kt_bench_cublaslt *lt);

/** Ask for the heuristics' first 8 algorithms, time each with `timer`, keep the fastest. */
int kt_bench_cublaslt_plan_make(kt_bench_cublaslt *lt, const kt_bench_product *product, kt_bench_timer *timer,
                                kt_bench_cublaslt_plan **out);
int kt_bench_cublaslt_run(void *plan, void *stream);
void kt_bench_cublaslt_plan_free(kt_bench_cublaslt_plan *plan); /* NULL is fine */

/* Our declarations of cublasLt.h: its types as far as a caller's machine code sees them, constants, structures. */
typedef int kt_lt_status, kt_lt_compute, kt_lt_type, kt_lt_desc_attribute, kt_lt_preference_attribute;
typedef void *kt_lt_handle, *kt_lt_desc, *kt_lt_layout, *kt_lt_preference, *kt_lt_stream;

enum {
    KT_LT_R_32F = 0,
    KT_LT_R_16F = 2,
    KT_LT_R_16BF = 14,
    KT_LT_COMPUTE_32F = 68,
    KT_LT_DESC_TRANSA = 3,
    KT_LT_DESC_TRANSB = 4,
    KT_LT_PREF_MAX_WORKSPACE_BYTES = 1,
    KT_LT_OP_T = 1
};

typedef struct kt_lt_algo {
    uint64_t data[8];
} kt_lt_algo;

typedef struct kt_lt_heuristic {
    kt_lt_algo algo;
    size_t workspace_bytes;
    int state;
    float waves;
    int reserved[4];
} kt_lt_heuristic;

#endif
