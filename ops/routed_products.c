/* ops/routed_products: the matrix products of routed_experts_backward as the product engine knows them.
 *
 * Rows are sorted by expert: g, u, a and dx are products of ragged rows (KN_GROUP_M), the weight gradients of ragged
 * depth (KN_GROUP_K). On Hopper the former stream the weights through gemm_rs, the latter
 * are gemm_dw's. */
#include "ops/gemm_dw.h"
#include "ops/gemm_rs.h"
#include "ops/routed_internal.h"

#include <stdio.h>

/* A matrix of the workspace: `columns` elements a row. */
static kn_gemm_operand slice(int64_t at, kn_dtype dtype, int64_t columns, bool depth_contiguous) {
    return (kn_gemm_operand){.place = kn_place_workspace(at),
                             .dtype = dtype,
                             .depth_contiguous = depth_contiguous,
                             .stride_dim = -1,
                             .stride_elems = columns,
                             .group_dim = -1,
                             .align_log2 = columns % 8 == 0 ? 4 : 0};
}

/* dg, du or w h, which lie side by side. */
static kn_gemm_operand act_slice(const kn_routed *r, int64_t at, bool depth_contiguous) {
    kn_gemm_operand o = slice(at, r->precision.act, 3 * r->inner, depth_contiguous);
    o.align_log2 = r->inner % 8 == 0 ? 4 : 0;
    return o;
}

/* Matrix e of a tensor [L, rows, columns]. */
static kn_gemm_operand expert_matrix(const kn_routed *r, int arg, bool depth_contiguous) {
    return (kn_gemm_operand){.place = kn_place_arg(arg),
                             .dtype = (kn_dtype)r->p->dtype[arg],
                             .depth_contiguous = depth_contiguous,
                             .stride_dim = 1,
                             .group_dim = 0,
                             .align_log2 = r->p->align_log2[arg]};
}

/* A product of all rows: D[rows, n] = A[rows, k] * B_e[k, n]. */
static kn_gemm row_product(const kn_routed *r, const char *symbol, int64_t n, int64_t map) {
    return (kn_gemm){.symbol = symbol,
                     .m = r->rows,
                     .n = n,
                     .m_is_tokens = true,
                     .one_tile = true,
                     .n_segments = 1,
                     .promote = r->precision.promote ? KN_GEMM_PROMOTE_CHAIN : 0,
                     .group = KN_GROUP_M,
                     .n_groups = r->local,
                     .offsets = kn_place_workspace(r->at.offsets),
                     .offsets_dtype = KN_I32,
                     .tile_map = kn_place_workspace(map),
                     .epilogue = "store"};
}

/* In how many bf16 parts an operand is taken. A bf16 number is one; an f16 one is two beside others than f16. */
static int parts_of(const kn_gemm_operand *o, int wanted) {
    return o->dtype == KN_F32 ? wanted : (o->dtype == KN_F16 && wanted > 1 ? 2 : 1);
}

static void set_parts(kn_gemm *g, int wanted) {
    g->a_split = parts_of(&g->segment[0].a, wanted);
    g->b_split = parts_of(&g->segment[0].b, wanted);
}

/* dy or x as the first products take it. */
static kn_gemm_operand token_rows(const kn_routed *r, int64_t at) {
    if (r->precision.scaled_parts) return slice(at + r->scaled_skip, KN_F16, r->hidden, true);
    return slice(at, r->precision.rows, r->hidden, true);
}

/* g = x * gate^T, or u = x * up^T. */
static kn_gemm gate_or_up(const kn_routed *r, bool is_gate) {
    kn_gemm g = row_product(r, "routed_gate_up", r->inner, r->at.inner_map);
    g.segment[0].a = token_rows(r, r->at.x);
    g.segment[0].b = expert_matrix(r, is_gate ? KN_ROUTED_GATE : KN_ROUTED_UP, true);
    g.segment[0].k = r->hidden;
    set_parts(&g, r->precision.forward_split);
    g.d = slice(is_gate ? r->at.gate : r->at.up, r->precision.gate_up, r->inner, false);
    return g;
}

