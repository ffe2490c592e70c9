/* ops/ref_router: float64 reference of router_backward. One token at a time: routing weights -> gradient of the scores
 * -> gradient of the logits dz; then the two products. */
#include "ops/ref_common.h"

#include <math.h>

enum {
    HIDDEN,
    GATE_WEIGHT,
    ROUTER_LOGITS,
    PROBS,
    SELECTED,
    WEIGHTS_SUM,
    GRAD_WEIGHTS,
    GRAD_EXPERT_MASK,
    GRAD_ROUTER_LOGITS,
    AUX_COEFFICIENTS,
    AUX_ROW,
    Z_LOSS,
    TOKEN_MASK
};
enum { OUT_HIDDEN, OUT_GATE_WEIGHT, OUT_GATE_BIAS, OUT_LOGITS };

typedef struct router {
    const kn_tensor *t;
    const kiln_router_backward_options *options;
    int64_t tokens, experts, k;
    double eps, scaling;
    kn_ref scores; /* [T, E] */
    kn_ref grad;   /* [1, E]: G, the gradient of one token's scores */
    kn_ref slot;   /* [1, K]: d_k of one token */
    kn_ref dz;     /* [T, E]: dz */
} router;

/* The slot's expert, or -1 if the slot is to be skipped. */
static int64_t slot_expert(const router *r, int64_t t, int64_t k) {
    int64_t id = kn_ref_id(&r->t[SELECTED], kn_ref_at(&r->t[SELECTED], t, k));
    return id >= 0 && id < r->experts ? id : -1;
}

/* D: what the routing weights were divided by; 0 on `normalise` none. *clamped: it does not depend on the weights. */
static double denominator(const router *r, int64_t t, bool *clamped) {
    const kn_tensor *given = &r->t[WEIGHTS_SUM];
    double sum = 0;
    if (kn_ref_present(given)) {
        sum = kn_ref_load(given, kn_ref_at(given, t, 0));
    } else {
        for (int64_t k = 0; k < r->k; k++) {
            int64_t e = slot_expert(r, t, k);
            if (e >= 0) sum += r->scores.x[t * r->experts + e];
        }
    }
    *clamped = r->options->normalise == KILN_NORMALISE_SUM_CLAMP && sum <= r->eps;
    if (*clamped) return r->eps;
    return r->options->normalise == KILN_NORMALISE_SUM_EPS ? sum + r->eps : sum;
}

/* d_k, the gradient of the selected scores, from that of the weights: (u_k - sum_j u_j (w_j / D)) / D, u = c*g. */
static void weights_gradient(router *r, int64_t t) {
    const kn_tensor *g = &r->t[GRAD_WEIGHTS];
    bool none = r->options->normalise == KILN_NORMALISE_NONE || r->options->score == KILN_SCORE_SOFTMAX_SELECTED;
    bool clamped = false;
    double d = none ? 1 : denominator(r, t, &clamped);
    kn_ref_num mean = {0};
    for (int64_t k = 0; k < r->k; k++) {
        int64_t e = slot_expert(r, t, k);
        r->slot.x[k] = e < 0 ? 0 : r->scaling * kn_ref_load(g, kn_ref_at(g, t, k));
        r->slot.m[k] = fabs(r->slot.x[k]);
        if (e < 0) continue;
        double share = r->scores.x[t * r->experts + e] / d;
        mean.x += r->slot.x[k] * share;
        mean.m += r->slot.m[k] * fabs(share);
    }
    if (none || clamped) mean = (kn_ref_num){0};
    for (int64_t k = 0; k < r->k; k++) {
        if (slot_expert(r, t, k) < 0) continue;
        r->slot.x[k] = (r->slot.x[k] - mean.x) / d;
        r->slot.m[k] = (r->slot.m[k] + mean.m) / fabs(d);
    }
}

/* Balance loss: softmax adds a to G; the others add (a_e - sum_j a_j P_j) / sum_e s_e, P = s / sum_e s_e. */
static void add_aux(router *r, int64_t t) {
    const kn_tensor *a = &r->t[AUX_COEFFICIENTS], *map = &r->t[AUX_ROW];
    if (!kn_ref_present(a)) return;
    int64_t row = kn_ref_present(map) ? kn_ref_id(map, kn_ref_at(map, t, 0)) : 0;
    if (row < 0 || row >= a->shape[0]) return;
    const double *s = r->scores.x + t * r->experts;
    bool softmax = r->options->score == KILN_SCORE_SOFTMAX;
    kn_ref_num mean = {0};
    double sum = softmax ? 1 : 0;
    for (int64_t e = 0; !softmax && e < r->experts; e++) sum += s[e];
    for (int64_t e = 0; !softmax && e < r->experts; e++) {
        double term = kn_ref_load(a, kn_ref_at(a, row, e)) * (s[e] / sum);
        mean.x += term;
        mean.m += fabs(term);
    }
    for (int64_t e = 0; e < r->experts; e++) {
        double v = kn_ref_load(a, kn_ref_at(a, row, e));
        r->grad.x[e] += (v - mean.x) / sum;
        r->grad.m[e] += (fabs(v) + mean.m) / sum;
    }
}

