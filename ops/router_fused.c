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
    MADE_SLOTS = 4,            /* slots of a thread: registers */
    FEW_MAKERS = 16,           /* blocks that form dz for the others, at least, */
    MANY_MAKERS = 32,          /* and for many tokens */
    STREAM_COLUMNS = 128,      /* 64 for few tokens: a shorter way for each block of them */
    TILE = 8192,               /* bytes of 64 x 64 elements */
    PATCHES = 4 * 4 * 16 * 68, /* bytes of a warpgroup's patches in the epilogue, where rows are not aligned */
    MAX_STAGES = 8,
    SLACK = 4096, /* barriers, sums of grad_gate_bias, alignment */
    MAP_BF16 = 9, /* CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 */
    MAP_F16 = 6,
    SWIZZLE_128B = 3,
    PROMOTE_128B = 2
};

/* How the fused kernel deals out its work. */
typedef struct layout {
    int columns, splits;          /* columns of a block; shares of the tokens */
    bool cluster;                 /* blocks with the same columns are a cluster */
    int dh_groups, dw_groups;     /* warpgroups of each product */
    int dz_stages, hidden_stages; /* blocks of 64 tokens in shared memory */
    int64_t slices;               /* of columns */
    int makers;                   /* clusters that form dz for the others */
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

/* Whether the makers' threads have the registers for it. */
static bool can_make(const kn_router *r) {
    return r->p->axis[KN_ROUTER_K] <= MADE_SLOTS * kn_router_lanes(r->experts);
}

/* The ways, as tuning files name them. */
typedef struct way {
    const char *name;
    kn_router_front front;
    int columns;
    bool cluster;
} way;
static const way ways[] = {{"streamed-64", KN_ROUTER_STREAM, 64, true},
                           {"streamed-128", KN_ROUTER_STREAM, 128, true},
                           {"made-64", KN_ROUTER_MADE, 64, true},
                           {"made-128", KN_ROUTER_MADE, 128, false}};
enum { WAYS = sizeof ways / sizeof ways[0] };

static void take(kn_router *r, const way *w) {
    r->front = w->front;
    r->columns = w->columns;
    r->cluster = w->cluster;
}

/* What a tuning file says of this call. What was measured for these sizes says nothing about a generic kernel. */
static kn_status follow_tuning(kn_router *r) {
    char key[96], where[256];
    snprintf(key, sizeof key, "router:%" PRId64 "x%" PRId64 "x%" PRId64 "x%" PRId64, r->tokens, r->hidden, r->experts,
             r->p->axis[KN_ROUTER_K]);
    const char *wanted = r->p->generic ? NULL : kn_tuning_find(r->facts->tuning, key);
    const way *found = NULL;
    if (!wanted) return KN_OK;
    kn_tuning_where(r->facts->tuning, key, where, sizeof where);
    for (int i = 0; i < WAYS; i++)
        if (strcmp(wanted, ways[i].name) == 0) found = &ways[i];
    KN_REQUIRE(found, KN_E_FORMAT, "%s chooses \"%.40s\" for %s; wanted %s, %s, %s or %s", where, wanted, key,
               ways[0].name, ways[1].name, ways[2].name, ways[3].name);
    KN_REQUIRE(found->front != KN_ROUTER_MADE || can_make(r), KN_E_FORMAT,
               "%s chooses %s for %s, which is not possible: too many slots", where, wanted, key);
    KN_REQUIRE(found->columns <= 64 || expert_blocks(r) <= 2, KN_E_FORMAT,
               "%s chooses %s for %s, which is not possible: more than 128 experts", where, wanted, key);
    take(r, found);
    return KN_OK;
}

void kn_router_choose_fused(kn_router *r) {
    bool narrow = expert_blocks(r) > 2 || r->tokens <= KN_ROUTER_FEW_TOKENS;
    take(r, &ways[narrow ? 0 : 1]);
    if (r->builder->status == KN_OK) r->builder->status = follow_tuning(r);
}

/* Clusters of 1, 2, ... blocks that fit at once on 132 multiprocessors in groups of 16 and 18 (docs/router.md). */
static const int fit[] = {132, 66, 39, 30, 22, 17, 15, 15};

/* Shares of the tokens, whatever the device: as many as fit at once beside so many blocks of makers. */
static int splits_of(int64_t slices, int makers, bool cluster) {
    for (int splits = KN_ROUTER_MAX_SPLITS; splits > 1; splits--) {
        if (!cluster && slices * splits + makers <= fit[0]) return splits;
        if (cluster && slices + kn_router_ceil_div(makers, splits) <= fit[splits - 1]) return splits;
    }
    return 1;
}

/* Blocks of 64 experts, the same number for each warpgroup. */
static int64_t padded_blocks(const kn_router *r, int groups) {
    return groups > 1 ? kn_router_ceil_div(expert_blocks(r), groups) * groups : expert_blocks(r);
}

/* Stages of dz and hidden_states: what shared memory holds beside the rest. */
static void choose_stages(const kn_router *r, layout *x) {
    int64_t blocks = padded_blocks(r, x->dw_groups), tile = TILE * kn_router_ceil_div(x->columns, 64);
    int64_t left = (int64_t)r->facts->smem_per_block - SLACK;
    /* Rows on their way to grad_hidden_states, 16 of each warp: as they are, or as floats. */
    int64_t patches = r->p->align_log2[KN_ROUTER_OUT_HIDDEN] < 4 ? PATCHES : TILE;
    if (x->dh_groups) left -= blocks * tile;
    left -= x->dh_groups * patches;
    /* What other blocks of the cluster send: their sums of this one's columns. */
    if (x->dw_groups && x->cluster)
        left -= (x->splits - 1) * kn_router_ceil_div(x->columns / 8, x->splits) * 8 * 64 * blocks * 4;
    int64_t dz = blocks * TILE, hidden = x->dw_groups ? tile : 0, n = MAX_STAGES;
    while (n > 1 && n * (dz + hidden) > left) n--;
    x->dz_stages = x->hidden_stages = (int)n;
}

/* Clusters of makers: as many as fit beside the others, and at least `least` blocks; no more than there are tiles. */
static int makers_of(const kn_router *r, const layout *x, int least) {
    int size = x->cluster ? x->splits : 1;
    int64_t beside = fit[size - 1] - x->slices * (x->cluster ? 1 : x->splits);
    int64_t tiles = kn_router_ceil_div(kn_router_tiles(r), size), makers = kn_router_ceil_div(least, size);
    if (makers < beside) makers = beside;
    return (int)(makers < tiles ? makers : tiles);
}

static layout layout_of(const kn_router *r) {
    layout x = {.cluster = r->cluster, .dh_groups = r->hidden_out, .dw_groups = r->weight_out ? 1 : 0};
    int64_t blocks = expert_blocks(r);
    int makers = r->front != KN_ROUTER_MADE ? 0 : r->cluster ? FEW_MAKERS : MANY_MAKERS;
    x.columns = r->hidden <= 64 ? 64 : r->columns;
    if (r->hidden_out && blocks <= 2) x.dh_groups = 2;
    if (r->weight_out && blocks > 1) x.dw_groups = 2;
    x.slices = kn_router_ceil_div(r->hidden, x.columns);
    x.splits = splits_of(x.slices, makers, x.cluster);
    if (makers) x.makers = makers_of(r, &x, makers);
    choose_stages(r, &x);
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

static void bind_outputs(const kn_router *r, const layout *x, int64_t shares_at, kn_launch_spec *l) {
    kn_bind_tensor(l, KN_ROUTER_OUT_HIDDEN, 0);
    kn_bind_stride(l, KN_ROUTER_OUT_HIDDEN, 0);
    kn_bind_i64(l, 0);
    kn_bind_tensor(l, KN_ROUTER_OUT_GATE_WEIGHT, 0);
    kn_bind_stride(l, KN_ROUTER_OUT_GATE_WEIGHT, 0);
    if (x->cluster || !r->weight_out) {
        kn_bind_i64(l, 0);
    } else {
        kn_bind_workspace(l, shares_at);
    }
    kn_bind_i32(l, (int32_t)r->tokens);
}

static void set_layout(const layout *x, kn_params *params) {
    kn_params_set(params, "COLUMNS", x->columns);
    kn_params_set(params, "SPLITS", x->splits);
    kn_params_set_name(params, "EXCHANGE", x->cluster ? "cluster" : "workspace");
    kn_params_set(params, "DL_STAGES", x->dz_stages);
    kn_params_set(params, "H_STAGES", x->hidden_stages);
    kn_params_set(params, "DH_GROUPS", x->dh_groups);
    kn_params_set(params, "DW_GROUPS", x->dw_groups);
}

static void bind_parts(const kn_router *r, kn_launch_spec *l) {
    if (r->bias_out) {
        kn_bind_workspace(l, r->parts_at);
    } else {
        kn_bind_i64(l, 0);
    }
}

/* Where dz comes from: front_params() of the fronts. */
static void bind_front(const kn_router *r, const layout *x, kn_launch_spec *l) {
    if (r->front != KN_ROUTER_STREAM) {
        kn_router_bind_token(r->p, l);
        kn_bind_tensor(l, KN_ROUTER_OUT_LOGITS, 0);
        kn_bind_stride(l, KN_ROUTER_OUT_LOGITS, 0);
    }
    kn_bind_map(l, add_map(r, -1, r->dz_at, r->dz, r->experts, r->tokens, r->dz_ld, 64));
    if (r->front == KN_ROUTER_STREAM) {
        bind_parts(r, l);
        kn_bind_i32(l, (int32_t)kn_router_bias_parts(r));
    }
    if (r->front == KN_ROUTER_MADE) {
        kn_bind_workspace(l, r->dz_at);
        kn_bind_workspace(l, r->signals_at);
        kn_bind_workspace(l, r->signals_at + 8 * kn_router_tiles(r));
        bind_parts(r, l);
    }
    kn_bind_tensor(l, KN_ROUTER_OUT_GATE_BIAS, 0);
    if (r->front == KN_ROUTER_MADE) kn_bind_i32(l, x->makers);
}

/* Rows of grad_hidden_states leave by TMA (PLAIN of the template). */
static bool stores_boxes(const kn_router *r, const layout *x) {
    const kn_problem *p = r->p;
    int out = KN_ROUTER_OUT_HIDDEN;
    return r->hidden_out && p->dtype[out] != KN_F32 && !kn_router_accumulates(p, out) && p->align_log2[out] >= 4 &&
           x->columns % 64 == 0;
}

/* The launch that adds up the shares, where they are not a cluster. */
static void emit_sum(const kn_router *r, const layout *x, int64_t shares_at) {
    const kn_problem *p = r->p;
    int dw = KN_ROUTER_OUT_GATE_WEIGHT, kernel;
    kn_dtype type = r->weight_out ? (kn_dtype)p->dtype[dw] : KN_BF16;
    kn_params *params = kn_add_kernel(r->builder, "router_shares_sum.ptxt", &kernel);
    kn_params_set(params, "E", r->experts);
    kn_params_set(params, "H", r->hidden);
    kn_params_set(params, "SPLITS", x->splits);
    kn_params_set_name(params, "DW_T", kn_dtype_name(type));
    kn_params_set(params, "DW_VEC", 1u << p->align_log2[dw] >= 4 * kn_dtype_size(type) ? 4 : 1);
    kn_params_set(params, "DW_ADD", r->weight_out && kn_router_accumulates(p, dw));
    kn_params_set(params, "WEIGHT", r->weight_out);
    kn_params_set(params, "BIAS", r->bias_out);
    kn_params_set(params, "BIAS_ADD", r->bias_out && kn_router_accumulates(p, KN_ROUTER_OUT_GATE_BIAS));
    int64_t blocks = r->weight_out ? kn_router_ceil_div(r->experts * (r->hidden / 4), 256) : 0;
    if (r->bias_out) blocks += kn_router_ceil_div(r->experts, 256);
    kn_launch_spec *l = kn_add_launch(r->builder, kernel, (uint32_t)blocks, 1, 1);
    l->dependent = true;
    if (r->weight_out) {
        kn_bind_workspace(l, shares_at);
    } else {
        kn_bind_i64(l, 0);
    }
    kn_bind_tensor(l, dw, 0);
    kn_bind_stride(l, dw, 0);
    if (r->bias_out) {
        kn_bind_workspace(l, r->parts_at + kn_router_tiles(r) * r->experts * 4);
    } else {
        kn_bind_i64(l, 0);
    }
    kn_bind_tensor(l, KN_ROUTER_OUT_GATE_BIAS, 0);
}

void kn_router_emit_fused(const kn_router *r) {
    static const char *const fronts[] = {"stream", "made"};
    const kn_problem *p = r->p;
    kn_dtype input = (kn_dtype)p->dtype[KN_ROUTER_HIDDEN];
    layout x = layout_of(r);
    int kernel;
    kn_params *params = kn_add_kernel(r->builder, "router_fused.ptxt", &kernel);
    kn_params_set_name(params, "FRONT", fronts[r->front]);
    kn_params_set(params, "TOKENS", p->generic ? -1 : r->tokens);
    kn_params_set(params, "H", r->hidden);
    kn_params_set_name(params, "T", kn_dtype_name(input));
    kn_params_set(params, "BIAS", r->bias_out);
    kn_params_set(params, "BIAS_ADD", r->bias_out && kn_router_accumulates(p, KN_ROUTER_OUT_GATE_BIAS));
    set_layout(&x, params);
    set_outputs(r, params);
    if (r->front == KN_ROUTER_MADE) {
        kn_router_token_params(p, params);
        kn_router_logits_params(r, params);
    } else {
        kn_params_set(params, "E", r->experts);
    }
    int64_t shares_at = 0;
    if (!x.cluster && r->weight_out)
        shares_at = kn_add_workspace(r->builder, (uint64_t)(x.splits * r->experts * r->hidden) * 4);
    int hidden_map = add_map(r, KN_ROUTER_HIDDEN, 0, input, r->hidden, r->tokens, 0, 64);
    int weight_map = add_map(r, KN_ROUTER_GATE_WEIGHT, 0, input, r->hidden, r->experts, 0, 64);
    int64_t blocks = x.slices * x.splits + (int64_t)x.makers * (x.cluster ? x.splits : 1);
    kn_launch_spec *l = kn_add_launch(r->builder, kernel, (uint32_t)blocks, 1, 1);
    l->dependent = r->front == KN_ROUTER_STREAM;
    kn_bind_map(l, hidden_map);
    kn_bind_map(l, weight_map);
    if (stores_boxes(r, &x))
        kn_bind_map(l, add_map(r, KN_ROUTER_OUT_HIDDEN, 0, (kn_dtype)p->dtype[KN_ROUTER_OUT_HIDDEN], r->hidden,
                               r->tokens, 0, 16));
    bind_front(r, &x, l);
    bind_outputs(r, &x, shares_at, l);
    if (!x.cluster && (r->weight_out || r->bias_out)) emit_sum(r, &x, shares_at);
    size_t used = 0;
    while (r->builder->program->note[used]) used++;
    snprintf(r->builder->program->note + used, sizeof r->builder->program->note - used,
             "both products fused: dz %s, %d columns, %d shares of the tokens, %d stages, %d of makers; ",
             fronts[r->front], x.columns, x.splits, x.hidden_stages, x.makers);
}
