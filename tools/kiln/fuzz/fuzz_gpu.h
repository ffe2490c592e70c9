/* The float64 oracle's large products on the GPU: a plain kernel, compiled from CUDA C by NVRTC when a session begins.
 */
#ifndef KILN_TOOL_FUZZ_GPU_H
#define KILN_TOOL_FUZZ_GPU_H

#include "abi/library.h"

typedef struct kt_fuzz_gpu kt_fuzz_gpu;

/** Compile and load the kernel on the context's device `id`, compare it with the host, and have the references of this
 *  thread multiply with it. KT_ENVIRONMENT and a sentence where that cannot be; KT_CHECK where its results are wrong.
 */
int kt_fuzz_gpu_open(kt_library *lib, void *ctx, int id, kt_fuzz_gpu **out);
void kt_fuzz_gpu_close(kt_fuzz_gpu *gpu); /* NULL is fine */
/** Products that were made. */
uint64_t kt_fuzz_gpu_products(const kt_fuzz_gpu *gpu);

#endif
