/* ops/routed: checks and planner of routed_experts_backward. docs/routed_experts.md derives the steps.
 *
 *   sort     pairs (token, slot) by expert, on the device, and the tiles of their rows: three steps of routed_sort
 *   gather   rows of hidden states and output gradients, sorted by expert
 *   1        g, u, then a = dy * down with all that follows from it element by element
 *   2        three weight gradients
 *   3        dx of every row, and the sum of each token's rows
 *
 * No step looks at a count on the host: grids are bounds from T, K and L, and rows or experts that are not there are
 * stepped over on the device. */
#include "ops/routed.h"

#include "kiln/kiln.h"
#include "ops/activation.h"
#include "ops/routed_internal.h"

#include <limits.h>
#include <stdio.h>

enum {
    MAX_LOCAL = 8192,
    MAX_TOP_K = 256,
    MAX_COLUMNS = 1 << 30, /* H and I */
    MAX_CHUNKS = 1024,
    CHUNK_PAIRS = 512, /* what one warp of the sort takes at least */
    STEP_PAIRS = 128,
    SHORT_SUM = 128 /* H below which `fast` takes its first products as `balanced` does */
};

/* ---- checks ------------------------------------------------------------------------------------------------------ */

static kn_status check_experts(const kiln_routed_experts_backward_options *o, int64_t local, int64_t *experts) {
    KN_REQUIRE(local >= 1 && local <= MAX_LOCAL, KN_E_SHAPE, "gate_weights has %lld experts; wanted 1 to %d",
               (long long)local, MAX_LOCAL);
    KN_REQUIRE(o->expert_lo >= 0 && o->expert_lo <= INT64_MAX - local, KN_E_ARG, "expert_lo is %lld; wanted at least 0",
               (long long)o->expert_lo);
    *experts = o->num_experts ? o->num_experts : o->expert_lo + local;
    KN_REQUIRE(*experts >= o->expert_lo + local, KN_E_ARG,
               "num_experts is %lld; wanted at least %lld: expert_lo is %lld and gate_weights has %lld experts",
               (long long)*experts, (long long)(o->expert_lo + local), (long long)o->expert_lo, (long long)local);
    return KN_OK;
}

kn_status kn_routed_experts_describe(const kn_call *call, kn_problem *p) {
    const kiln_routed_experts_backward_options *o = call->options;
    int64_t t = call->letter['T' - 'A'], h = call->letter['H' - 'A'], i = call->letter['I' - 'A'];
    int64_t local = call->letter['L' - 'A'], k = call->letter['K' - 'A'], experts = 0;
    bool ids = call->tensor[KN_ROUTED_IDS].dtype != KN_DTYPE_NONE;
    bool sorted = call->tensor[KN_ROUTED_OFFSETS].dtype != KN_DTYPE_NONE;
    KN_REQUIRE(ids != sorted, KN_E_ARG, "topk_indices and expert_offsets are %s; wanted one of the two",
               ids ? "both given" : "both NULL");
    KN_REQUIRE(!sorted || k == 1, KN_E_SHAPE,
               "topk_weights has %lld columns; wanted 1: with expert_offsets a row is one slot", (long long)k);
    KN_REQUIRE(k >= 1 && k <= MAX_TOP_K, KN_E_SHAPE, "topk_weights has %lld columns; wanted 1 to %d", (long long)k,
               MAX_TOP_K);
    KN_REQUIRE(h >= 1 && h <= MAX_COLUMNS, KN_E_SHAPE, "hidden_states has %lld columns; wanted 1 to %d", (long long)h,
               MAX_COLUMNS);
    KN_REQUIRE(i >= 1 && i <= MAX_COLUMNS, KN_E_SHAPE, "gate_weights has %lld rows an expert; wanted 1 to %d",
               (long long)i, MAX_COLUMNS);
    KN_TRY(check_experts(o, local, &experts));
    int64_t most = INT_MAX - 256 - 16 * local;
    KN_REQUIRE(t <= most / k, KN_E_SHAPE, "T = %lld times K = %lld is too large; wanted at most %lld", (long long)t,
               (long long)k, (long long)most);
    p->axis[KN_ROUTED_T] = t;
    p->axis[KN_ROUTED_H] = h;
    p->axis[KN_ROUTED_I] = i;
    p->axis[KN_ROUTED_L] = local;
    p->axis[KN_ROUTED_K] = k;
    /* `math` says how fp32 numbers enter products: it has no part in 16-bit calls. */
    bool f32 = call->tensor[KN_ROUTED_HIDDEN].dtype == KN_F32;
    p->option[KN_ROUTED_MATH] = f32 ? o->math : KILN_MATH_BALANCED;
    p->option[KN_ROUTED_WEIGHT_ON] = o->weight_on;
    p->option[KN_ROUTED_EXPERT_LO] = o->expert_lo;
    p->option[KN_ROUTED_EXPERTS] = experts;
    return kn_describe_activation(&o->activation, p, &p->option[KN_ROUTED_ALPHA], &p->option[KN_ROUTED_LIMIT],
                                  &p->option[KN_ROUTED_ACT_OFFSET]);
}

