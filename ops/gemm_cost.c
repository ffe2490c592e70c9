/* ops/gemm_cost: candidates of the TMA + wgmma kernel and what they cost: see gemm_cost.h. */
#include "ops/gemm_cost.h"

#include <string.h>

enum {
    FIXED_BYTES = 1024,       /* mbarriers, alignment */
    PATCHES_BYTES = 8 * 5120, /* of epilogues that pass through shared memory */
    MAX_STAGES = 12
};

/* What the cost is made of, in clocks of a multiprocessor at 1.7 GHz. docs/gemm.md says how well it ranks what was
 * measured. */
static const double FIRST_TILE = 3000;
static const double EPILOGUE = 300, EPILOGUE_128X128 = 1000; /* of any tile, and in proportion to its size */
static const double COOP = 1.03;                             /* consumers that share a tile wait for each other */
static const double L2_BYTES = 62;        /* a clock, of one multiprocessor, neighbours reading the same tiles */
static const double HBM_BYTES = 2300;     /* a clock, of the device */
static const double OUTSIDE_ROW = 3.8;    /* a row of a K-major box that lies outside of its matrix */
static const double REREAD = 0.4;         /* of a large operand, for each further tile that shares it, up to three */
static const double LARGE_OPERAND = 32e6; /* bytes that the L2 does not keep */

/* Beside these: tiles whose bn divides the tokens with the least rest. No tile needs more than 128 accumulators a
 * thread: nvJitLink assembles relocatable code, in which setmaxnreg is ignored and a thread has 168 registers. */
static const struct {
    bool coop;
    int mb, bn;
} shapes[] = {{false, 2, 128}, {false, 1, 256}, {false, 2, 64}, {false, 1, 128}, {false, 1, 64},
              {true, 1, 256},  {true, 1, 192},  {true, 1, 128}, {false, 1, 32},  {false, 2, 32}};
enum { MAX_CANDIDATES = 256, MAX_PARTS = 64 };

static int64_t k_blocks(const kn_gemm *g) {
    int64_t n = 0;
    for (int s = 0; s < g->n_segments; s++) n += kn_ceil_div(g->segment[s].k, KN_GEMM_SM90_K_BLOCK);
    return n;
}

static int64_t stage_bytes(const kn_gemm_candidate *c) {
    return (int64_t)(kn_gemm_sm90_tile_rows(c) + c->bn) * KN_GEMM_SM90_K_BLOCK * 2;
}

int kn_gemm_sm90_stages(const kn_gemm_candidate *c, const kn_gemm *g, const kn_device_facts *facts) {
    int64_t fixed = FIXED_BYTES + (strcmp(g->epilogue, "store") == 0 ? 0 : PATCHES_BYTES);
    int64_t n = ((int64_t)facts->smem_per_block - fixed) / stage_bytes(c);
    return n > MAX_STAGES ? MAX_STAGES : (int)n;
}

static bool is_legal(const kn_gemm_candidate *c, const kn_gemm *const *g, int n, const kn_device_facts *facts) {
    const kn_gemm_operand *columns = c->swap ? &g[0]->segment[0].a : &g[0]->segment[0].b;
    if (!columns->depth_contiguous && c->bn % 64 != 0) return false;
    if (c->swap && n > 1) return false;
    int most = g[0]->most_accumulators[c->swap];
    if (most && c->mb * c->bn / 2 > most) return false;
    return kn_gemm_sm90_stages(c, g[0], facts) >= 3;
}

int64_t kn_gemm_sm90_tiles(const kn_gemm_candidate *c, const kn_gemm *g) {
    int64_t m = c->swap ? g->n : g->m, n = c->swap ? g->m : g->n;
    return kn_ceil_div(m, kn_gemm_sm90_tile_rows(c)) * kn_ceil_div(n, c->bn);
}

/* Bytes of an operand that come from memory: a large one is not wholly found in the L2 by all tiles that share it. */
static double operand_bytes(const kn_gemm *g, int64_t extent, int64_t sharing_tiles) {
    double k = (double)(k_blocks(g) * KN_GEMM_SM90_K_BLOCK), bytes = 2 * k * (double)extent;
    if (bytes < LARGE_OPERAND) return bytes;
    return bytes * (1 + REREAD * (double)(sharing_tiles > 4 ? 3 : sharing_tiles - 1));
}

/* Bytes that an element of the output moves: other epilogues than "store" read two tensors and write two or three. */
static double output_bytes(const kn_gemm *g) {
    if (strcmp(g->epilogue, "store") != 0) return strcmp(g->epilogue, "scatter_rows") == 0 ? 4 : 8;
    return kn_dtype_size(g->d.dtype) * (g->accumulate ? 2.0 : 1.0);
}

