/* ops/ref_expert_mlp: float64 reference of expert_mlp_backward, step by step as in its definition. */
#include "ops/ref_common.h"

#include <math.h>

enum {
    GRAD_OUTPUT,
    TOKEN_INDICES,
    SELECTED_TOKENS,
    W1_OUTPUT,
    GATE_OUTPUT,
    UP_OUTPUT,
    GATED_OUTPUT,
    EXPERT_OUTPUT,
    SELECTED_WEIGHTS,
    W1,
    W2,
    W3
};
enum { OUT_HIDDEN, OUT_WEIGHTS, OUT_W1, OUT_W2, OUT_W3 };

typedef struct mlp {
    const kn_call *call;
    const kn_tensor *t;
    kn_arena *arena;
    double *const *exact, *const *magnitude;
    int64_t batch, tokens, hidden, inner; /* B, T, H, F */
    kn_ref dy, d;                         /* [T, H]: the rows of grad_output; the same times their weight */
    kn_ref x;                             /* [T, H] */
    kn_ref gated;                         /* [T, F]: h */
    kn_ref a;                             /* [T, F]: d * w2 */
    kn_ref du, dg;                        /* [T, F] */
} mlp;

/* The token of row i, or -1 if the row is to be skipped. */
static int64_t row_token(const mlp *p, int64_t i) {
    int64_t id = kn_ref_id(&p->t[TOKEN_INDICES], kn_ref_at(&p->t[TOKEN_INDICES], i, 0));
    return id >= 0 && id < p->batch ? id : -1;
}

static double weight_of(const mlp *p, int64_t i) {
    return kn_ref_load(&p->t[SELECTED_WEIGHTS], kn_ref_at(&p->t[SELECTED_WEIGHTS], i, 0));
}

static kn_status gather_rows(mlp *p) {
    const kn_tensor *dy = &p->t[GRAD_OUTPUT];
    KN_TRY(kn_ref_zero(p->arena, p->tokens, p->hidden, &p->dy));
    KN_TRY(kn_ref_zero(p->arena, p->tokens, p->hidden, &p->d));
    KN_TRY(kn_ref_read(p->arena, &p->t[SELECTED_TOKENS], 0, &p->x));
    for (int64_t i = 0; i < p->tokens; i++) {
        int64_t token = row_token(p, i);
        if (token < 0) {
            kn_ref_clear_row(&p->x, i);
            continue;
        }
        double w = weight_of(p, i);
        for (int64_t j = 0; j < p->hidden; j++) {
            int64_t at = i * p->hidden + j;
            p->dy.x[at] = kn_ref_load(dy, kn_ref_at(dy, token, j));
            p->dy.m[at] = fabs(p->dy.x[at]);
            p->d.x[at] = w * p->dy.x[at];
            p->d.m[at] = fabs(p->d.x[at]);
        }
    }
    return KN_OK;
}

/* A saved tensor's element, or `computed` where the tensor is absent. */
static kn_ref_num saved(const kn_tensor *t, int64_t i, int64_t j, kn_ref_num computed) {
    if (!kn_ref_present(t)) return computed;
    double v = kn_ref_load(t, kn_ref_at(t, i, j));
    return (kn_ref_num){v, fabs(v)};
}

/* The same of a tensor that kernels may read or make again from what it was rounded from: Abs leaves room for both, by
 * what is between them, a rounding at most. The tolerance is 4 u Abs, and a rounding 2 u. */
static kn_ref_num either(const kn_tensor *t, int64_t i, int64_t j, kn_ref_num computed) {
    kn_ref_num s = saved(t, i, j, computed);
    if (!kn_ref_present(t)) return s;
    double u = t->dtype == KN_F16 ? 0x1p-12 : 0x1p-9, apart = fabs(s.x - computed.x), rounding = 2 * u * s.m;
    if (apart > 0) s.m += fmin(apart, rounding) / (4 * u);
    return s;
}

/* a = d * w2, then du = a * gate, dg = a * up * silu'(w1_output); and h, which grad_w2 needs. */
static kn_status activation_backward(mlp *p) {
    const kiln_expert_mlp_backward_options *options = p->call->options;
    kn_ref_act act;
    kn_ref w2;
    KN_TRY(kn_ref_act_init(&options->activation, &act));
    KN_TRY(kn_ref_read(p->arena, &p->t[W2], 0, &w2));
    KN_TRY(kn_ref_zero(p->arena, p->tokens, p->inner, &p->a));
    KN_TRY(kn_ref_zero(p->arena, p->tokens, p->inner, &p->gated));
    KN_TRY(kn_ref_zero(p->arena, p->tokens, p->inner, &p->du));
    KN_TRY(kn_ref_zero(p->arena, p->tokens, p->inner, &p->dg));
    KN_TRY(kn_ref_product(&p->d, false, &w2, false, &p->a));
    for (int64_t i = 0; i < p->tokens; i++) {
        if (row_token(p, i) < 0) {
            kn_ref_clear_row(&p->a, i); /* where w2 holds a NaN */
            continue;
        }
        for (int64_t j = 0; j < p->inner; j++) {
            int64_t at = i * p->inner + j;
            kn_ref_num none = {0}, g = saved(&p->t[W1_OUTPUT], i, j, none), u = saved(&p->t[UP_OUTPUT], i, j, none);
            kn_ref_act_parts s = kn_ref_act_eval(&act, g, u);
            kn_ref_num gate = either(&p->t[GATE_OUTPUT], i, j, s.silu);
            kn_ref_num h = either(&p->t[GATED_OUTPUT], i, j, (kn_ref_num){s.silu.x * s.up.x, s.silu.m * s.up.m});
            p->gated.x[at] = h.x;
            p->gated.m[at] = h.m;
            p->du.x[at] = s.u_clamped ? 0 : p->a.x[at] * gate.x;
            p->du.m[at] = s.u_clamped ? 0 : p->a.m[at] * gate.m;
            p->dg.x[at] = s.g_clamped ? 0 : p->a.x[at] * s.up.x * s.dsilu.x;
            p->dg.m[at] = s.g_clamped ? 0 : p->a.m[at] * s.up.m * s.dsilu.m;
        }
    }
    return KN_OK;
}

