/* kn_sim_hardware, inside: running texts of PTX on GPU 0. */
#ifndef KN_TESTS_SIM_HARDWARE_H
#define KN_TESTS_SIM_HARDWARE_H

#include "base/buf.h"
#include "jit/backend.h"

enum { HW_BUFFERS = 4 };

typedef struct hw {
    kn_backend *b;
    const char *in, *out; /* folders of the tables as they are, and as they are seen here */
    char title[512];      /* "# NVIDIA H200, driver .. (CUDA ..), 2026-11-29, by kn_sim_hardware.\n" */
} hw;

/* One launch: the parameters are maps first (three of them or none), then pointers to the buffers, then words. */
typedef struct hw_launch {
    const char *entry;
    const char *ptx;
    size_t ptx_len;
    uint32_t grid, threads, cluster, smem; /* cluster 0: 1 */
    struct {
        void *host; /* copied there before, back after */
        size_t bytes;
    } buffer[HW_BUFFERS];     /* ends at the first without a host pointer */
    const kn_tensor_map *map; /* [3] over the buffers, `base` left out; then no pointers are passed */
    const uint32_t *words;    /* [3], with the maps alone */
} hw_launch;

/** Load, run, unload; or in steps, to run one kernel often. */
kn_status hw_run(hw *h, const hw_launch *l);
kn_status hw_load(hw *h, const hw_launch *l, kn_module **out);
kn_status hw_go(hw *h, const hw_launch *l, kn_module *m);
void hw_unload(hw *h, kn_module *m);
void hw_path(char out[1024], const char *folder, const char *name);
kn_status hw_write(const hw *h, const char *name, kn_buf *text);

/* Each takes one file of h->in and writes it anew to h->out. */
kn_status hw_scalar(hw *h); /* scalar_h200.txt */
kn_status hw_gemm(hw *h);   /* h200_gemm.txt */
kn_status hw_wgmma(hw *h);  /* h200_wgmma.txt */
kn_status hw_mma(hw *h);    /* h200_mma.bin */
kn_status hw_reduce(hw *h); /* h200_reduce.bin */
kn_status hw_binary(hw *h); /* h200_binary.txt: where the two files before are from; behind them */

#endif
