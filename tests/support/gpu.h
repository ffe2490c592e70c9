/* For tests on a real GPU: the driver's functions that Kiln itself has no use for, and problems whose tensors lie on
 * the device. */
#ifndef KN_TESTS_SUPPORT_GPU_H
#define KN_TESTS_SUPPORT_GPU_H

#include "ops/registry.h"
#include "support/problem_gen.h"

#include <stdbool.h>

typedef struct kn_gpu {
    int (*begin_capture)(void *stream, int mode);
    int (*end_capture)(void *stream, void **graph);
    int (*instantiate)(void **exec, void *graph, unsigned long long flags);
    int (*graph_launch)(void *exec, void *stream);
    int (*mem_info)(size_t *free_bytes, size_t *total);
} kn_gpu;

/** Open the driver and make device 0's context current. False, and a line that says so, where there is no GPU. To be
 * called in each test's own process (a checked fixture): a driver does not survive a fork. */
bool kn_gpu_open(kn_gpu *gpu);

/* A problem with all of its tensors on the device, and a workspace. */
typedef struct kn_placed {
    kiln_context *ctx;
    kn_gen *g;
    const kn_op *op;
    DLTensor there[KN_MAX_TENSORS];
    const DLTensor *args[KN_MAX_TENSORS];
    void *memory[KN_MAX_TENSORS]; /* the tensors' memory, with what surrounds their elements */
    void *workspace;              /* NULL: the plan needs none */
} kn_placed;

void kn_place(kn_placed *p, kiln_context *ctx, const kn_gen_config *c);
void kn_take_away(kn_placed *p);
/** Enqueue the call. */
kn_status kn_placed_call(kn_placed *p, void *stream);
/** What was in the outputs and the workspace before has no part in the result: fill both with `byte`, and wait. What
 * surrounds the outputs' elements stays as the checks want to find it. */
void kn_placed_poison(kn_placed *p, int byte);
/** Copy the memory of argument i to `to`, or to the problem's own when that is NULL. */
void kn_placed_fetch(kn_placed *p, int i, void *to);
/** The outputs' memory is, to the bit, what the problem's own holds; `first`: let it hold it. `what`: for the message.
 */
void kn_placed_same(kn_placed *p, bool first, const char *what, int repeat);

#endif