/* Clocks a k block takes in the tiles that set the pace: those over the edge of a K-major operand, in short launches.
 */
static double block_clocks(const kn_gemm_candidate *c, const kn_gemm *g, double waves) {
    double bm = kn_gemm_sm90_tile_rows(c), bn = c->bn;
    double tensor = bm * bn / 32 * (c->coop ? COOP : 1), feed = (bm + bn) * 2 * (double)KN_GEMM_SM90_K_BLOCK / L2_BYTES;
    double blk = tensor > feed ? tensor : feed, worst = blk;
    const kn_gemm_operand *operand[2] = {&g->segment[0].a, &g->segment[0].b};
    int64_t extent[2] = {g->m, g->n},
            tile[2] = {c->swap ? c->bn : kn_gemm_sm90_tile_rows(c), c->swap ? kn_gemm_sm90_tile_rows(c) : c->bn};
    for (int i = 0; i < 2; i++) {
        int64_t tiles = kn_ceil_div(extent[i], tile[i]);
        double outside = (double)(tiles * tile[i] - extent[i]);
        double edge = feed + outside * (OUTSIDE_ROW - 2 * KN_GEMM_SM90_K_BLOCK / L2_BYTES);
        if (!operand[i]->depth_contiguous || edge <= blk) continue;
        edge = waves <= 2 ? edge : blk + (edge - blk) / (double)tiles;
        if (edge > worst) worst = edge;
    }
    return worst;
}

/* Clocks until the last tile is stored. */
static double cost_of(const kn_gemm_candidate *c, const kn_gemm *const *g, int n, double sms) {
    double tiles = 0, tile = 0, bytes = 0;
    for (int i = 0; i < n; i++) tiles += (double)kn_gemm_sm90_tiles(c, g[i]);
    double waves = (double)kn_ceil_div((int64_t)tiles, (int64_t)sms);
    for (int i = 0; i < n; i++) {
        int64_t tiles_m = kn_ceil_div(g[i]->m, c->swap ? c->bn : kn_gemm_sm90_tile_rows(c));
        int64_t tiles_n = kn_ceil_div(g[i]->n, c->swap ? kn_gemm_sm90_tile_rows(c) : c->bn);
        tile += (double)kn_gemm_sm90_tiles(c, g[i]) / tiles * (double)k_blocks(g[i]) * block_clocks(c, g[i], waves);
        bytes += operand_bytes(g[i], g[i]->m, tiles_n) + operand_bytes(g[i], g[i]->n, tiles_m);
        bytes += output_bytes(g[i]) * (double)g[i]->m * (double)g[i]->n;
    }
    double epilogue = EPILOGUE + EPILOGUE_128X128 * kn_gemm_sm90_tile_rows(c) * c->bn / 16384;
    /* Ping-pong hides all epilogues but the last, unless they are longer than a tile's products. */
    double between = c->coop ? tile + epilogue : (tile > epilogue ? tile : epilogue);
    double compute = (waves - 1) * between + tile + epilogue, memory = bytes / HBM_BYTES;
    double longer = compute > memory ? compute : memory, shorter = compute > memory ? memory : compute;
    return FIRST_TILE + longer + 0.05 * shorter;
}

/* Tiles that may suit the product, those of the table first. */
static int list_candidates(const kn_gemm *g, kn_gemm_candidate *out) {
    int n = 0;
    for (size_t i = 0; i < 2 * sizeof shapes / sizeof shapes[0]; i++)
        out[n++] = (kn_gemm_candidate){i % 2 != 0, shapes[i / 2].coop, shapes[i / 2].mb, shapes[i / 2].bn};
    for (int64_t parts = 1; parts <= MAX_PARTS; parts++) {
        int64_t rows = kn_ceil_div(kn_ceil_div(g->m, parts), 8) * 8;
        if (rows > 256 || rows < 16) continue;
        int bn = (int)rows;
        out[n++] = (kn_gemm_candidate){true, false, 1, bn};
        out[n++] = (kn_gemm_candidate){true, true, 1, bn};
        if (bn <= 128) out[n++] = (kn_gemm_candidate){true, false, 2, bn};
    }
    return n;
}

kn_gemm_candidate kn_gemm_sm90_choose(const kn_gemm *const *g, int n, const kn_device_facts *facts, double sms) {
    kn_gemm_candidate all[MAX_CANDIDATES], best = {false, false, 2, 128};
    double best_cost = -1;
    int count = list_candidates(g[0], all);
    for (int i = 0; i < count; i++) {
        if (!is_legal(&all[i], g, n, facts)) continue;
        double cost = cost_of(&all[i], g, n, sms);
        if (best_cost < 0 || cost < best_cost) {
            best_cost = cost;
            best = all[i];
        }
    }
    return best;
}