/* ---- plan -------------------------------------------------------------------------------------------------------- */

/* What is rounded to what: docs/routed_experts.md. */
static kn_routed_precision choose_precision(const kn_routed *r, int64_t math) {
    kn_routed_precision q = {.rows = r->in, .gate_up = KN_F32, .act = KN_BF16, .dx = KN_BF16};
    q.forward_split = q.gradient_split = 1;
    if (r->in == KN_F32 && math == KILN_MATH_ACCURATE) {
        q.act = q.dx = KN_F32;
        q.forward_split = q.gradient_split = 3;
        q.promote = true;
    } else if (r->in == KN_F16) {
        /* Intermediate gradients may leave its range: they are fp32, and enter products in bf16 parts. */
        q.act = q.dx = KN_F32;
        q.gradient_split = 2;
    } else if (r->in == KN_F32 && math == KILN_MATH_FAST && r->hidden >= SHORT_SUM) {
        q.rows = KN_BF16;
    } else if (r->in == KN_F32) {
        /* balanced, and fast: in a short sum the roundings of g, u and a do not average out, and add to those of the
         * gradient products. */
        q.forward_split = 2;
    }
    return q;
}

static void choose_chunks(kn_routed *r) {
    int64_t size = (r->pairs + MAX_CHUNKS - 1) / MAX_CHUNKS;
    size = (size + STEP_PAIRS - 1) / STEP_PAIRS * STEP_PAIRS;
    r->chunk_pairs = size > CHUNK_PAIRS ? size : CHUNK_PAIRS;
    r->chunks = (r->pairs + r->chunk_pairs - 1) / r->chunk_pairs;
}

static void set_up(kn_routed *r) {
    const kn_problem *p = r->p;
    r->tokens = p->axis[KN_ROUTED_T];
    r->hidden = p->axis[KN_ROUTED_H];
    r->inner = p->axis[KN_ROUTED_I];
    r->local = p->axis[KN_ROUTED_L];
    r->top_k = p->axis[KN_ROUTED_K];
    r->in = (kn_dtype)p->dtype[KN_ROUTED_HIDDEN];
    r->sorted = kn_routed_has(r, KN_ROUTED_OFFSETS);
    r->on_input = p->option[KN_ROUTED_WEIGHT_ON] == KILN_WEIGHT_ON_INPUT;
    r->want_hidden = kn_routed_has(r, KN_ROUTED_GRAD_HIDDEN);
    r->want_weights = kn_routed_has(r, KN_ROUTED_GRAD_WEIGHTS);
    r->want_gate = kn_routed_has(r, KN_ROUTED_GRAD_GATE);
    r->want_up = kn_routed_has(r, KN_ROUTED_GRAD_UP);
    r->want_down = kn_routed_has(r, KN_ROUTED_GRAD_DOWN);
    /* The gradient of a weight on the input wants g and u without it; saved ones may have met a weight of 0. */
    bool bare = r->on_input && r->want_weights;
    r->gate_saved = !bare && kn_routed_has(r, KN_ROUTED_SAVED_GATE);
    r->up_saved = !bare && kn_routed_has(r, KN_ROUTED_SAVED_UP);
    r->pairs = r->tokens * r->top_k;
    r->precision = choose_precision(r, p->option[KN_ROUTED_MATH]);
    r->fast = kn_routed_can_be_fast(r);
    r->fast_gradients = r->fast && kn_routed_can_have_fast_gradients(r);
    r->scaled_dx = r->fast && !r->fast_gradients && r->want_hidden && kn_routed_can_scale_dx(r);
    if (r->fast_gradients && r->in == KN_F32) r->precision.rows = KN_BF16; /* TMA does not round */
    if (r->fast && r->in == KN_F32) r->precision.scaled_parts = r->precision.forward_split - 1;
    /* A step of wgmma is 16 deep: the weight gradients of an expert may not begin in the middle of one. */
    r->pad = r->fast ? 16 : 1;
    r->rows = r->pairs + (r->pad - 1) * (r->local < r->pairs ? r->local : r->pairs);
    choose_chunks(r);
}