static kn_gemm activation_product(const kn_routed *r) {
    kn_gemm g = row_product(r, "routed_da", r->inner, r->at.inner_map);
    g.segment[0].a = token_rows(r, r->at.dy);
    g.segment[0].b = expert_matrix(r, KN_ROUTED_DOWN, false);
    g.segment[0].k = r->hidden;
    set_parts(&g, r->precision.forward_split);
    g.epilogue = "routed_swiglu";
    g.epi_align_log2 = r->inner % 8 == 0 ? 4 : 0; /* workspace alone */
    return g;
}

static kn_gemm dx_product(const kn_routed *r) {
    kn_gemm g = row_product(r, "routed_dx", r->hidden, r->at.hidden_map);
    g.n_segments = 2;
    for (int s = 0; s < 2; s++) {
        g.segment[s].a = r->scaled_dx ? slice(r->at.act_scaled + 2 * s * r->inner, KN_F16, 2 * r->inner, true)
                                      : act_slice(r, s ? r->at.dup : r->at.dgate, true);
        g.segment[s].b = expert_matrix(r, s ? KN_ROUTED_UP : KN_ROUTED_GATE, false);
        g.segment[s].k = r->inner;
    }
    set_parts(&g, r->precision.gradient_split);
    g.d = slice(r->at.dx, r->precision.dx, r->hidden, false);
    return g;
}

/* Whether the Hopper kernel of g, u and a can read what the caller has, and is as precise as is wanted. */
bool kn_routed_can_be_fast(const kn_routed *r) {
    const kn_routed_precision *q = &r->precision;
    if (q->act != KN_BF16 && r->in != KN_F16 && !q->promote) return false;
    kn_gemm da = activation_product(r), gate = gate_or_up(r, true), up = gate_or_up(r, false);
    return kn_gemm_rs_fits(&da, r->p, r->target) && kn_gemm_rs_fits(&gate, r->p, r->target) &&
           kn_gemm_rs_fits(&up, r->p, r->target);
}

/* Their kernels take one 16-bit number of each operand. */
bool kn_routed_can_have_fast_gradients(const kn_routed *r) {
    kn_gemm dx = dx_product(r);
    return r->precision.act == KN_BF16 && r->in != KN_F16 && kn_gemm_rs_fits(&dx, r->p, r->target);
}

/* dg and du row by row as scaled f16, where fp32 is too wide for the tensor cores and bf16 too coarse. */
bool kn_routed_can_scale_dx(const kn_routed *r) {
    kn_gemm dx = dx_product(r);
    return kn_gemm_rs_fits(&dx, r->p, r->target);
}

/* scales: of dy or x, for the first products. */
static kn_gemm_rs stream_how(const kn_routed *r, bool forward, int64_t scales) {
    bool scaled = forward ? r->precision.scaled_parts > 0 : r->scaled_dx, promote = scaled && r->precision.promote;
    return (kn_gemm_rs){.products = promote ? 3 : 1,
                        .fp32 = r->in == KN_F32,
                        .low_bytes = forward ? r->low_skip : 4 * r->rows * r->inner,
                        .promote = promote,
                        .halves = r->p->generic,
                        .scaled = scaled,
                        .scales = forward ? scales : r->at.act_scales};
}

/* Reports set a launch's time beside the bytes of the weights, or of their gradients, that it cannot do without. */
static void set_launch_floor(const kn_routed *r, const kn_gemm_operand *matrix, int times) {
    kn_program *out = r->b->program;
    if (out->n_launches == 0) return;
    out->launch[out->n_launches - 1].floor_bytes +=
        times * (double)r->local * (double)r->inner * (double)r->hidden * kn_dtype_size(matrix->dtype);
}

/* Products of rows, n of the same tokens; `forward`: the first ones, of x or dy with these scales. */
static void emit_rows(const kn_routed *r, const kn_gemm *const *g, int n, bool forward, int64_t scales) {
    bool fast = forward ? r->fast : r->fast_gradients || r->scaled_dx;
    if (fast) {
        kn_gemm_rs how = stream_how(r, forward, scales);
        kn_gemm_rs_emit(r->b, g, n, &how, forward ? r->tile : r->dx_tile, r->p, r->facts);
    }
    for (int i = 0; i < n; i++) {
        if (!fast) kn_gemm_emit(r->b, g[i], r->p, r->facts, r->target);
        if (r->rows > 0) set_launch_floor(r, &g[i]->segment[0].b, g[i]->n_segments);
    }
}

