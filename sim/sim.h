/* sim: runs the PTX text that Kiln generates, all of it, on the host, and checks it while it runs. Knows only base.
 *
 * One kn_sim_module is one parsed kernel; it is immutable and may be launched from several threads at once. A launch is
 * synchronous and deterministic: same module, memory, parameters and seed give the same run. */
#ifndef KN_SIM_SIM_H
#define KN_SIM_SIM_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct kn_sim_module kn_sim_module;

/* Memory that a launch may touch; strides in elements; the gaps of a strided view are out of bounds. */
typedef struct kn_sim_extent {
    const char *name;
    void *data;
    uint32_t item, ndim;
    int64_t shape[5], stride[5];
    bool writable;
    bool poison; /* uninitialised until the launch (or an earlier one of the same program) writes it */
} kn_sim_extent;

/* Writes "gemm_sm90.ptxt:141 [ks=3]" for a 1-based PTX line. */
typedef void kn_sim_origin(void *user, uint32_t ptx_line, char *out, size_t cap);

/* What the launches of one program have written to poisoned memory, so that a later launch may read it. Not
 * thread-safe: a program's launches follow each other. */
typedef struct kn_sim_memory kn_sim_memory;
kn_status kn_sim_memory_create(kn_sim_memory **out);
void kn_sim_memory_free(kn_sim_memory *memory);

typedef struct kn_sim_launch {
    uint32_t grid[3];
    uint32_t block[3];
    uint32_t cluster[3]; /* 1,1,1 without */
    uint32_t smem_dynamic;
    const void *params;
    size_t params_len;
    const kn_sim_extent *extents;
    uint32_t n_extents;
    uint64_t seed;         /* schedule of warps and of async completions */
    uint64_t budget;       /* warp instructions in all; 0 = no bound */
    int threads;           /* host threads; CTAs (clusters) run in parallel */
    kn_sim_memory *memory; /* of the program this launch belongs to; NULL: a program of one launch */
    uint32_t multiprocessors, smem_per_block;
    kn_sim_origin *origin; /* may be NULL: "PTX line N" */
    void *origin_user;
} kn_sim_launch;

typedef struct kn_sim_stats {
    uint64_t warp_instructions, bytes_loaded, bytes_stored, mma_flops;
} kn_sim_stats;

/** Parse. KN_E_SIM with the PTX line (or its origin) for anything the simulator does not know, naming it. */
kn_status kn_sim_parse(const char *ptx, size_t len, kn_sim_origin *origin, void *origin_user, kn_sim_module **out);
void kn_sim_free(kn_sim_module *m);

/** Run entry `entry` (NULL: the only one). KN_E_SIM with template line, CTA, warp, lane and a sentence on a fault. */
kn_status kn_sim_run(const kn_sim_module *m, const char *entry, const kn_sim_launch *launch, kn_sim_stats *stats);

/** The 128-byte tensor map that the simulator's TMA unit decodes (opaque; same fields as kn_tensor_map). */
typedef struct kn_sim_tensor_map {
    uint8_t dtype, rank, swizzle, l2_promotion;
    void *base;
    uint64_t dim[5], stride[4];
    uint32_t box[5];
} kn_sim_tensor_map;
kn_status kn_sim_encode_tensor_map(const kn_sim_tensor_map *map, uint8_t out[128]);

#endif
