/* ops/ref_moe_layer: float64 reference of moe_layer_backward: the shared expert, and the sigmoid router. */
#include "ops/moe_layer_args.h"
#include "ops/ref_common.h"

#include <math.h>

typedef struct layer {
    const kn_call *call;
    const kn_tensor *t;
    kn_arena *arena;
    double *const *exact, *const *magnitude;
    int64_t tokens, hidden, inner, experts, k;
    kn_ref dy, x;             /* [T, H] */
    kn_ref activated, du, dg; /* [T, I] */
    kn_ref dz;                /* [T, E] */
} layer;

/* ---- shared expert ----------------------------------------------------------------------------------------------- */

static kn_status shared_backward(layer *p) {
    kn_ref down, a;
    const kn_tensor *gate = &p->t[GATE_OUTPUT], *up = &p->t[UP_OUTPUT], *activated = &p->t[ACTIVATED];
    kn_ref_act act = {.alpha = 1, .limit = (double)INFINITY};
    KN_TRY(kn_ref_read(p->arena, &p->t[DOWN_WEIGHT], 0, &down));
    KN_TRY(kn_ref_zero(p->arena, p->tokens, p->inner, &a));
    KN_TRY(kn_ref_zero(p->arena, p->tokens, p->inner, &p->activated));
    KN_TRY(kn_ref_zero(p->arena, p->tokens, p->inner, &p->du));
    KN_TRY(kn_ref_zero(p->arena, p->tokens, p->inner, &p->dg));
    KN_TRY(kn_ref_product(&p->dy, false, &down, false, &a));
    for (int64_t i = 0; i < p->tokens; i++) {
        for (int64_t j = 0; j < p->inner; j++) {
            int64_t at = i * p->inner + j;
            double gx = kn_ref_load(gate, kn_ref_at(gate, i, j)), ux = kn_ref_load(up, kn_ref_at(up, i, j));
            kn_ref_act_parts s = kn_ref_act_eval(&act, (kn_ref_num){gx, fabs(gx)}, (kn_ref_num){ux, fabs(ux)});
            double h = kn_ref_present(activated) ? kn_ref_load(activated, kn_ref_at(activated, i, j)) : s.silu.x * ux;
            p->activated.x[at] = h;
            p->activated.m[at] = fabs(h);
            p->du.x[at] = a.x[at] * s.silu.x;
            p->du.m[at] = a.m[at] * s.silu.m;
            p->dg.x[at] = a.x[at] * ux * s.dsilu.x;
            p->dg.m[at] = a.m[at] * fabs(ux) * s.dsilu.m;
        }
    }
    kn_ref_rounded_to(&p->du, gate->dtype);
    kn_ref_rounded_to(&p->dg, gate->dtype);
    if (!kn_ref_present(activated)) kn_ref_rounded_to(&p->activated, gate->dtype);
    return KN_OK;
}

/* ---- router ------------------------------------------------------------------------------------------------------ */

static int64_t slot_expert(const layer *p, int64_t t, int64_t k) {
    int64_t id = kn_ref_id(&p->t[TOPK_INDICES], kn_ref_at(&p->t[TOPK_INDICES], t, k));
    return id >= 0 && id < p->experts ? id : -1;
}

/* g_tk: given, or the benchmark's stand-in |grad_output_t|^2 / K. */
static double weight_gradient_of(const layer *p, int64_t t, int64_t k) {
    const kn_tensor *given = &p->t[GRAD_TOPK_WEIGHTS];
    if (kn_ref_present(given)) return kn_ref_load(given, kn_ref_at(given, t, k));
    double sum = 0;
    for (int64_t j = 0; j < p->hidden; j++) sum += p->dy.x[t * p->hidden + j] * p->dy.x[t * p->hidden + j];
    return sum / (double)p->k;
}

/* One slot: u_k and w_k as the router mode defines them. */
typedef struct slot {
    int64_t expert;
    double u, w;
} slot;

static slot read_slot(const layer *p, int64_t t, int64_t k) {
    const kiln_moe_layer_backward_options *options = p->call->options;
    const kn_tensor *weights = &p->t[TOPK_WEIGHTS], *scores = &p->t[SCORES];
    double c = options->routed_scaling_factor == 0 ? 1 : options->routed_scaling_factor;
    slot s = {.expert = slot_expert(p, t, k)};
    if (s.expert < 0) return s;
    double g = weight_gradient_of(p, t, k);
    if (options->router_mode == KILN_ROUTER_MODE_EXACT) {
        s.u = c * g;
        s.w = kn_ref_load(scores, kn_ref_at(scores, t, s.expert));
    } else {
        s.u = g / c;
        s.w = kn_ref_load(weights, kn_ref_at(weights, t, k)) / c;
    }
    return s;
}