/* Without tokens too there is a row, so that every column has an address. */
static int64_t reserve_rows(kn_routed *r, int64_t columns, kn_dtype dtype) {
    return kn_routed_reserve(r, (uint64_t)(r->rows ? r->rows : 1) * (uint64_t)columns * kn_dtype_size(dtype));
}

static int64_t reserve_map(kn_routed *r, int64_t tile_m) {
    return kn_routed_reserve(r, (uint64_t)kn_gemm_tile_map_entries(r->rows, r->local, tile_m) * 8);
}

/* A generic layer has few kernels: one tile serves all numbers of tokens. No tile changes a bit of the result. */
static void reserve_maps(kn_routed *r) {
    kn_gemm inner = activation_product(r), dx = dx_product(r);
    kn_gemm_rs first = stream_how(r, true, 0), last = stream_how(r, false, 0);
    r->tile = r->fast ? kn_gemm_rs_tile(&first, r->pairs, r->local, r->pad) : kn_gemm_tile_m(&inner, r->p, r->target);
    bool fast_dx = r->fast_gradients || r->scaled_dx;
    r->dx_tile = fast_dx ? kn_gemm_rs_tile(&last, r->pairs, r->local, r->pad) : kn_gemm_tile_m(&dx, r->p, r->target);
    r->tail = r->tile > r->dx_tile ? r->tile : r->dx_tile;
    if (r->tail < 64) r->tail = 64; /* a block of depth of the weight gradients */
    r->at.inner_map = reserve_map(r, r->tile);
    r->at.hidden_map = r->dx_tile == r->tile ? r->at.inner_map : reserve_map(r, r->dx_tile);
}

/* A token's rows of dx meet in routed_combine. g is dead by then: dx takes its place where it fits. */
static void reserve_dx(kn_routed *r) {
    bool fits = r->hidden * kn_dtype_size(r->precision.dx) <= r->inner * kn_dtype_size(r->precision.gate_up);
    r->at.dx = !r->gate_saved && fits ? r->at.gate : reserve_rows(r, r->hidden, r->precision.dx);
}

void kn_routed_reserve_products(kn_routed *r) {
    const kn_routed_precision *q = &r->precision;
    int64_t own = kn_dtype_size(q->rows), halves = own / 2 + q->scaled_parts;
    r->scaled_skip = r->rows * r->hidden * own;
    r->low_skip = r->rows * r->hidden * 2;
    r->at.x = reserve_rows(r, halves * r->hidden, KN_F16);  /* read by three products: gathered once */
    r->at.dy = reserve_rows(r, halves * r->hidden, KN_F16); /* by two */
    if (q->scaled_parts) {                                  /* from the gather to the products that undo the scales */
        r->at.x_scales = kn_routed_reserve(r, (uint64_t)r->rows * 4);
        r->at.dy_scales = kn_routed_reserve(r, (uint64_t)r->rows * 4);
    }
    /* g and u wait for a, then die */
    r->at.gate = r->gate_saved ? 0 : reserve_rows(r, r->inner, q->gate_up);
    r->at.up = r->up_saved ? 0 : reserve_rows(r, r->inner, q->gate_up);
    r->at.act = reserve_rows(r, 3 * r->inner, q->act); /* from the first phase to the other two */
    r->at.dgate = r->at.act;
    r->at.dup = r->at.dgate + r->inner * kn_dtype_size(q->act);
    r->at.hw = r->at.dup + r->inner * kn_dtype_size(q->act);
    if (r->scaled_dx) { /* from their scaling to the product that undoes it */
        int64_t parts = q->promote ? 2 : 1;
        r->at.act_scaled = reserve_rows(r, parts * 2 * r->inner, KN_F16);
        r->at.act_scales = reserve_rows(r, 1, KN_F32);
    }
    reserve_maps(r);
    r->partials = (r->inner + 15) / 16;
    if (r->want_weights) /* a sum a row and 16 columns, added up in order at the end */
        r->at.partials = kn_routed_reserve(r, (uint64_t)r->rows * (uint64_t)r->partials * 4);
    if (r->want_hidden) reserve_dx(r);
}

