/* What a user composes of cuBLASLt's products and kernels of his own (bench/peers/glue.cu, compiled by NVRTC): the
 * whole of load_balance, router, expert_mlp and moe_layer, step after step. */
#ifndef KILN_TOOL_BENCH_COMPOSED_H
#define KILN_TOOL_BENCH_COMPOSED_H

#include "bench/bench_cublaslt.h"

typedef struct kt_bench_composed kt_bench_composed;

/** `cublaslt` must outlive it. KT_ENVIRONMENT without NVRTC. */
int kt_bench_composed_open(kt_bench_memory *memory, kt_bench_cublaslt *cublaslt, kt_bench_composed **out);
void kt_bench_composed_close(kt_bench_composed *c); /* NULL is fine */

/** Make ready what there is of the case's operation, in bf16, and add it as "composed" to `subjects`. What was made
 * lives until the next call or the close. Kiln's tensors are read, never written. */
int kt_bench_composed_add(kt_bench_composed *c, const kt_tensors *tensors, uint32_t transposed, kt_bench_timer *timer,
                          kt_bench_subject *subjects, size_t *n);

/** bench/peers/glue.cu */
extern const unsigned char kt_bench_glue[];
extern const size_t kt_bench_glue_bytes;

#endif
