/* ops/gemm_sm90: plans products on the TMA + wgmma kernel, ptx_templates/gemm_sm90.ptxt: bf16 and f16, aligned, on
 * sm_90a.
 *
 * A plan is a tile and a way to share it. Candidates are ranked by an analytic cost in clocks of one multiprocessor,
 * from what an H200 was measured to do (docs/gemm.md): the tensor core's 4096 FLOP a clock, what the L2 delivers to one
 * multiprocessor, whole waves of tiles, a first tile's latency and an epilogue. No candidate changes a bit of the
 * result. */
#include "ops/gemm_internal.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

enum {
    K_BLOCK = 64,
    BARRIER_BYTES = 1024, /* mbarriers, and room to align the rings */
    FIRST_TILE_CLK = 3000,
    EPILOGUE_CLK = 1200, /* of a 128 x 128 tile */
    L2_BYTES_PER_CLK = 64,
    MAX_STAGES = 12,
    MAP_BF16 = 9, /* CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 */
    MAP_F16 = 6,
    SWIZZLE_128B = 3,
    PROMOTE_128B = 2
};

typedef struct candidate {
    bool coop;
    int mb, bn;
} candidate;

/* Measured as enough for all products of the operations: within 2% of the best tile on average. */
static const candidate candidates[] = {
    {false, 2, 128}, {false, 2, 192}, {false, 1, 256}, {false, 1, 128}, {false, 1, 64},
    {false, 2, 64},  {true, 1, 256},  {true, 2, 128},  {false, 2, 96},  {false, 2, 136},
    {false, 2, 160}, {false, 2, 176}, {false, 2, 200},
};

static int tile_rows(const candidate *c) {
    return 64 * c->mb * (c->coop ? 2 : 1);
}

static bool operand_fits(const kn_gemm_operand *o, kn_dtype dtype) {
    return o->dtype == dtype && o->align_log2 >= 4;
}

bool kn_gemm_sm90_fits(const kn_gemm *g, const kn_problem *p, const kn_target *target) {
    if (!target->wgmma || p->portable) return false;
    kn_dtype dtype = g->segment[0].a.dtype;
    if (dtype != KN_BF16 && dtype != KN_F16) return false;
    if (g->a_split != 1 || g->b_split != 1 || g->group != KN_GROUP_NONE || g->gather_dtype != KN_DTYPE_NONE)
        return false;
    if (strcmp(g->epilogue, "store") != 0 || g->d.align_log2 < 4 || g->n % 8 != 0) return false;
    if (g->k_is_tokens && g->n_segments > 1) return false;
    for (int s = 0; s < g->n_segments; s++) {
        if (g->segment[s].k == 0) return false;
        if (!operand_fits(&g->segment[s].a, dtype) || !operand_fits(&g->segment[s].b, dtype)) return false;
    }
    return g->m > 0 && g->m <= INT_MAX - 256 && g->n <= INT_MAX - 256;
}

static int64_t k_blocks(const kn_gemm *g) {
    int64_t n = 0;
    for (int s = 0; s < g->n_segments; s++) n += kn_ceil_div(g->segment[s].k, K_BLOCK);
    return n;
}

static int64_t stage_bytes(const candidate *c) {
    return (int64_t)(tile_rows(c) + c->bn) * K_BLOCK * 2;
}

static int stages_of(const candidate *c, const kn_device_facts *facts) {
    int64_t n = ((int64_t)facts->smem_per_block - BARRIER_BYTES) / stage_bytes(c);
    return n > MAX_STAGES ? MAX_STAGES : (int)n;
}

static bool is_legal(const candidate *c, const kn_gemm *g, const kn_device_facts *facts) {
    if (!g->segment[0].b.depth_contiguous && c->bn % 64 != 0) return false;
    return stages_of(c, facts) >= 3;
}

/* Clocks of one multiprocessor until the last tile is stored. */
static double cost_of(const candidate *c, const kn_gemm *g, double sms) {
    double bm = tile_rows(c), bn = c->bn, blocks = (double)k_blocks(g);
    double tiles = (double)(kn_ceil_div(g->m, tile_rows(c)) * kn_ceil_div(g->n, c->bn));
    double waves = (double)kn_ceil_div((int64_t)tiles, (int64_t)sms);
    double tensor = bm * bn / 32, feed = (bm + bn) * 128 / L2_BYTES_PER_CLK;
    double epilogue = EPILOGUE_CLK * bm * bn / 16384;
    double tile = blocks * (tensor > feed ? tensor : feed);
    /* Ping-pong hides all epilogues but the last, unless they are longer than a tile's products. */
    double between = c->coop ? tile + epilogue : (tile > epilogue ? tile : epilogue);
    return FIRST_TILE_CLK + (waves - 1) * between + tile + epilogue;
}

