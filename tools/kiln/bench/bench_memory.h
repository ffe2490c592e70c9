/* Device memory of `kiln bench`: one buffer an argument, kept and refilled from case to case only where it must be. */
#ifndef KILN_TOOL_BENCH_MEMORY_H
#define KILN_TOOL_BENCH_MEMORY_H

#include "bench/bench_pattern.h"
#include "gpu/tool_gpu.h"

typedef struct kt_bench_buffer {
    void *device;
    uint64_t capacity, filled; /* bytes; the first `filled` hold the pattern `key` */
    char *key;
} kt_bench_buffer;

typedef struct kt_bench_memory {
    kt_library *lib;
    void *ctx;
    kt_gpu *gpu; /* NULL: device memory is host memory */
    int32_t device_type, device_id;
    const kt_op *op;
    kt_bench_buffer arg[KT_MAX_ARGS];
    kt_bench_buffer workspace, flush;
    int64_t strides[KT_MAX_ARGS][2]; /* of transposed matrices */
} kt_bench_memory;

int kt_bench_memory_begin(kt_bench_memory *m, kt_library *lib, void *ctx, kt_gpu *gpu);
void kt_bench_memory_free(kt_bench_memory *m);

/** Room for `bytes` in b, aligned to 256; what it held is lost when it grows. */
int kt_bench_memory_room(kt_bench_memory *m, kt_bench_buffer *b, uint64_t bytes);
/** Give b's memory back. */
void kt_bench_memory_drop(kt_bench_memory *m, kt_bench_buffer *b);
/** Bind all of the case's tensors to device memory; inputs hold their patterns. Arguments in `transposed` are views
 * whose first axis is contiguous. */
int kt_bench_memory_bind(kt_bench_memory *m, kt_tensors *tensors, const kt_bench_patterns *patterns,
                         uint32_t transposed);
/** Fill the first `bytes` of b with the pattern. */
int kt_bench_memory_fill(kt_bench_memory *m, kt_bench_buffer *b, const kt_bench_pattern *pattern, uint64_t bytes);
/** What all bytes of an output are before a call: NaN in every floating type, and where it is added to a number that is
 *  small in most of them. */
enum { KT_BENCH_POISON = 0xFF, KT_BENCH_ADDEND = 0x3C };
/** Fill all outputs with these; options: of the call. */
int kt_bench_memory_poison(kt_bench_memory *m, const kt_tensors *tensors, const void *options);

/** What is in an output: elements (pairs of them in 16-bit types) that are not finite, and a digest of all bits. */
int kt_bench_memory_scan(kt_bench_memory *m, const kt_tensors *tensors, int i, uint64_t *bad, uint64_t *digest);

#endif
