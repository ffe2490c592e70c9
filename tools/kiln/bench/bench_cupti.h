/* Kernel times as the GPU records them, through CUPTI's activity API. The library is opened at run time; what we
 * declare of it is compared with its headers by a test. */
#ifndef KILN_TOOL_BENCH_CUPTI_H
#define KILN_TOOL_BENCH_CUPTI_H

#include "common/tool.h"

/* One kernel that ran. */
typedef struct kt_bench_kernel {
    uint64_t start_ns, end_ns;
    bool mark; /* kt_gpu_mark's */
} kt_bench_kernel;

/** Open CUPTI; KT_ENVIRONMENT and a sentence where there is none. Once a process. */
int kt_bench_cupti_open(void);
void kt_bench_cupti_close(void);
const char *kt_bench_cupti_path(void); /* NULL: not open */

/** Record kernels from now on. */
int kt_bench_cupti_start(void);
/** Stop, and hand out what was recorded, in the order of the starts; free *kernels. The device must be idle. */
int kt_bench_cupti_stop(kt_bench_kernel **kernels, size_t *n);

/* The parts of CUpti_ActivityKernel4 and its successors that are read: the layout has not changed since CUDA 9. */
enum {
    KT_CUPTI_KIND_CONCURRENT_KERNEL = 10,
    KT_CUPTI_KERNEL_START = 16,
    KT_CUPTI_KERNEL_END = 24,
    KT_CUPTI_KERNEL_NAME = 104,
    KT_CUPTI_FLUSH_FORCED = 1
};

#endif
