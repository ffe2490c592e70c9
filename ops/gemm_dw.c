/* ops/gemm_dw: plans gradients of expert weights on ptx_templates/gemm_dw_sm90.ptxt. */
#include "ops/gemm_dw.h"

#include "ops/gemm_choice.h"

#include <math.h>
#include <stdio.h>

enum {
    BM = 128,
    BK = 64,
    FIXED_BYTES = 1024, /* mbarriers, alignment */
    MIN_SLOTS = 2,
    MAX_SLOTS = 4,
    MAX_STAGES = 8,
    WALK = 16,         /* blocks of rows that share B */
    MANY_ITEMS = 4096, /* below: half of that, so that the multiprocessors end at one time */
    FEW_ITEMS = 1024,  /* below: shorter walks, so that every multiprocessor has work */
    MAP_BF16 = 9,      /* CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 */
    MAP_F16 = 6,
    SWIZZLE_128B = 3,
    PROMOTE_128B = 2
};

typedef struct dw_plan {
    int64_t bn, bk, tiles, walk, box, slots, stages;
    bool bulk;
} dw_plan;

static bool operand_fits(const kn_gemm_operand *o) {
    return o->place.in_workspace && (o->dtype == KN_BF16 || o->dtype == KN_F16) && !o->depth_contiguous &&
           o->align_log2 >= 4;
}

bool kn_gemm_dw_fits(const kn_gemm *g, const kn_problem *p, const kn_target *target) {
    const kn_gemm_operand *a = &g->segment[0].a, *b = &g->segment[0].b;
    return target->wgmma && !p->portable && g->group == KN_GROUP_K && g->n_segments == 1 && g->a_split == 1 &&
           g->b_split == 1 && operand_fits(a) && operand_fits(b) && a->dtype == b->dtype && g->m % 8 == 0 &&
           g->n % 8 == 0 && g->d.align_log2 >= 4;
}

static int64_t items_of(const kn_gemm *const *g, int n, const dw_plan *c) {
    int64_t items = 0;
    for (int i = 0; i < n; i++)
        items += kn_ceil_div(kn_ceil_div(g[i]->m, BM), c->walk) * kn_ceil_div(g[i]->n, c->tiles * c->bn);
    return items * g[0]->n_groups;
}

static dw_plan choose(const kn_gemm *const *g, int n, bool generic, const kn_device_facts *facts) {
    dw_plan c = {.bn = 64, .tiles = 1, .walk = WALK};
    int64_t widest = 0;
    for (int i = 0; i < n; i++) {
        while (c.bn < 256 && c.bn < g[i]->n) c.bn *= 2;
        if (g[i]->n > widest) widest = g[i]->n;
    }
    /* B rests in its slots if an expert's rows are not far more than usual: that of two tiles at a time where they are
     * few, in finer blocks, so that some slots are left for the next item; else in one slot more. */
    double mean = (double)g[0]->segment[0].k / (double)g[0]->n_groups;
    int64_t blocks = (int64_t)ceil((mean + 3 * sqrt(mean)) / (double)BK);
    if (widest > c.bn && (generic || 2 * blocks <= MAX_SLOTS)) c.tiles = 2;
    c.slots = c.tiles == 2 || blocks + 1 > MAX_SLOTS ? MAX_SLOTS : (blocks + 1 < MIN_SLOTS ? MIN_SLOTS : blocks + 1);
    /* Boxes of a few rows, and no more are loaded than an expert has; of many rows they would take long to ask for. */
    c.box = blocks <= MAX_SLOTS ? 16 : BK;
    if (generic) { /* one kernel for all numbers of rows */
        c.slots = MAX_SLOTS;
        c.box = 32;
    }
    c.bk = c.tiles == 2 && !generic ? BK / 2 : BK;
    c.slots *= BK / c.bk;
    if (items_of(g, n, &c) < MANY_ITEMS) c.walk /= 2;
    while (c.walk > 1 && items_of(g, n, &c) < FEW_ITEMS) c.walk /= 2;
    /* Added to, 16-bit numbers must be read: a bulk copy would round what it adds first. */
    c.bulk = g[0]->d.dtype == KN_F32 || !g[0]->accumulate;
    int64_t piece = c.bn < 128 ? c.bn : 128, size = kn_dtype_size(g[0]->d.dtype);
    int64_t patches = c.bulk ? 8 * 8 * (piece + 8) * size : 0;
    int64_t left = (int64_t)facts->smem_per_block - FIXED_BYTES - patches - c.slots * c.bn * c.bk * 2;
    c.stages = left / (BM * c.bk * 2);
    if (c.stages > MAX_STAGES) c.stages = MAX_STAGES;
    return c;
}

