/* ops/router_fused: plans of the fused kernel, ptx_templates/router_fused.ptxt: both products from one read of dz and
 * hidden_states, on sm_90a, for aligned 16-bit inputs and up to 256 experts.
 *
 * Few tokens: the kernel forms dz itself, every column slice the same: one launch. Many: dz is formed once and
 * streamed. How the tokens are split follows from E and H and the two limits below, never from the device: the sums'
 * bits depend on it. */
#include "kiln/kiln.h"
#include "ops/router_internal.h"

#include <stdio.h>

enum {
    FORMED_TOKENS = 192,  /* up to here one launch that forms dz itself is faster than two (docs/router.md) */
    FORMED_EXPERTS = 128, /* and up to here: registers */
    FORMED_CONSUMERS = 1, /* 2 go with 8 warps that form dz: 512 threads have 128 registers each */
    FRONT_WARPS = 12,
    TILE = 8192,               /* bytes of 64 x 64 elements */
    PATCHES = 4 * 4 * 16 * 68, /* bytes of the epilogue's patches, where rows are not aligned */
    FORMED_STAGES = 3,
    MAX_STAGES = 10,
    SLACK = 2048, /* barriers and alignment */
    MAP_BF16 = 9, /* CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 */
    MAP_F16 = 6,
    SWIZZLE_128B = 3,
    PROMOTE_128B = 2
};

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

bool kn_router_forms_dz(const kn_router *r) {
    return r->tokens <= FORMED_TOKENS && r->experts <= FORMED_EXPERTS && !r->bias_out;
}

/* Warpgroups that multiply. Two share a block of streamed dz, as far as their registers go. */
static int consumers_of(const kn_router *r, bool formed) {
    if (formed) return FORMED_CONSUMERS;
    return expert_blocks(r) > 2 ? 1 : 2;
}

/* The largest cluster of which as many as there are column slices fit at once on 132 multiprocessors in groups of 16
 * and 18 (docs/router.md), whatever the device. */
static int splits_of(int64_t slices) {
    static const int fit[] = {132, 66, 39, 30, 22, 17, 15, 15};
    for (int splits = 8; splits > 1; splits--) {
        if (slices <= fit[splits - 1]) return splits;
    }
    return 1;
}

/* Stages of dz and hidden_states: what shared memory holds beside the rest. Warps that form dz are at most two blocks
 * ahead; what comes from memory is as far ahead as it goes. */
static void choose_stages(const kn_router *r, bool formed, int consumers, int64_t lanes, int *dl, int *tiles) {
    int64_t blocks = expert_blocks(r), row = 4 * lanes * 4 * kn_router_ceil_div(r->experts, 4 * lanes);
    int64_t left = (int64_t)r->facts->smem_per_block - SLACK;
    if (r->hidden_out) left -= consumers * blocks * TILE;
    if (r->hidden_out && r->p->align_log2[KN_ROUTER_OUT_HIDDEN] < 4) left -= consumers * PATCHES;
    bool two_rows = r->p->option[KN_ROUTER_SCORE] == KILN_SCORE_SOFTMAX_SELECTED;
    if (formed) left -= FRONT_WARPS * (32 / lanes) * row * (two_rows ? 2 : 1);
    int64_t dz = blocks * TILE, tile = r->weight_out ? consumers * TILE : 0;
    int64_t n = formed ? (left - FORMED_STAGES * dz) / (tile ? tile : TILE) : left / (dz + tile);
    *tiles = (int)(n < 1 ? 1 : n > MAX_STAGES ? MAX_STAGES : n);
    *dl = formed ? FORMED_STAGES : *tiles;
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
    kn_params_set(params, "WANT_DH", r->hidden_out);
    kn_params_set(params, "WANT_DW", r->weight_out);
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

void kn_router_emit_fused(const kn_router *r, bool formed) {
    const kn_problem *p = r->p;
    kn_dtype input = (kn_dtype)p->dtype[KN_ROUTER_HIDDEN];
    int consumers = consumers_of(r, formed), dl, tiles, kernel;
    int64_t slices = kn_router_ceil_div(r->hidden, 64 * consumers);
    int splits = splits_of(slices);
    choose_stages(r, formed, consumers, kn_router_lanes(r->experts), &dl, &tiles);
    kn_params *params = kn_add_kernel(r->builder, "router_fused.ptxt", &kernel);
    kn_params_set_name(params, "FRONT", formed ? "formed" : "stream");
    kn_params_set(params, "TOKENS", p->generic ? -1 : r->tokens);
    kn_params_set(params, "H", r->hidden);
    kn_params_set_name(params, "T", kn_dtype_name(input));
    kn_params_set(params, "CONSUMERS", consumers);
    kn_params_set(params, "SPLITS", splits);
    kn_params_set(params, "DL_STAGES", dl);
    kn_params_set(params, "H_STAGES", tiles);
    set_outputs(r, params);
    if (formed) {
        kn_params_set(params, "FRONT_WARPS", FRONT_WARPS);
        kn_router_token_params(p, params);
        kn_router_logits_params(r, params);
    } else {
        kn_params_set(params, "E", r->experts);
    }
    uint32_t rows = (uint32_t)(64 * expert_blocks(r));
    int hidden_map = add_map(r, KN_ROUTER_HIDDEN, 0, input, r->hidden, r->tokens, 0, 64);
    int weight_map = add_map(r, KN_ROUTER_GATE_WEIGHT, 0, input, r->hidden, r->experts, 0, rows);
    kn_launch_spec *l = kn_add_launch(r->builder, kernel, (uint32_t)(slices * splits), 1, 1);
    l->dependent = true;
    kn_bind_map(l, hidden_map);
    kn_bind_map(l, weight_map);
    if (formed) {
        kn_router_bind_token(p, l);
        kn_bind_tensor(l, KN_ROUTER_OUT_LOGITS, 0);
        kn_bind_stride(l, KN_ROUTER_OUT_LOGITS, 0);
    } else {
        kn_bind_map(l, add_map(r, -1, r->dz_at, r->dz, r->experts, r->tokens, r->dz_ld, 64));
    }
    bind_outputs(r, l);
    size_t used = 0;
    while (r->builder->program->note[used]) used++;
    snprintf(r->builder->program->note + used, sizeof r->builder->program->note - used,
             "both products fused: dz %s, %d x 64 columns and 1/%d of the tokens a block, %d stages; ",
             formed ? "formed in the kernel" : "streamed", consumers, splits, dl);
}