/* dz of one token: scatter(d) * score_mask * s (1 - s), d_k = (u_k - sum_j u_j w_j / D) / D or u_k. */
static void router_token(layer *p, int64_t t, slot *slots) {
    const kiln_moe_layer_backward_options *options = p->call->options;
    const kn_tensor *scores = &p->t[SCORES], *mask = &p->t[SCORE_MASK];
    bool normalised = options->norm_topk_prob == KILN_TRUE;
    double d = 1e-20;
    kn_ref_num mean = {0};
    for (int64_t k = 0; k < p->k; k++) {
        slots[k] = read_slot(p, t, k);
        d += slots[k].w;
    }
    for (int64_t k = 0; k < p->k; k++) {
        mean.x += slots[k].u * slots[k].w / d;
        mean.m += fabs(slots[k].u * slots[k].w / d);
    }
    for (int64_t k = 0; k < p->k; k++) {
        int64_t e = slots[k].expert;
        if (e < 0) continue;
        kn_ref_num grad = {slots[k].u, fabs(slots[k].u)};
        if (normalised) grad = (kn_ref_num){(grad.x - mean.x) / d, (grad.m + mean.m) / fabs(d)};
        double s = kn_ref_load(scores, kn_ref_at(scores, t, e));
        double slope = s * (1 - s);
        if (kn_ref_present(mask)) slope *= kn_ref_load(mask, kn_ref_at(mask, t, e));
        p->dz.x[t * p->experts + e] += grad.x * slope;
        p->dz.m[t * p->experts + e] += grad.m * fabs(slope);
    }
}

static kn_status router_backward(layer *p) {
    KN_TRY(kn_ref_zero(p->arena, p->tokens, p->experts, &p->dz));
    slot *slots = kn_arena_alloc(p->arena, (size_t)p->k * sizeof *slots);
    KN_REQUIRE(slots, KN_E_NOMEM, "out of memory for the layer's reference");
    for (int64_t t = 0; t < p->tokens; t++) router_token(p, t, slots);
    return KN_OK;
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

static kn_status weight_gradient(layer *p, int output, const kn_ref *left, const kn_ref *right) {
    if (!kn_ref_wanted(p->exact, p->magnitude, output)) return KN_OK;
    kn_ref w;
    KN_TRY(kn_ref_zero(p->arena, left->cols, right->cols, &w));
    KN_TRY(kn_ref_product(left, true, right, false, &w));
    return kn_ref_output(p->call, output, 0, &w, p->exact, p->magnitude);
}

static kn_status hidden_gradient(layer *p) {
    if (!kn_ref_wanted(p->exact, p->magnitude, 0)) return KN_OK;
    kn_ref gate, up, router, out;
    kn_ref_rounded_to(&p->dz, p->t[GRAD_OUTPUT].dtype); /* for this product alone, which is the last */
    KN_TRY(kn_ref_read(p->arena, &p->t[GATE_WEIGHT], 0, &gate));
    KN_TRY(kn_ref_read(p->arena, &p->t[UP_WEIGHT], 0, &up));
    KN_TRY(kn_ref_read(p->arena, &p->t[ROUTER_WEIGHT], 0, &router));
    KN_TRY(kn_ref_zero(p->arena, p->tokens, p->hidden, &out));
    KN_TRY(kn_ref_product(&p->du, false, &up, false, &out));
    KN_TRY(kn_ref_product(&p->dg, false, &gate, false, &out));
    KN_TRY(kn_ref_product(&p->dz, false, &router, false, &out));
    return kn_ref_output(p->call, 0, 0, &out, p->exact, p->magnitude);
}

kn_status kn_moe_layer_reference(const kn_call *call, double *const *exact, double *const *magnitude) {
    kn_arena arena = {0};
    kn_status st = KN_OK;
    layer p = {.call = call, .t = call->tensor, .arena = &arena, .exact = exact, .magnitude = magnitude};
    p.tokens = p.t[GRAD_OUTPUT].shape[0];
    p.hidden = p.t[GRAD_OUTPUT].shape[1];
    p.inner = p.t[GATE_OUTPUT].shape[1];
    p.experts = p.t[SCORES].shape[1];
    p.k = p.t[TOPK_INDICES].shape[1];
    KN_TRY_OUT(st, kn_ref_read(&arena, &p.t[GRAD_OUTPUT], 0, &p.dy));
    KN_TRY_OUT(st, kn_ref_read(&arena, &p.t[HIDDEN], 0, &p.x));
    KN_TRY_OUT(st, shared_backward(&p));
    KN_TRY_OUT(st, router_backward(&p));
    KN_TRY_OUT(st, weight_gradient(&p, OUT_ROUTER - OUT_HIDDEN, &p.dz, &p.x));
    KN_TRY_OUT(st, weight_gradient(&p, OUT_GATE - OUT_HIDDEN, &p.dg, &p.x));
    KN_TRY_OUT(st, weight_gradient(&p, OUT_UP - OUT_HIDDEN, &p.du, &p.x));
    KN_TRY_OUT(st, weight_gradient(&p, OUT_DOWN - OUT_HIDDEN, &p.dy, &p.activated));
    st = hidden_gradient(&p);
out:
    kn_arena_free(&arena);
    return st;
}