/* r_t = <dy_t, expert_output_t>, or without expert_output <dy_t * w2, h_t>: the weight is not in it yet. */
static kn_status routing_weights_gradient(mlp *p) {
    if (!kn_ref_wanted(p->exact, p->magnitude, OUT_WEIGHTS)) return KN_OK;
    kn_ref r, other, left = p->dy;
    KN_TRY(kn_ref_zero(p->arena, p->batch, 1, &r));
    if (kn_ref_present(&p->t[EXPERT_OUTPUT])) {
        KN_TRY(kn_ref_read(p->arena, &p->t[EXPERT_OUTPUT], 0, &other));
    } else {
        kn_ref w2;
        KN_TRY(kn_ref_read(p->arena, &p->t[W2], 0, &w2));
        KN_TRY(kn_ref_zero(p->arena, p->tokens, p->inner, &left));
        KN_TRY(kn_ref_product(&p->dy, false, &w2, false, &left));
        other = p->gated;
    }
    for (int64_t i = 0; i < p->tokens; i++) {
        int64_t token = row_token(p, i);
        for (int64_t j = 0; token >= 0 && j < left.cols; j++) {
            r.x[token] += left.x[i * left.cols + j] * other.x[i * left.cols + j];
            r.m[token] += left.m[i * left.cols + j] * other.m[i * left.cols + j];
        }
    }
    return kn_ref_output(p->call, OUT_WEIGHTS, 0, &r, p->exact, p->magnitude);
}

static kn_status weight_gradient(mlp *p, int output, const kn_ref *left, const kn_ref *right) {
    if (!kn_ref_wanted(p->exact, p->magnitude, output)) return KN_OK;
    kn_ref w;
    KN_TRY(kn_ref_zero(p->arena, left->cols, right->cols, &w));
    KN_TRY(kn_ref_product(left, true, right, false, &w));
    return kn_ref_output(p->call, output, 0, &w, p->exact, p->magnitude);
}

/* dx = dg * w1 + du * w3, added into the rows of the tokens. */
static kn_status hidden_gradient(mlp *p) {
    if (!kn_ref_wanted(p->exact, p->magnitude, OUT_HIDDEN)) return KN_OK;
    kn_ref w1, w3, dx, out;
    KN_TRY(kn_ref_read(p->arena, &p->t[W1], 0, &w1));
    KN_TRY(kn_ref_read(p->arena, &p->t[W3], 0, &w3));
    KN_TRY(kn_ref_zero(p->arena, p->tokens, p->hidden, &dx));
    KN_TRY(kn_ref_zero(p->arena, p->batch, p->hidden, &out));
    KN_TRY(kn_ref_product(&p->dg, false, &w1, false, &dx));
    KN_TRY(kn_ref_product(&p->du, false, &w3, false, &dx));
    for (int64_t i = 0; i < p->tokens; i++) {
        int64_t token = row_token(p, i);
        for (int64_t j = 0; token >= 0 && j < p->hidden; j++) {
            out.x[token * p->hidden + j] += dx.x[i * p->hidden + j];
            out.m[token * p->hidden + j] += dx.m[i * p->hidden + j];
        }
    }
    return kn_ref_output(p->call, OUT_HIDDEN, 0, &out, p->exact, p->magnitude);
}

kn_status kn_expert_mlp_reference(const kn_call *call, double *const *exact, double *const *magnitude) {
    kn_arena arena = {0};
    kn_status st = KN_OK;
    mlp p = {.call = call, .t = call->tensor, .arena = &arena, .exact = exact, .magnitude = magnitude};
    p.batch = p.t[GRAD_OUTPUT].shape[0];
    p.hidden = p.t[GRAD_OUTPUT].shape[1];
    p.tokens = p.t[W1_OUTPUT].shape[0];
    p.inner = p.t[W1_OUTPUT].shape[1];
    KN_TRY_OUT(st, gather_rows(&p));
    kn_ref_rounded_to(&p.d, p.t[GRAD_OUTPUT].dtype);
    KN_TRY_OUT(st, activation_backward(&p));
    kn_ref_rounded_to(&p.du, p.t[GRAD_OUTPUT].dtype);
    kn_ref_rounded_to(&p.dg, p.t[GRAD_OUTPUT].dtype);
    kn_ref_rounded_to(&p.gated, p.t[GRAD_OUTPUT].dtype);
    KN_TRY_OUT(st, routing_weights_gradient(&p));
    KN_TRY_OUT(st, weight_gradient(&p, OUT_W1, &p.dg, &p.x));
    KN_TRY_OUT(st, weight_gradient(&p, OUT_W2, &p.d, &p.gated));
    KN_TRY_OUT(st, weight_gradient(&p, OUT_W3, &p.du, &p.x));
    st = hidden_gradient(&p);
out:
    kn_arena_free(&arena);
    return st;
}