/* Boxes of 64 columns by `box` rows. */
static int add_map(kn_program_builder *b, const kn_gemm_operand *o, int64_t columns, int64_t rows, int64_t box) {
    kn_map_spec m = {.from_workspace = true, .offset_bytes = o->place.offset_bytes, .stride_dim = {-1, -1, -1, -1}};
    m.map = (kn_tensor_map){.dtype = o->dtype == KN_BF16 ? MAP_BF16 : MAP_F16,
                            .rank = 2,
                            .swizzle = SWIZZLE_128B,
                            .l2_promotion = PROMOTE_128B};
    m.map.dim[0] = (uint64_t)columns;
    m.map.dim[1] = (uint64_t)rows;
    m.map.box[0] = 64;
    m.map.box[1] = (uint32_t)box;
    m.map.stride[0] = (uint64_t)o->stride_elems * kn_dtype_size(o->dtype);
    return kn_add_map(b, &m);
}

static void fill_params(kn_params *params, const dw_plan *c, const kn_gemm *const *g, int n) {
    kn_params_set_name(params, "SYMBOL", g[0]->symbol);
    kn_params_set(params, "PROBLEMS", n);
    for (int i = 0; i < n; i++) {
        char m_name[4] = {'M', (char)('0' + i), 0}, n_name[4] = {'N', (char)('0' + i), 0};
        kn_params_set(params, m_name, g[i]->m);
        kn_params_set(params, n_name, g[i]->n);
    }
    kn_params_set(params, "EXPERTS", g[0]->n_groups);
    kn_params_set_name(params, "T", kn_dtype_name(g[0]->segment[0].a.dtype));
    kn_params_set_name(params, "OFFSETS_T", g[0]->offsets_dtype == KN_I64 ? "s64" : "s32");
    kn_params_set(params, "BN", c->bn);
    kn_params_set(params, "BK", c->bk);
    kn_params_set(params, "TILES", c->tiles);
    kn_params_set(params, "WALK", c->walk);
    kn_params_set(params, "BOX", c->box);
    kn_params_set(params, "SLOTS", c->slots);
    kn_params_set(params, "STAGES", c->stages);
    kn_params_set(params, "BULK", c->bulk);
    kn_params_set_name(params, "D_T", kn_dtype_name(g[0]->d.dtype));
    kn_params_set(params, "D_VEC", 8);
    kn_params_set(params, "ACCUMULATE", g[0]->accumulate);
}

void kn_gemm_dw_emit(kn_program_builder *b, const kn_gemm *const *g, int n, const kn_problem *p,
                     const kn_device_facts *facts) {
    dw_plan c = choose(g, n, p->generic, facts);
    int64_t items = items_of(g, n, &c), sms = facts->multiprocessors ? facts->multiprocessors : 1;
    if (p->sm_limit && p->sm_limit < sms) sms = p->sm_limit;
    if (items > INT32_MAX) {
        b->status = kn_fail(KN_E_SHAPE, "gradients of %lld experts of %lld x %lld are too many tiles; at most 2^31",
                            (long long)g[0]->n_groups, (long long)g[0]->m, (long long)g[0]->n);
        return;
    }
    char tile[KN_GEMM_NAME_CAP];
    snprintf(tile, sizeof tile, "%dx%d-walk%dx%d", BM, (int)c.bn, (int)c.walk, (int)c.tiles);
    kn_gemm_explain_only(b, g, n, "dw", tile,
                         "weight gradients of experts: as many rows share B as leave work for all");
    int kernel;
    fill_params(kn_add_kernel(b, "gemm_dw_sm90.ptxt", &kernel), &c, g, n);
    kn_launch_spec *l = kn_add_launch(b, kernel, (uint32_t)(items < sms ? items : sms), 1, 1);
    l->dependent = true;
    for (int i = 0; i < n; i++) {
        int64_t rows = g[i]->segment[0].k ? g[i]->segment[0].k : 1; /* without rows nothing is loaded */
        kn_bind_map(l, add_map(b, &g[i]->segment[0].a, g[i]->m, rows, c.box));
        kn_bind_map(l, add_map(b, &g[i]->segment[0].b, g[i]->n, rows, c.box));
    }
    for (int i = 0; i < n; i++) kn_gemm_bind_epilogue(l, g[i]);
    kn_gemm_bind_place(l, &g[0]->offsets);
}
