/* ops/router_fused: the plan of the fused kernel, ptx_templates/router_fused.ptxt: both products from one read of dz
 * and hidden_states, on sm_90a, for aligned 16-bit inputs and up to 256 experts. router_dlogits has made dz before.
 *
 * How tokens and columns are dealt out follows from H alone, never from the device: the sums' bits depend on it.
 */
#include "kiln/kiln.h"
#include "ops/router_internal.h"

#include <stdio.h>

enum {
    COLUMNS = 64,              /* of a block */
    TILE = 8192,               /* bytes of 64 x 64 elements */
    PATCHES = 4 * 4 * 16 * 68, /* bytes of a warpgroup's patches in the epilogue, where rows are not aligned */
    MAX_STAGES = 8,
    MAX_SPLITS = 8,
    SLACK = 2048, /* barriers and alignment */
    MAP_BF16 = 9, /* CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 */
    MAP_F16 = 6,
    SWIZZLE_128B = 3,
    PROMOTE_128B = 2
};

/* How the fused kernel deals out its work. */
typedef struct layout {
    int64_t slices;           /* of columns */
    int splits;               /* shares of the tokens: the blocks of a cluster */
    int dh_groups, dw_groups; /* warpgroups of each product */
    bool w_held;              /* W in registers, grad_hidden_states as its transpose */
    int stages;               /* blocks of 64 tokens in shared memory */
} layout;

static int64_t expert_blocks(const kn_router *r) {
    return kn_router_ceil_div(r->experts, 64);
}

bool kn_router_fused_fits(const kn_router *r) {
    const kn_problem *p = r->p;
    bool wide = p->align_log2[KN_ROUTER_HIDDEN] >= 4 && p->align_log2[KN_ROUTER_GATE_WEIGHT] >= 4;
    return r->target->wgmma && !p->portable && !r->fine && wide && r->experts % 8 == 0 && r->experts <= 256 &&
           r->hidden % 8 == 0 && r->tokens > 0 && (r->hidden_out || r->weight_out) &&
           !kn_router_has(p, KN_ROUTER_TOKEN_MASK);
}

/* The largest cluster of which as many as there are column slices fit at once on 132 multiprocessors in groups of 16
 * and 18 (docs/router.md), whatever the device. */
static int splits_of(int64_t slices) {
    static const int fit[MAX_SPLITS] = {132, 66, 39, 30, 22, 17, 15, 15};
    for (int splits = MAX_SPLITS; splits > 1; splits--) {
        if (slices <= fit[splits - 1]) return splits;
    }
    return 1;
}

/* Blocks of 64 experts, the same number for each warpgroup. */
static int64_t padded_blocks(const kn_router *r, int groups) {
    return groups > 1 ? kn_router_ceil_div(expert_blocks(r), groups) * groups : expert_blocks(r);
}

/* Stages of dz and hidden_states: what shared memory holds beside the rest. */
static int stages_of(const kn_router *r, const layout *x) {
    int64_t blocks = padded_blocks(r, x->dw_groups), left = (int64_t)r->facts->smem_per_block - SLACK;
    /* Rows on their way to grad_hidden_states, 16 of each warp: as they are, or as floats. */
    left -= x->dh_groups * (r->p->align_log2[KN_ROUTER_OUT_HIDDEN] < 4 ? PATCHES : TILE);
    if (x->dh_groups) left -= blocks * TILE;
    /* What other blocks of the cluster send: their sums of some of the columns. */
    if (x->dw_groups)
        left -= (x->splits - 1) * kn_router_ceil_div(COLUMNS / 8, x->splits) * 8 * 64 * blocks * (int64_t)sizeof(float);
    int64_t stage = blocks * TILE + (x->dw_groups ? TILE : 0), n = left / stage;
    return n > MAX_STAGES ? MAX_STAGES : (int)n;
}

/* Rows of grad_hidden_states leave by TMA (PLAIN of the template). */
static bool stores_boxes(const kn_router *r) {
    const kn_problem *p = r->p;
    int out = KN_ROUTER_OUT_HIDDEN;
    return r->hidden_out && p->dtype[out] != KN_F32 && !kn_router_accumulates(p, out) && p->align_log2[out] >= 4;
}

static layout layout_of(const kn_router *r) {
    layout x = {.slices = kn_router_ceil_div(r->hidden, COLUMNS)};
    x.splits = splits_of(x.slices);
    /* Two of a kind where there are registers for them. */
    if (r->hidden_out) x.dh_groups = expert_blocks(r) > 2 ? 1 : 2;
    if (r->weight_out) x.dw_groups = expert_blocks(r) > 1 ? 2 : 1;
    /* 32 registers for 128 experts beside the accumulators. */
    x.w_held = stores_boxes(r) && expert_blocks(r) <= 2;
    x.stages = stages_of(r, &x);
    return x;
}