static candidate choose(const kn_gemm *g, const kn_device_facts *facts, double sms) {
    candidate best = candidates[0];
    double best_cost = -1;
    for (size_t i = 0; i < sizeof candidates / sizeof candidates[0]; i++) {
        const candidate *c = &candidates[i];
        if (!is_legal(c, g, facts)) continue;
        double cost = cost_of(c, g, sms);
        if (best_cost < 0 || cost < best_cost) {
            best_cost = cost;
            best = *c;
        }
    }
    return best;
}

/* The map of one operand: K-major tiles are one box of 64 k by `rows`; MN-major ones are boxes of 64 rows by 64 k. */
static int add_map(kn_program_builder *b, const kn_gemm_operand *o, int64_t extent, int64_t k, uint32_t rows) {
    kn_map_spec m = {.from_workspace = o->place.in_workspace,
                     .arg = (uint8_t)(o->place.in_workspace ? 0 : o->place.arg),
                     .offset_bytes = o->place.offset_bytes,
                     .stride_dim = {-1, -1, -1, -1}};
    m.map = (kn_tensor_map){.dtype = o->dtype == KN_BF16 ? MAP_BF16 : MAP_F16,
                            .rank = 2,
                            .swizzle = SWIZZLE_128B,
                            .l2_promotion = PROMOTE_128B};
    m.map.dim[0] = (uint64_t)(o->depth_contiguous ? k : extent);
    m.map.dim[1] = (uint64_t)(o->depth_contiguous ? extent : k);
    m.map.box[0] = K_BLOCK;
    m.map.box[1] = o->depth_contiguous ? rows : K_BLOCK;
    if (o->stride_dim >= 0) {
        m.stride_dim[0] = (int8_t)o->stride_dim;
    } else {
        m.map.stride[0] = (uint64_t)o->stride_elems * kn_dtype_size(o->dtype);
    }
    return kn_add_map(b, &m);
}

void kn_gemm_sm90_emit(kn_program_builder *b, const kn_gemm *g, const kn_problem *p, const kn_device_facts *facts) {
    int64_t sms = facts->multiprocessors ? facts->multiprocessors : 1;
    /* A limit on the grid must not change the tile: it is planned for the whole device. */
    candidate c = choose(g, facts, (double)sms);
    if (p->sm_limit && p->sm_limit < sms) sms = p->sm_limit;
    int bm = tile_rows(&c);
    int64_t tiles = kn_ceil_div(g->m, bm) * kn_ceil_div(g->n, c.bn);
    if (tiles > INT_MAX) {
        b->status = kn_fail(KN_E_SHAPE, "a product of %lld x %lld has %lld tiles; at most 2^31", (long long)g->m,
                            (long long)g->n, (long long)tiles);
        return;
    }
    int kernel;
    kn_params *params = kn_add_kernel(b, "gemm_sm90.ptxt", &kernel);
    kn_params_set_name(params, "SYMBOL", g->symbol);
    kn_params_set(params, "M", g->m_is_tokens && p->generic ? -1 : g->m);
    kn_params_set(params, "N", g->n);
    kn_params_set(params, "SEGMENTS", g->n_segments);
    for (int s = 0; s < KN_GEMM_MAX_SEGMENTS; s++) {
        char name[4] = {'K', (char)('0' + s), 0};
        int64_t k = s < g->n_segments ? g->segment[s].k : 0;
        kn_params_set(params, name, g->k_is_tokens && p->generic && s == 0 ? -1 : k);
    }
    kn_params_set_name(params, "T", kn_dtype_name(g->segment[0].a.dtype));
    kn_params_set_name(params, "A_MAJOR", g->segment[0].a.depth_contiguous ? "k" : "mn");
    kn_params_set_name(params, "B_MAJOR", g->segment[0].b.depth_contiguous ? "k" : "mn");
    kn_params_set_name(params, "MODE", c.coop ? "coop" : "pingpong");
    kn_params_set(params, "MB", c.mb);
    kn_params_set(params, "BN", c.bn);
    kn_params_set(params, "STAGES", stages_of(&c, facts));
    kn_params_set_name(params, "EPI", g->epilogue);
    kn_params_set_name(params, "D_T", kn_dtype_name(g->d.dtype));
    kn_params_set(params, "ACCUMULATE", g->accumulate);

    kn_launch_spec *l = kn_add_launch(b, kernel, (uint32_t)(tiles < sms ? tiles : sms), 1, 1);
    l->dependent = true;
    for (int s = 0; s < g->n_segments; s++) {
        kn_bind_map(l, add_map(b, &g->segment[s].a, g->m, g->segment[s].k, (uint32_t)bm));
        kn_bind_map(l, add_map(b, &g->segment[s].b, g->n, g->segment[s].k, (uint32_t)c.bn));
    }
    kn_gemm_bind_place(l, &g->d.place);
    if (g->d.stride_dim >= 0) {
        kn_bind_stride(l, g->d.place.arg, g->d.stride_dim);
    } else {
        kn_bind_i64(l, g->d.stride_elems);
    }
    kn_bind_i32(l, (int32_t)g->m);
    kn_bind_i32(l, (int32_t)g->segment[0].k);
}