void kn_routed_emit_gate_up(const kn_routed *r) {
    kn_gemm gate = gate_or_up(r, true), up = gate_or_up(r, false);
    const kn_gemm *products[2];
    int n = 0;
    if (!r->gate_saved) products[n++] = &gate;
    if (!r->up_saved) products[n++] = &up;
    if (n > 0) emit_rows(r, products, n, true, r->at.x_scales);
}

/* ---- a, and all that follows from it element by element ---------------------------------------------------------- */

static void add_name(kn_gemm *g, const char *name, const char *text) {
    kn_param *q = &g->epi_param[g->n_epi_params++];
    snprintf(q->name, sizeof q->name, "%s", name);
    snprintf(q->text, sizeof q->text, "%s", text);
    q->is_name = true;
}

static void add_value(kn_gemm *g, const char *name, int64_t value) {
    kn_param *q = &g->epi_param[g->n_epi_params++];
    snprintf(q->name, sizeof q->name, "%s", name);
    q->value = value;
}

static void add_activation(kn_gemm *g, const kn_problem *p) {
    if (p->source[0] || p->source[1]) {
        add_name(g, "ACTIVATION", "user");
        add_value(g, "USER0", (int64_t)p->source[0]);
        add_value(g, "USER1", (int64_t)p->source[1]);
        return;
    }
    add_value(g, "ALPHA", p->option[KN_ROUTED_ALPHA]);
    add_value(g, "LIMIT", p->option[KN_ROUTED_LIMIT]);
    add_value(g, "OFFSET", p->option[KN_ROUTED_ACT_OFFSET]);
}

static void add_binding(kn_gemm *g, uint8_t kind, int arg, int dim, int64_t value) {
    g->epi_bind[g->n_epi_bind++] = (kn_binding){.kind = kind, .arg = (uint8_t)arg, .dim = (uint8_t)dim, .value = value};
}

/* g or u: a saved tensor [T, K, I], or rows of the workspace. */
static void bind_read(const kn_routed *r, kn_gemm *g, bool saved, int arg, int64_t at) {
    if (saved) {
        add_binding(g, KN_BIND_TENSOR, arg, 0, 0);
        add_binding(g, KN_BIND_STRIDE, arg, 0, 0);
        add_binding(g, KN_BIND_STRIDE, arg, 1, 0);
    } else {
        add_binding(g, KN_BIND_WORKSPACE, 0, 0, at);
        add_binding(g, KN_BIND_I64, 0, 0, r->inner);
        add_binding(g, KN_BIND_I64, 0, 0, 0);
    }
}

static int64_t read_vec(const kn_routed *r) {
    bool wide = r->inner % 8 == 0;
    if (r->gate_saved) wide = wide && r->p->align_log2[KN_ROUTED_SAVED_GATE] >= 4;
    if (r->up_saved) wide = wide && r->p->align_log2[KN_ROUTED_SAVED_UP] >= 4;
    return wide ? 8 : 1;
}

void kn_routed_emit_activation_gradient(const kn_routed *r) {
    kn_gemm g = activation_product(r);
    const kn_routed_precision *q = &r->precision;
    add_name(&g, "GATE_T", kn_dtype_name(r->gate_saved ? r->in : q->gate_up));
    add_name(&g, "UP_T", kn_dtype_name(r->up_saved ? r->in : q->gate_up));
    add_value(&g, "GATE_SAVED", r->gate_saved);
    add_value(&g, "UP_SAVED", r->up_saved);
    add_value(&g, "READ_VEC", read_vec(r));
    add_name(&g, "ACT_T", kn_dtype_name(q->act));
    add_value(&g, "ACT_SKIP", r->inner);
    add_name(&g, "WEIGHT_ON", r->on_input ? "input" : "output");
    add_value(&g, "PARTIAL", r->want_weights);
    add_activation(&g, r->p);
    bind_read(r, &g, r->gate_saved, KN_ROUTED_SAVED_GATE, r->at.gate);
    bind_read(r, &g, r->up_saved, KN_ROUTED_SAVED_UP, r->at.up);
    add_binding(&g, KN_BIND_I32, 0, 0, r->top_k);
    add_binding(&g, KN_BIND_WORKSPACE, 0, 0, r->at.row_pair);
    add_binding(&g, KN_BIND_WORKSPACE, 0, 0, r->at.row_weight);
    add_binding(&g, KN_BIND_WORKSPACE, 0, 0, r->at.act);
    add_binding(&g, KN_BIND_I64, 0, 0, 3 * r->inner);
    if (r->want_weights) {
        add_binding(&g, KN_BIND_WORKSPACE, 0, 0, r->at.partials);
    } else {
        add_binding(&g, KN_BIND_I64, 0, 0, 0);
    }
    add_binding(&g, KN_BIND_I64, 0, 0, r->partials);
    const kn_gemm *products[1] = {&g};
    emit_rows(r, products, 1, true, r->at.dy_scales);
}

