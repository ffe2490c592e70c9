/* The CUDA driver, as far as `kiln bench` needs it beyond the library: copies within the device, graphs, two kernels
 * of its own, and those of peers. Opened at run time; declarations are our own. */
#ifndef KILN_TOOL_GPU_H
#define KILN_TOOL_GPU_H

#include "common/tool.h"

typedef struct kt_gpu kt_gpu;
typedef struct kt_gpu_graph kt_gpu_graph;

/** Retain the primary context of `device`, make it current, load the kernels. */
int kt_gpu_open(int device, kt_gpu **out);
void kt_gpu_close(kt_gpu *gpu); /* NULL is fine */
/** "580.159.03": the version of the installed driver; "" if nothing says it. */
const char *kt_gpu_driver(const kt_gpu *gpu);

/** Copy within the device, asynchronously. */
int kt_gpu_copy(kt_gpu *gpu, void *to, const void *from, uint64_t bytes, void *stream);
/** A kernel that does nothing for `ns` nanoseconds: it stands before every call that is timed. Its name is
 *  kt_bench_mark_name. */
int kt_gpu_mark(kt_gpu *gpu, void *stream, uint64_t ns);
extern const char kt_bench_mark_name[];

/** Kernels of PTX text. */
int kt_gpu_load(kt_gpu *gpu, const char *ptx, void **module);
void kt_gpu_unload(kt_gpu *gpu, void *module); /* NULL is fine */
int kt_gpu_function(kt_gpu *gpu, void *module, const char *name, void **function);
int kt_gpu_launch(kt_gpu *gpu, void *function, uint32_t blocks, uint32_t threads, void **params, void *stream);

/** What is in `bytes` (a multiple of 4) of device memory: *bad = 32-bit words w with (w & high) == high or
 *  (w & low) == low; *digest = a sum over all words that depends on their places. Waits. */
int kt_gpu_scan(kt_gpu *gpu, const void *p, uint64_t bytes, uint32_t high, uint32_t low, uint64_t *bad,
                uint64_t *digest);
/** The same for host memory. */
void kt_gpu_scan_host(const void *p, uint64_t bytes, uint32_t high, uint32_t low, uint64_t *bad, uint64_t *digest);

/** Capture what `enqueue` puts on `stream`. */
int kt_gpu_graph_capture(kt_gpu *gpu, void *stream, int (*enqueue)(void *user, void *stream), void *user,
                         kt_gpu_graph **out);
int kt_gpu_graph_launch(kt_gpu *gpu, kt_gpu_graph *graph, void *stream);
void kt_gpu_graph_free(kt_gpu *gpu, kt_gpu_graph *graph);

/** The PTX of the two kernels. */
extern const char kt_bench_ptx[];

#endif