static void reserve_sort(kn_routed *r) {
    uint64_t pairs = (uint64_t)r->pairs, rows = (uint64_t)r->rows;
    r->at.counts = kn_routed_reserve(r, (uint64_t)(r->chunks * r->local) * 4); /* chunks are counted side by side */
    r->at.offsets = kn_routed_reserve(r, (uint64_t)(r->local + 1) * 4);        /* the ragged products read it */
    r->at.pair_row = kn_routed_reserve(r, pairs * 4);  /* from a token to its rows: gather and combination */
    r->at.row_pair = kn_routed_reserve(r, rows * 4);   /* from a row to its slot: saved g and u, padding */
    r->at.row_weight = kn_routed_reserve(r, rows * 4); /* the epilogue reads weights by rows */
}

/* The least that must move and be multiplied: docs/routed_experts.md. */
static void set_floor(const kn_routed *r, kn_program *out) {
    double matrix = (double)r->local * (double)r->inner * (double)r->hidden, size = kn_dtype_size(r->in);
    double rows = (double)r->pairs, products = 2.0 * rows * (double)r->inner * (double)r->hidden;
    int reads = 1 + (!r->gate_saved || r->want_hidden) + (!r->up_saved || r->want_hidden);
    int n_products = 1 + !r->gate_saved + !r->up_saved + 2 * r->want_hidden;
    for (int i = KN_ROUTED_GRAD_GATE; i <= KN_ROUTED_GRAD_DOWN; i++) {
        if (!kn_routed_has(r, i)) continue;
        int touched = kn_routed_accumulates(r, i) ? 2 : 1;
        out->floor_bytes += touched * matrix * kn_dtype_size((kn_dtype)r->p->dtype[i]);
        n_products++;
    }
    out->floor_bytes += reads * matrix * size;
    out->floor_flops = n_products * products;
}

kn_status kn_routed_experts_plan(const kn_problem *p, const kn_device_facts *facts, const kn_target *target,
                                 kn_program *out) {
    kn_program_builder builder = {.program = out};
    kn_routed r = {.p = p, .facts = facts, .target = target, .b = &builder};
    set_up(&r);
    bool want_products = r.want_hidden || r.want_weights || r.want_gate || r.want_up || r.want_down;
    if (!want_products) {
        snprintf(out->note, sizeof out->note, "nothing to do");
        return KN_OK;
    }
    set_floor(&r, out);
    reserve_sort(&r);
    kn_routed_reserve_products(&r);
    kn_routed_emit_sort(&r);
    kn_routed_emit_gather(&r);
    kn_routed_emit_gate_up(&r);
    kn_routed_emit_activation_gradient(&r);
    kn_routed_emit_weight_gradients(&r);
    if (r.scaled_dx) kn_routed_emit_scale(&r);
    if (r.want_hidden) kn_routed_emit_dx(&r);
    if (r.want_hidden || r.want_weights) kn_routed_emit_combine(&r);
    snprintf(out->note, sizeof out->note, "%lld rows at most, sorted by expert in %lld chunks; products of ragged rows",
             (long long)r.rows, (long long)r.chunks);
    return builder.status;
}