/* G of one token. */
static void scores_gradient(router *r, int64_t t) {
    const kn_tensor *mask = &r->t[GRAD_EXPERT_MASK], *logits = &r->t[GRAD_ROUTER_LOGITS];
    kn_ref_clear_row(&r->grad, 0);
    for (int64_t k = 0; k < r->k; k++) {
        int64_t e = slot_expert(r, t, k);
        if (e < 0) continue;
        double through = 0;
        if (kn_ref_present(mask)) {
            through = kn_ref_load(mask, e * mask->stride[0] + k * mask->stride[1] + t * mask->stride[2]);
        }
        r->grad.x[e] += r->slot.x[k] + through;
        r->grad.m[e] += r->slot.m[k] + fabs(through);
    }
    if (kn_ref_present(logits) && r->options->logits_gradient == KILN_LOGITS_GRADIENT_BEFORE_SOFTMAX) {
        for (int64_t e = 0; e < r->experts; e++) {
            double v = kn_ref_load(logits, kn_ref_at(logits, t, e));
            r->grad.x[e] += v;
            r->grad.m[e] += fabs(v);
        }
    }
    add_aux(r, t);
}

/* Softmax over the experts with active[e]: dz = s (G - sum G s). */
static void softmax_backward(router *r, int64_t t, const bool *active) {
    const double *s = r->scores.x + t * r->experts;
    kn_ref_num dot = {0};
    for (int64_t e = 0; e < r->experts; e++) {
        if (active && !active[e]) continue;
        dot.x += r->grad.x[e] * s[e];
        dot.m += r->grad.m[e] * fabs(s[e]);
    }
    for (int64_t e = 0; e < r->experts; e++) {
        if (active && !active[e]) continue;
        r->dz.x[t * r->experts + e] = s[e] * (r->grad.x[e] - dot.x);
        r->dz.m[t * r->experts + e] = fabs(s[e]) * (r->grad.m[e] + dot.m);
    }
}

static void selected_softmax_backward(router *r, int64_t t, bool *active) {
    for (int64_t e = 0; e < r->experts; e++) active[e] = false;
    for (int64_t k = 0; k < r->k; k++) {
        int64_t e = slot_expert(r, t, k);
        if (e >= 0) active[e] = true;
    }
    softmax_backward(r, t, active);
}

/* The derivative of an elementwise score, written in terms of the saved score. */
static double score_derivative(int32_t score, double s) {
    if (score == KILN_SCORE_SIGMOID) return s * (1 - s);
    double square = s * s;
    return square < 1e-30 ? s / 2 : -expm1(-square) / (2 * s);
}

static void elementwise_backward(router *r, int64_t t) {
    for (int64_t e = 0; e < r->experts; e++) {
        double slope = score_derivative(r->options->score, r->scores.x[t * r->experts + e]);
        r->dz.x[t * r->experts + e] = r->grad.x[e] * slope;
        r->dz.m[t * r->experts + e] = r->grad.m[e] * fabs(slope);
    }
}

/* Terms that are gradients of the logits themselves: dz += grad_router_logits, dz += 2 c lse softmax(logits). */
static void add_logit_terms(router *r, int64_t t) {
    const kn_tensor *given = &r->t[GRAD_ROUTER_LOGITS], *z = &r->t[ROUTER_LOGITS];
    double *x = r->dz.x + t * r->experts, *m = r->dz.m + t * r->experts;
    if (kn_ref_present(given) && r->options->logits_gradient == KILN_LOGITS_GRADIENT_AFTER_SOFTMAX) {
        for (int64_t e = 0; e < r->experts; e++) {
            double v = kn_ref_load(given, kn_ref_at(given, t, e));
            x[e] += v;
            m[e] += fabs(v);
        }
    }
    if (!kn_ref_present(&r->t[Z_LOSS]) || !kn_ref_present(z)) return;
    double c = kn_ref_load(&r->t[Z_LOSS], 0), largest = -(double)INFINITY, sum = 0;
    for (int64_t e = 0; e < r->experts; e++) largest = fmax(largest, kn_ref_load(z, kn_ref_at(z, t, e)));
    if (largest == -(double)INFINITY) return; /* every expert is masked away: no probability to spread */
    for (int64_t e = 0; e < r->experts; e++) sum += exp(kn_ref_load(z, kn_ref_at(z, t, e)) - largest);
    double lse = largest + log(sum);
    for (int64_t e = 0; e < r->experts; e++) {
        double p = exp(kn_ref_load(z, kn_ref_at(z, t, e)) - largest) / sum;
        x[e] += 2 * c * lse * p;
        m[e] += 2 * fabs(c) * (fabs(largest) + log(sum)) * p;
    }
}

static bool token_masked(const router *r, int64_t t) {
    const kn_tensor *mask = &r->t[TOKEN_MASK];
    return kn_ref_present(mask) && kn_ref_load(mask, kn_ref_at(mask, t, 0)) == 0;
}