static int add_map(const kn_router *r, int arg, int64_t at, kn_dtype dtype, int64_t columns, int64_t rows, int64_t ld,
                   uint32_t box_rows) {
    kn_map_spec m = {.from_workspace = arg < 0,
                     .arg = (uint8_t)(arg < 0 ? 0 : arg),
                     .offset_bytes = at,
                     .stride_dim = {-1, -1, -1, -1}};
    m.map = (kn_tensor_map){.dtype = dtype == KN_BF16 ? MAP_BF16 : MAP_F16,
                            .rank = 2,
                            .swizzle = SWIZZLE_128B,
                            .l2_promotion = PROMOTE_128B};
    m.map.dim[0] = (uint64_t)columns;
    m.map.dim[1] = (uint64_t)rows;
    m.map.box[0] = 64;
    m.map.box[1] = box_rows;
    if (arg < 0) {
        m.map.stride[0] = (uint64_t)ld * kn_dtype_size(dtype);
    } else {
        m.stride_dim[0] = 0;
    }
    return kn_add_map(r->builder, &m);
}

static void set_outputs(const kn_router *r, kn_params *params) {
    const kn_problem *p = r->p;
    int dh = KN_ROUTER_OUT_HIDDEN, dw = KN_ROUTER_OUT_GATE_WEIGHT;
    kn_dtype dh_type = r->hidden_out ? (kn_dtype)p->dtype[dh] : KN_BF16;
    kn_dtype dw_type = r->weight_out ? (kn_dtype)p->dtype[dw] : KN_BF16;
    kn_params_set_name(params, "D_T", kn_dtype_name(dh_type));
    kn_params_set(params, "D_VEC", !r->hidden_out || p->align_log2[dh] >= 4 ? 8 : 1);
    kn_params_set(params, "ACCUMULATE", r->hidden_out && kn_router_accumulates(p, dh));
    kn_params_set_name(params, "DW_T", kn_dtype_name(dw_type));
    kn_params_set(params, "DW_VEC", 1u << p->align_log2[dw] >= 4 * kn_dtype_size(dw_type) ? 4 : 1);
    kn_params_set(params, "DW_ADD", r->weight_out && kn_router_accumulates(p, dw));
}

static void bind_outputs(const kn_router *r, kn_launch_spec *l) {
    kn_bind_tensor(l, KN_ROUTER_OUT_HIDDEN, 0);
    kn_bind_stride(l, KN_ROUTER_OUT_HIDDEN, 0);
    kn_bind_i64(l, 0);
    kn_bind_tensor(l, KN_ROUTER_OUT_GATE_WEIGHT, 0);
    kn_bind_stride(l, KN_ROUTER_OUT_GATE_WEIGHT, 0);
    kn_bind_i32(l, (int32_t)r->tokens);
}

static void set_layout(const layout *x, kn_params *params) {
    kn_params_set(params, "SPLITS", x->splits);
    kn_params_set(params, "STAGES", x->stages);
    kn_params_set(params, "DH_GROUPS", x->dh_groups);
    kn_params_set(params, "DW_GROUPS", x->dw_groups);
    kn_params_set(params, "W_HELD", x->w_held);
}

void kn_router_emit_fused(const kn_router *r) {
    const kn_problem *p = r->p;
    kn_dtype input = (kn_dtype)p->dtype[KN_ROUTER_HIDDEN], output = (kn_dtype)p->dtype[KN_ROUTER_OUT_HIDDEN];
    layout x = layout_of(r);
    int kernel;
    kn_params *params = kn_add_kernel(r->builder, "router_fused.ptxt", &kernel);
    kn_params_set(params, "TOKENS", p->generic ? -1 : r->tokens);
    kn_params_set(params, "H", r->hidden);
    kn_params_set(params, "E", r->experts);
    kn_params_set_name(params, "T", kn_dtype_name(input));
    kn_params_set(params, "BIAS", r->bias_out);
    kn_params_set(params, "BIAS_ADD", r->bias_out && kn_router_accumulates(p, KN_ROUTER_OUT_GATE_BIAS));
    set_layout(&x, params);
    set_outputs(r, params);
    int hidden_map = add_map(r, KN_ROUTER_HIDDEN, 0, input, r->hidden, r->tokens, 0, 64);
    int weight_map = add_map(r, KN_ROUTER_GATE_WEIGHT, 0, input, r->hidden, r->experts, 0, 64);
    kn_launch_spec *l = kn_add_launch(r->builder, kernel, (uint32_t)(x.slices * x.splits), 1, 1);
    l->dependent = true;
    kn_bind_map(l, hidden_map);
    kn_bind_map(l, weight_map);
    if (stores_boxes(r))
        kn_bind_map(l, add_map(r, KN_ROUTER_OUT_HIDDEN, 0, output, r->hidden, r->tokens, 0, x.w_held ? 64 : 16));
    kn_bind_map(l, add_map(r, -1, r->dz_at, r->dz, r->experts, r->tokens, r->dz_ld, 64));
    if (r->bias_out) {
        kn_bind_workspace(l, r->parts_at);
    } else {
        kn_bind_i64(l, 0);
    }
    kn_bind_i32(l, (int32_t)kn_router_bias_parts(r));
    kn_bind_tensor(l, KN_ROUTER_OUT_GATE_BIAS, 0);
    bind_outputs(r, l);
    size_t used = 0;
    while (r->builder->program->note[used]) used++;
    snprintf(r->builder->program->note + used, sizeof r->builder->program->note - used,
             "both products fused: %d shares of the tokens, %d stages; ", x.splits, x.stages);
}
