/* ops/router_fused: plans of the fused kernel, ptx_templates/router_fused.ptxt: both products from one read of dz and
 * hidden_states, on sm_90a, for aligned 16-bit inputs and up to 256 experts.
 *
 * Few tokens: the kernel forms dz itself, in one launch. Many: dz is formed once and streamed. How
 * tokens and columns are dealt out follows from E and H and the limits below, never from the device: the sums' bits
 * depend on it.
 */
#include "kiln/kiln.h"
#include "ops/router_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    FORMED_TOKENS = 2048,
    FORMED_WORK = 2880,   /* tokens times clusters, up to which one launch is faster than two (docs/router.md) */
    FORMED_SLOTS = 2,     /* slots of a thread: registers */
    FORMED_SPLITS = 4,    /* shares of the tokens; with two slices of columns they fill the largest portable cluster */
    FORMED_CLUSTERS = 15, /* of 8 blocks with an H200's multiprocessor each, that fit at once */
    FORMED_DZ_STAGES = 4,
    STREAM_COLUMNS = 128,      /* 64 for few tokens: a shorter way for each block of them */
    TILE = 8192,               /* bytes of 64 x 64 elements */
    PATCHES = 4 * 4 * 16 * 68, /* bytes of a warpgroup's patches in the epilogue, where rows are not aligned */
    MAX_STAGES = 8,
    SLACK = 8192, /* barriers, sums of grad_gate_bias, alignment, and room for a block of router_dlogits beside */
    MAP_BF16 = 9, /* CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 */
    MAP_F16 = 6,
    SWIZZLE_128B = 3,
    PROMOTE_128B = 2
};