/* dz of all tokens. */
static kn_status logits_gradient(router *r, kn_arena *arena) {
    KN_TRY(kn_ref_read(arena, &r->t[PROBS], 0, &r->scores));
    KN_TRY(kn_ref_zero(arena, 1, r->experts, &r->grad));
    KN_TRY(kn_ref_zero(arena, 1, r->k, &r->slot));
    KN_TRY(kn_ref_zero(arena, r->tokens, r->experts, &r->dz));
    bool *active = kn_arena_alloc(arena, (size_t)r->experts * sizeof *active);
    KN_REQUIRE(active, KN_E_NOMEM, "out of memory for the router's reference");
    for (int64_t t = 0; t < r->tokens; t++) {
        if (token_masked(r, t)) continue;
        weights_gradient(r, t);
        scores_gradient(r, t);
        switch (r->options->score) {
        case KILN_SCORE_SOFTMAX: softmax_backward(r, t, NULL); break;
        case KILN_SCORE_SOFTMAX_SELECTED: selected_softmax_backward(r, t, active); break;
        default: elementwise_backward(r, t);
        }
        add_logit_terms(r, t);
    }
    return KN_OK;
}

/* The column sums of dz. */
static kn_status bias_gradient(const router *r, const kn_call *call, kn_arena *arena, double *const *exact,
                               double *const *magnitude) {
    kn_ref bias;
    KN_TRY(kn_ref_zero(arena, r->experts, 1, &bias));
    for (int64_t i = 0; i < r->tokens * r->experts; i++) {
        bias.x[i % r->experts] += r->dz.x[i];
        bias.m[i % r->experts] += r->dz.m[i];
    }
    return kn_ref_output(call, OUT_GATE_BIAS, 0, &bias, exact, magnitude);
}

/* dz^T * hidden. */
static kn_status weight_gradient(const router *r, const kn_call *call, kn_arena *arena, double *const *exact,
                                 double *const *magnitude) {
    if (!kn_ref_wanted(exact, magnitude, OUT_GATE_WEIGHT)) return KN_OK;
    kn_ref hidden, grad_gate;
    KN_TRY(kn_ref_read(arena, &r->t[HIDDEN], 0, &hidden));
    for (int64_t t = 0; t < r->tokens; t++) {
        if (token_masked(r, t)) kn_ref_clear_row(&hidden, t);
    }
    KN_TRY(kn_ref_zero(arena, r->experts, hidden.cols, &grad_gate));
    KN_TRY(kn_ref_product(&r->dz, true, &hidden, false, &grad_gate));
    return kn_ref_output(call, OUT_GATE_WEIGHT, 0, &grad_gate, exact, magnitude);
}

static kn_status hidden_gradient(const router *r, const kn_call *call, kn_arena *arena, double *const *exact,
                                 double *const *magnitude) {
    if (!kn_ref_wanted(exact, magnitude, OUT_HIDDEN)) return KN_OK;
    kn_ref gate, grad_hidden;
    KN_TRY(kn_ref_read(arena, &r->t[GATE_WEIGHT], 0, &gate));
    KN_TRY(kn_ref_zero(arena, r->tokens, gate.cols, &grad_hidden));
    KN_TRY(kn_ref_product(&r->dz, false, &gate, false, &grad_hidden));
    for (int64_t t = 0; t < r->tokens; t++) {
        if (token_masked(r, t)) kn_ref_clear_row(&grad_hidden, t); /* 0 * NaN in the product is no gradient */
    }
    return kn_ref_output(call, OUT_HIDDEN, 0, &grad_hidden, exact, magnitude);
}

kn_status kn_router_reference(const kn_call *call, double *const *exact, double *const *magnitude) {
    kn_arena arena = {0};
    kn_status st = KN_OK;
    router r = {.t = call->tensor, .options = call->options};
    r.tokens = r.t[PROBS].shape[0];
    r.experts = r.t[PROBS].shape[1];
    r.k = r.t[SELECTED].shape[1];
    r.eps = r.options->eps == 0 ? 1e-20 : r.options->eps;
    r.scaling = r.options->scaling == 0 ? 1 : r.options->scaling;
    bool selected_only = r.options->score == KILN_SCORE_SOFTMAX_SELECTED;
    KN_REQUIRE(!selected_only || !kn_ref_present(&r.t[AUX_COEFFICIENTS]), KN_E_ARG,
               "aux_expert_coefficients is given with score softmax_selected, which has no scores of all experts");

    KN_TRY_OUT(st, logits_gradient(&r, &arena));
    KN_TRY_OUT(st, kn_ref_output(call, OUT_LOGITS, 0, &r.dz, exact, magnitude));
    KN_TRY_OUT(st, bias_gradient(&r, call, &arena, exact, magnitude));
    if (r.options->round_dlogits != KILN_ROUND_DLOGITS_F32) kn_ref_rounded_to(&r.dz, r.t[HIDDEN].dtype);
    KN_TRY_OUT(st, hidden_gradient(&r, call, &arena, exact, magnitude));
    st = weight_gradient(&r, call, &arena, exact, magnitude);
out:
    kn_arena_free(&arena);
    return st;
}
