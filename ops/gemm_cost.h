/* ops/gemm_cost: how the TMA + wgmma kernel may make a product (gemm_candidates.c), and what that costs (gemm_cost.c).
 *
 * A candidate is a tile, a way to share it, and which operand is wgmma's A ("swap": the weights, so that a ragged
 * number of tokens is padded to a multiple of 8 alone). Candidates are ranked by an analytic cost in clocks of one
 * multiprocessor, from what an H200 was measured to do (docs/gemm.md): 4096 FLOP a clock, what the L2 and the memory
 * deliver, whole waves of tiles, a first tile's latency and an epilogue. No candidate changes a bit of the result:
 * whether a product's depth is cut is decided before, by kn_gemm_depth_parts. */
#ifndef KN_OPS_GEMM_COST_H
#define KN_OPS_GEMM_COST_H

#include "ops/gemm_internal.h"

enum { KN_GEMM_SM90_K_BLOCK = 64, KN_GEMM_SM90_MAX_PRODUCTS = 4, KN_GEMM_MAX_CANDIDATES = 512 };

typedef struct kn_gemm_candidate {
    bool swap, coop;
    int mb, bn;
    bool lean;     /* no producer: the consumers load, and have its registers */
    int parts;     /* CTAs that share a tile's depth: 1, 2, 4 */
    bool boxes;    /* TMA moves the tensors of the epilogue, through shared memory */
    bool paired;   /* two CTAs whose tiles lie below each other load the columns of B for both */
    bool resident; /* the depth is short: all of B's k blocks rest in shared memory while tiles pass */
} kn_gemm_candidate;

/** An H200, by which is decided what must not differ from machine to machine. */
extern const kn_device_facts kn_gemm_reference_device;

static inline int64_t kn_gemm_k_blocks(const kn_gemm *g) {
    int64_t n = 0;
    for (int s = 0; s < g->n_segments; s++) n += kn_ceil_div(g->segment[s].k, KN_GEMM_SM90_K_BLOCK);
    return n;
}
static inline int kn_gemm_sm90_tile_rows(const kn_gemm_candidate *c) {
    return 64 * c->mb * (c->coop ? 2 : 1);
}
/** Bytes of a k block in shared memory. */
static inline int64_t kn_gemm_sm90_stage_bytes(const kn_gemm_candidate *c) {
    return (int64_t)(kn_gemm_sm90_tile_rows(c) + (c->resident ? 0 : c->bn)) * KN_GEMM_SM90_K_BLOCK * 2;
}
/** Rows of the kernel's A that a tile loads: where one tile holds them all, no more than there are, for those outside
 * of a matrix take longer than others. */
int kn_gemm_sm90_rows_loaded(const kn_gemm_candidate *c, const kn_gemm *g);
/** Whether TMA may move what the epilogue reads and stores: 16-bit rows, in boxes of 64 columns. */
bool kn_gemm_sm90_takes_boxes(const kn_gemm_candidate *c, const kn_gemm *g);
/** Tiles of a walk below each other, where B rests: as many as share the work well; no walk has a single tile. 0:
 * impossible. */
int kn_gemm_sm90_walk(const kn_gemm_candidate *c, const kn_gemm *const *g, int n, double sms);
/** Walks of so many tiles in all products. */
int64_t kn_gemm_sm90_walks(const kn_gemm_candidate *c, const kn_gemm *const *g, int n, int walk);
/** Rows of tiles that are walked together, column by column; of a generic kernel, whatever the number of tokens. */
int kn_gemm_sm90_raster(const kn_gemm_candidate *c, const kn_gemm *g, bool generic);
/** How many of its boxes a warp that stores has under way. */
int kn_gemm_sm90_slots(const kn_gemm_candidate *c, const kn_gemm *g, const kn_device_facts *facts);
/** Tiles whose depth so many CTAs share which are made at one time. */
int64_t kn_gemm_sm90_at_once(int parts, int64_t sms);
/** k blocks in flight. */
int kn_gemm_sm90_stages(const kn_gemm_candidate *c, const kn_gemm *g, const kn_device_facts *facts);
int64_t kn_gemm_sm90_tiles(const kn_gemm_candidate *c, const kn_gemm *g);

/* Clocks of one multiprocessor: what its tensor cores and the L2 need for all its tiles (the longer of both counts,
 * tile by tile), the memory for all bytes, and what epilogues add that nothing hides. */
typedef struct kn_gemm_cost {
    double tiles, waves;
    double tensor, l2, hbm, epilogues;
    double clocks; /* until the last tile is stored */
} kn_gemm_cost;
kn_gemm_cost kn_gemm_sm90_cost(const kn_gemm_candidate *c, const kn_gemm *const *g, int n, double sms);

typedef struct kn_gemm_ranked {
    kn_gemm_candidate c;
    kn_gemm_cost cost;
    const char *refused; /* why the kernel cannot make the products this way; NULL: it can */
} kn_gemm_ranked;
/** All candidates for these products in one launch, in no order, no two alike; how many. */
int kn_gemm_sm90_candidates(const kn_gemm *const *g, int n, const kn_device_facts *facts,
                            kn_gemm_ranked out[KN_GEMM_MAX_CANDIDATES]);
/** The cheapest one. */
kn_gemm_candidate kn_gemm_sm90_choose(const kn_gemm *const *g, int n, const kn_device_facts *facts);
/** That of a generic kernel: the cheapest one for the number of tokens that such kernels are planned for. */
kn_gemm_candidate kn_gemm_sm90_choose_generic(const kn_gemm *const *g, int n, const kn_device_facts *facts);

#endif
