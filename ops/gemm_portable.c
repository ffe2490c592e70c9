/* ops/gemm_portable: plans products on the mma.sync kernel, ptx_templates/gemm_sm80.ptxt: any shape, stride, alignment.
 *
 * The tile changes how fast a product is, never its bits: every element is one sum over k in steps of 16. */
#include "ops/gemm_internal.h"

#include <limits.h>
#include <stdio.h>

enum { K_TILE = 32 };

kn_gemm_tile kn_gemm_portable_tile(const kn_gemm *g, bool generic) {
    bool split = g->a_split > 1 || g->b_split > 1;
    int64_t m = g->group == KN_GROUP_M ? kn_ceil_div(g->m, g->n_groups ? g->n_groups : 1) : g->m;
    if (generic && g->m_is_tokens) m = g->one_tile || kn_gemm_is_for_few(g) ? 64 : 128;
    /* Two sums are put aside beside the accumulators. */
    bool aside = kn_gemm_depth_parts(g) > 1 && kn_gemm_has_whole_blocks(g);
    if (m >= 128 && g->n >= 128 && !split && !aside) return (kn_gemm_tile){128, 128, 2, 4};
    kn_gemm_tile t = {m > 32 ? 64 : 32, g->n > 32 ? 64 : 32, 2, 2};
    return t;
}

/* Elements that one load may take along the contiguous axis: its extent, the address and all strides allow it. */
static int64_t vector_width(const kn_gemm_operand *o, int64_t extent, bool extent_is_tokens) {
    if (extent_is_tokens) return 1;
    int64_t size = kn_dtype_size(o->dtype);
    for (int64_t vec = 8; vec > 1; vec /= 2) {
        int64_t bytes = vec * size < 16 ? vec * size : 16;
        if (extent % vec == 0 && (1 << o->align_log2) >= bytes) return vec;
    }
    return 1;
}

static void set_operand(kn_params *params, const char *prefix, const kn_gemm_operand *o, int64_t vec, int split) {
    char name[16];
    snprintf(name, sizeof name, "%s_T", prefix);
    kn_params_set_name(params, name, kn_dtype_name(o->dtype));
    snprintf(name, sizeof name, "%s_MAJOR", prefix);
    kn_params_set_name(params, name, o->depth_contiguous ? "k" : "mn");
    snprintf(name, sizeof name, "%s_VEC", prefix);
    kn_params_set(params, name, vec);
    snprintf(name, sizeof name, "%s_SPLIT", prefix);
    kn_params_set(params, name, split);
}

/* The vector width that suits all segments. */
static int64_t common_width(const kn_gemm *g, bool of_a) {
    int64_t width = 8;
    for (int s = 0; s < g->n_segments; s++) {
        const kn_gemm_operand *o = of_a ? &g->segment[s].a : &g->segment[s].b;
        bool k_ragged = g->k_is_tokens || g->group == KN_GROUP_K;
        bool m_ragged = g->m_is_tokens || g->group == KN_GROUP_M;
        int64_t vec = o->depth_contiguous ? vector_width(o, g->segment[s].k, k_ragged)
                                          : vector_width(o, of_a ? g->m : g->n, of_a && m_ragged);
        if (vec < width) width = vec;
        if (of_a || !g->b_switch) continue;
        int64_t other = vector_width(&g->b_instead[s], o->depth_contiguous ? g->segment[s].k : g->n,
                                     o->depth_contiguous && k_ragged);
        if (other < width) width = other;
    }
    return width;
}

/* k tiles of the first part of the depth, of a product that is summed up in parts. */
static int64_t first_part(const kn_gemm *g, int parts) {
    int64_t blocks = 0, tiles = 0;
    for (int s = 0; s < g->n_segments; s++) blocks += kn_ceil_div(g->segment[s].k, KN_GEMM_DEPTH_BLOCK);
    int64_t left = kn_ceil_div(blocks, parts);
    for (int s = 0; s < g->n_segments && left > 0; s++) {
        int64_t k = g->segment[s].k, all = kn_ceil_div(k, KN_GEMM_DEPTH_BLOCK), taken = all < left ? all : left;
        tiles += taken < all ? taken * (KN_GEMM_DEPTH_BLOCK / K_TILE) : kn_ceil_div(k, K_TILE);
        left -= taken;
    }
    return tiles;
}