/* ---- gradients --------------------------------------------------------------------------------------------------- */

/* D_e[m, n] = sum over the expert's rows of left[row, m] * right[row, n] */
static kn_gemm weight_gradient(const kn_routed *r, int output, kn_gemm_operand left, int64_t m, kn_gemm_operand right,
                               int64_t n) {
    kn_gemm g = {.symbol = "routed_dw",
                 .m = m,
                 .n = n,
                 .k_is_tokens = true,
                 .n_segments = 1,
                 .segment = {{left, right, r->rows}},
                 .promote = r->precision.promote ? KN_GEMM_PROMOTE_CHAIN : 0,
                 .group = KN_GROUP_K,
                 .n_groups = r->local,
                 .offsets = kn_place_workspace(r->at.offsets),
                 .offsets_dtype = KN_I32,
                 .d = expert_matrix(r, output, false),
                 .accumulate = kn_routed_accumulates(r, output),
                 .epilogue = "store"};
    set_parts(&g, r->precision.gradient_split);
    return g;
}

/* On Hopper gradients of one type, all added to or all not, share a launch. */
static void emit_fast_gradients(const kn_routed *r, const kn_gemm *g, int n) {
    bool done[KN_GEMM_DW_MAX] = {false};
    for (int i = 0; i < n; i++) {
        const kn_gemm *group[KN_GEMM_DW_MAX];
        int members = 0, touched = g[i].accumulate ? 2 : 1;
        if (done[i]) continue;
        if (!kn_gemm_dw_fits(&g[i], r->p, r->target)) {
            kn_gemm_emit(r->b, &g[i], r->p, r->facts, r->target);
            set_launch_floor(r, &g[i].d, touched);
            continue;
        }
        for (int j = i; j < n; j++) {
            if (done[j] || g[j].d.dtype != g[i].d.dtype || g[j].accumulate != g[i].accumulate) continue;
            if (!kn_gemm_dw_fits(&g[j], r->p, r->target)) continue;
            group[members++] = &g[j];
            done[j] = true;
        }
        kn_gemm_dw_emit(r->b, group, members, r->p, r->facts);
        set_launch_floor(r, &g[i].d, members * touched);
    }
}

void kn_routed_emit_weight_gradients(const kn_routed *r) {
    const kn_routed_precision *q = &r->precision;
    kn_gemm_operand x = slice(r->at.x, q->rows, r->hidden, false), dy = slice(r->at.dy, q->rows, r->hidden, false);
    kn_gemm_operand dgate = act_slice(r, r->at.dgate, false), dup = act_slice(r, r->at.dup, false);
    kn_gemm_operand hw = act_slice(r, r->at.hw, false);
    kn_gemm g[KN_GEMM_DW_MAX];
    int n = 0;
    if (r->want_gate) g[n++] = weight_gradient(r, KN_ROUTED_GRAD_GATE, dgate, r->inner, x, r->hidden);
    if (r->want_up) g[n++] = weight_gradient(r, KN_ROUTED_GRAD_UP, dup, r->inner, x, r->hidden);
    if (r->want_down) g[n++] = weight_gradient(r, KN_ROUTED_GRAD_DOWN, dy, r->hidden, hw, r->inner);
    if (r->fast_gradients) {
        emit_fast_gradients(r, g, n);
        return;
    }
    for (int i = 0; i < n; i++) {
        kn_gemm_emit(r->b, &g[i], r->p, r->facts, r->target);
        set_launch_floor(r, &g[i].d, g[i].accumulate ? 2 : 1);
    }
}

void kn_routed_emit_dx(const kn_routed *r) {
    kn_gemm g = dx_product(r);
    const kn_gemm *products[1] = {&g};
    emit_rows(r, products, 1, false, 0);
}