/* How the fused kernel deals out its work. */
typedef struct layout {
    int columns, peers, splits;   /* columns of a block; a cluster is splits x peers blocks */
    int dh_groups, dw_groups;     /* warpgroups of each product */
    int front_warps;              /* that form dz */
    int dz_stages, hidden_stages; /* blocks of 64 tokens in shared memory */
    int64_t slices;               /* of columns, a multiple of peers */
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

/* The narrowest slices that need the fewest waves of clusters. */
static int formed_columns(const kn_router *r) {
    int best = 64, most = expert_blocks(r) > 2 ? 64 : 128; /* accumulators */
    int64_t fewest = INT64_MAX;
    for (int columns = 64; columns <= most; columns += 8) {
        int64_t clusters = kn_router_ceil_div(kn_router_ceil_div(r->hidden, columns), 2);
        int64_t waves = kn_router_ceil_div(clusters, FORMED_CLUSTERS);
        if (waves < fewest) best = columns;
        if (waves < fewest) fewest = waves;
    }
    return best;
}

/* Whether the threads that form dz have the registers for it. */
static bool can_form(const kn_router *r) {
    return r->p->axis[KN_ROUTER_K] <= FORMED_SLOTS * kn_router_lanes(r->experts);
}

/* The names of the ways, for tuning files. */
static const char formed_name[] = "formed", narrow_name[] = "streamed-64", wide_name[] = "streamed-128";

/* What a tuning file says of this call. What was measured for these sizes says nothing about a generic kernel. */
static kn_status follow_tuning(kn_router *r) {
    char key[96], where[256];
    snprintf(key, sizeof key, "router:%" PRId64 "x%" PRId64 "x%" PRId64 "x%" PRId64, r->tokens, r->hidden, r->experts,
             r->p->axis[KN_ROUTER_K]);
    const char *wanted = r->p->generic ? NULL : kn_tuning_find(r->facts->tuning, key);
    if (!wanted) return KN_OK;
    kn_tuning_where(r->facts->tuning, key, where, sizeof where);
    bool formed = strcmp(wanted, formed_name) == 0, wide = strcmp(wanted, wide_name) == 0;
    KN_REQUIRE(formed || wide || strcmp(wanted, narrow_name) == 0, KN_E_FORMAT,
               "%s chooses \"%.40s\" for %s; wanted %s, %s or %s", where, wanted, key, formed_name, narrow_name,
               wide_name);
    KN_REQUIRE(!formed || can_form(r), KN_E_FORMAT, "%s chooses %s for %s, which is not possible: too many slots",
               where, wanted, key);
    KN_REQUIRE(!wide || expert_blocks(r) <= 2, KN_E_FORMAT,
               "%s chooses %s for %s, which is not possible: more than 128 experts", where, wanted, key);
    r->formed = formed;
    r->narrow = !wide;
    return KN_OK;
}

void kn_router_choose_fused(kn_router *r) {
    /* Every cluster forms dz of all tokens. */
    int64_t clusters = kn_router_ceil_div(kn_router_ceil_div(r->hidden, formed_columns(r)), 2);
    r->formed = r->tokens <= FORMED_TOKENS && r->tokens * clusters <= FORMED_WORK && can_form(r);
    r->narrow = expert_blocks(r) > 2 || r->tokens <= KN_ROUTER_FEW_TOKENS;
    if (r->builder->status == KN_OK) r->builder->status = follow_tuning(r);
}

/* Warps that form dz: as many as their registers allow, which go by what must be computed. */
static int formed_warps(const kn_router *r, int columns) {
    const kn_problem *p = r->p;
    bool staged = r->hidden_out && p->align_log2[KN_ROUTER_OUT_HIDDEN] < 4;
    int extra = r->bias_out + kn_router_has(p, KN_ROUTER_AUX) + kn_router_has(p, KN_ROUTER_Z_LOSS) +
                (p->option[KN_ROUTER_SCORE] == KILN_SCORE_SQRTSOFTPLUS) +
                (p->axis[KN_ROUTER_K] > kn_router_lanes(r->experts)) + (r->experts > 128);
    if (extra > 1) return 4;
    return extra == 0 && !staged && columns <= 80 ? 12 : 8;
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

/* Blocks of 64 experts, the same number for each warpgroup. */
static int64_t padded_blocks(const kn_router *r, int groups) {
    return groups > 1 ? kn_router_ceil_div(expert_blocks(r), groups) * groups : expert_blocks(r);
}

/* Stages of dz and hidden_states: what shared memory holds beside the rest. What comes from memory is as far ahead as
 * it goes. */
static void choose_stages(const kn_router *r, bool formed, layout *x) {
    int64_t blocks = padded_blocks(r, x->dw_groups), tile = TILE * kn_router_ceil_div(x->columns, 64);
    int64_t lanes = kn_router_lanes(r->experts), row = 4 * lanes * 4 * kn_router_ceil_div(r->experts, 4 * lanes);
    int64_t left = (int64_t)r->facts->smem_per_block - SLACK;
    bool two_rows = r->p->option[KN_ROUTER_SCORE] == KILN_SCORE_SOFTMAX_SELECTED;
    /* Rows on their way to grad_hidden_states, 16 of each warp: as they are, or as floats. */
    int64_t patches = r->p->align_log2[KN_ROUTER_OUT_HIDDEN] < 4 ? PATCHES : 64 * (2 * x->columns + 16);
    if (x->dh_groups) left -= blocks * tile;
    left -= x->dh_groups * patches;
    if (formed) left -= x->front_warps * (32 / lanes) * row * (two_rows ? 2 : 1);
    int64_t dz = blocks * TILE, hidden = x->dw_groups ? tile : 0;
    int64_t share = x->dw_groups ? 64 * blocks * 4 * ((x->columns + 23) / 32 * 32 + 8) : 0;
    int64_t n = MAX_STAGES, d = formed ? FORMED_DZ_STAGES : 0;
    while (formed && d > 1 && d * dz + (share > 2 * hidden ? share : 2 * hidden) > left) d /= 2;
    while (n > 1 && (formed ? d : n) * dz + (share > n * hidden ? share : n * hidden) > left) n--;
    x->dz_stages = (int)(formed ? d : n);
    x->hidden_stages = (int)n;
}

static layout layout_of(const kn_router *r, bool formed) {
    layout x = {.peers = 1, .dh_groups = r->hidden_out, .dw_groups = r->weight_out ? 1 : 0};
    int64_t blocks = expert_blocks(r);
    x.columns = formed ? formed_columns(r) : r->narrow ? 64 : STREAM_COLUMNS;
    if (r->hidden <= 64) x.columns = 64;
    if (x.columns == STREAM_COLUMNS && r->hidden_out) x.dh_groups = 2;
    if (r->weight_out && blocks > 1) x.dw_groups = 2;
    x.slices = kn_router_ceil_div(r->hidden, x.columns);
    if (formed) {
        x.peers = x.slices > 1 ? 2 : 1;
        x.slices = kn_router_ceil_div(x.slices, x.peers) * x.peers;
        x.splits = FORMED_SPLITS;
        x.front_warps = formed_warps(r, x.columns);
    } else {
        x.splits = splits_of(x.slices);
    }
    choose_stages(r, formed, &x);
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
    kn_params_set(params, "COLUMNS", x->columns);
    kn_params_set(params, "SPLITS", x->splits);
    kn_params_set(params, "PEERS", x->peers);
    kn_params_set(params, "DL_STAGES", x->dz_stages);
    kn_params_set(params, "H_STAGES", x->hidden_stages);
    kn_params_set(params, "DH_GROUPS", x->dh_groups);
    kn_params_set(params, "DW_GROUPS", x->dw_groups);
}

/* Where dz comes from: the arguments of router_token, or dz in workspace and the partial sums of grad_gate_bias. */
static void bind_front(const kn_router *r, bool formed, kn_launch_spec *l) {
    if (formed) {
        kn_router_bind_token(r->p, l);
        kn_bind_tensor(l, KN_ROUTER_OUT_LOGITS, 0);
        kn_bind_stride(l, KN_ROUTER_OUT_LOGITS, 0);
    } else {
        kn_bind_map(l, add_map(r, -1, r->dz_at, r->dz, r->experts, r->tokens, r->dz_ld, 64));
        if (r->bias_out) {
            kn_bind_workspace(l, r->parts_at);
        } else {
            kn_bind_i64(l, 0);
        }
        kn_bind_i32(l, (int32_t)kn_router_bias_parts(r));
    }
    kn_bind_tensor(l, KN_ROUTER_OUT_GATE_BIAS, 0);
}

void kn_router_emit_fused(const kn_router *r, bool formed) {
    const kn_problem *p = r->p;
    kn_dtype input = (kn_dtype)p->dtype[KN_ROUTER_HIDDEN];
    layout x = layout_of(r, formed);
    int kernel;
    kn_params *params = kn_add_kernel(r->builder, "router_fused.ptxt", &kernel);
    kn_params_set_name(params, "FRONT", formed ? "formed" : "stream");
    kn_params_set(params, "TOKENS", p->generic ? -1 : r->tokens);
    kn_params_set(params, "H", r->hidden);
    kn_params_set_name(params, "T", kn_dtype_name(input));
    kn_params_set(params, "BIAS", r->bias_out);
    kn_params_set(params, "BIAS_ADD", r->bias_out && kn_router_accumulates(p, KN_ROUTER_OUT_GATE_BIAS));
    set_layout(&x, params);
    set_outputs(r, params);
    if (formed) {
        kn_params_set(params, "FRONT_WARPS", x.front_warps);
        kn_router_token_params(p, params);
        kn_router_logits_params(r, params);
    } else {
        kn_params_set(params, "E", r->experts);
    }
    int hidden_map = add_map(r, KN_ROUTER_HIDDEN, 0, input, r->hidden, r->tokens, 0, 64);
    int weight_map = add_map(r, KN_ROUTER_GATE_WEIGHT, 0, input, r->hidden, r->experts, 0, 64);
    kn_launch_spec *l = kn_add_launch(r->builder, kernel, (uint32_t)(x.slices * x.splits), 1, 1);
    l->dependent = true;
    kn_bind_map(l, hidden_map);
    kn_bind_map(l, weight_map);
    bind_front(r, formed, l);
    bind_outputs(r, l);
    size_t used = 0;
    while (r->builder->program->note[used]) used++;
    snprintf(r->builder->program->note + used, sizeof r->builder->program->note - used,
             "both products fused: dz %s, clusters of %d x %d columns and %d shares of the tokens, %d stages; ",
             formed ? "formed in the kernel" : "streamed", x.peers, x.columns, x.splits, x.hidden_stages);
}