static void fill_params(const kn_gemm *g, const kn_problem *p, const kn_gemm_tile *t, kn_params *params) {
    static const char *const group_names[] = {"none", "rows", "depth", "batch"};
    const kn_gemm_operand *a = &g->segment[0].a, *b = &g->segment[0].b;
    bool f16 = a->dtype == KN_F16 && b->dtype == KN_F16 && g->a_split == 1 && g->b_split == 1;
    kn_params_set_name(params, "SYMBOL", g->symbol);
    kn_params_set(params, "M", g->m_is_tokens && p->generic ? -1 : g->m);
    kn_params_set(params, "N", g->n);
    kn_params_set(params, "SEGMENTS", g->n_segments);
    for (int s = 0; s < KN_GEMM_MAX_SEGMENTS; s++) {
        char name[4] = {'K', (char)('0' + s), 0};
        int64_t k = s < g->n_segments ? g->segment[s].k : 0;
        kn_params_set(params, name, g->group == KN_GROUP_K || (g->k_is_tokens && p->generic) ? -1 : k);
    }
    set_operand(params, "A", a, common_width(g, true), g->a_split);
    set_operand(params, "B", b, common_width(g, false), g->b_split);
    kn_params_set_name(params, "SWITCH", g->b_switch ? "of_b" : "none");
    kn_params_set_name(params, "MMA", f16 ? "f16" : "bf16");
    int parts = kn_gemm_depth_parts(g);
    bool by_argument = parts > 1 && kn_gemm_has_whole_blocks(g);
    kn_params_set(params, "PROMOTE", by_argument ? -1 : parts > 1 ? first_part(g, parts) : g->promote / K_TILE);
    kn_params_set(params, "ONCE", parts == 2 && !by_argument);
    kn_params_set_name(params, "GROUP", group_names[g->group]);
    kn_params_set_name(params, "OFFSETS_T", g->offsets_dtype == KN_I64 ? "s64" : "s32");
    kn_params_set_name(params, "GATHER",
                       g->gather_dtype == KN_I64 ? "s64" : (g->gather_dtype == KN_I32 ? "s32" : "none"));
    kn_params_set(params, "BM", t->bm);
    kn_params_set(params, "BN", t->bn);
    kn_params_set(params, "WARPS_M", t->warps_m);
    kn_params_set(params, "WARPS_N", t->warps_n);
    kn_params_set(params, "KEEP_EMPTY", g->group == KN_GROUP_K && g->accumulate);
    kn_gemm_epilogue_params(g, params);
}

void kn_gemm_portable_emit(kn_program_builder *b, const kn_gemm *g, const kn_problem *p) {
    kn_gemm_tile t = kn_gemm_portable_tile(g, p->generic);
    int64_t tiles_m =
        g->group == KN_GROUP_M ? kn_gemm_tile_map_entries(g->m, g->n_groups, t.bm) : kn_ceil_div(g->m, t.bm);
    int64_t tiles_n = kn_ceil_div(g->n, t.bn);
    int64_t groups = g->group == KN_GROUP_K || g->group == KN_GROUP_BATCH ? g->n_groups : 1;
    if (g->m > INT_MAX - 256 || g->n > INT_MAX - 256 || tiles_m > INT_MAX / tiles_n || groups > 65535) {
        b->status = kn_fail(KN_E_SHAPE,
                            "a product of %lld x %lld in %lld groups is too large: at most 2^31 rows, columns "
                            "and tiles, and 65535 groups",
                            (long long)g->m, (long long)g->n, (long long)groups);
        return;
    }
    int kernel;
    fill_params(g, p, &t, kn_add_kernel(b, "gemm_sm80.ptxt", &kernel));
    kn_launch_spec *l = kn_add_launch(b, kernel, (uint32_t)(tiles_m * tiles_n), 1, (uint32_t)groups);
    for (int s = 0; s < g->n_segments; s++) {
        kn_gemm_bind_place(l, &g->segment[s].a.place);
        kn_gemm_bind_strides(l, &g->segment[s].a);
        kn_gemm_bind_place(l, &g->segment[s].b.place);
        kn_gemm_bind_strides(l, &g->segment[s].b);
        kn_bind_i32(l, (int32_t)g->segment[s].k);
        if (!g->b_switch) continue;
        kn_gemm_bind_place(l, &g->b_instead[s].place);
        kn_gemm_bind_ld(l, &g->b_instead[s]);
    }
    if (g->b_switch) kn_gemm_bind_place(l, &g->b_flag);
    if (g->gather_dtype != KN_DTYPE_NONE) {
        kn_gemm_bind_place(l, &g->gather);
    } else {
        kn_bind_i64(l, 0);
    }
    if (g->group == KN_GROUP_M || g->group == KN_GROUP_K) {
        kn_gemm_bind_place(l, &g->offsets);
    } else {
        kn_bind_i64(l, 0);
    }
    if (g->group == KN_GROUP_M) {
        kn_gemm_bind_place(l, &g->tile_map);
    } else {
        kn_bind_i64(l, 0);
    }
    kn_gemm_bind_epilogue(l, g);
    kn_bind_i32(l, (int32_t)g->m);
    int parts = kn_gemm_depth_parts(g);
    if (parts > 1 && kn_gemm_has_whole_blocks(g)) kn_bind_i32(l, (int32_t)first_part(g, parts));
}
