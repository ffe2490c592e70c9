/* The float64 references against central differences of the forward computation, for every option whose result is the
 * true gradient of something. */
#include "support/problem_gen.h"
#include "support/suite.h"

#include "base/alloc.h"
#include "ops/ref_common.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double step = 1e-4;

static uint64_t bit(const char *op, const char *name) {
    return (uint64_t)1 << kn_gen_arg(op, name);
}

/* A forward computation that reads its variables from arrays. */
typedef double forward_fn(const kn_gen *g, double *const *variable);

static double difference(forward_fn *forward, const kn_gen *g, double *const *variable, double *x) {
    double at = *x;
    *x = at + step;
    double above = forward(g, variable);
    *x = at - step;
    double below = forward(g, variable);
    *x = at;
    return (above - below) / (2 * step);
}

/* Compare n gradients with differences along `x`; stored f32 values differ from what they were made of by 2^-24. */
static void check_gradient(forward_fn *forward, const kn_gen *g, double *const *variable, double *x, int64_t n,
                           const double *gradient, const char *what) {
    double largest = 0;
    for (int64_t i = 0; i < n; i++) largest = fmax(largest, fabs(gradient[i]));
    ck_assert_msg(largest > 0, "%s: all gradients are zero", what);
    for (int64_t i = 0; i < n; i++) {
        double want = difference(forward, g, variable, &x[i]);
        ck_assert_msg(fabs(gradient[i] - want) <= 3e-6 * largest, "%s[%lld]: %.9g, difference quotient %.9g", what,
                      (long long)i, gradient[i], want);
    }
}

static double *values_of(const kn_gen *g, const char *name) {
    int a = kn_gen_arg(g->op.name, name);
    int64_t n = kn_gen_elements(g, a);
    double *v = NULL;
    ck_assert_ok(KN_NEW(&v, n, name));
    for (int64_t i = 0; i < n; i++) v[i] = kn_gen_get(g, a, i);
    return v;
}

static double get(const kn_gen *g, const char *name, int64_t i) {
    return kn_gen_get(g, kn_gen_arg(g->op.name, name), i);
}

/* ---- router: variable 0 holds the logits ---------------------------------------------------------------------------
 */

static double score_of(int32_t score, double z) {
    if (score == KILN_SCORE_SIGMOID) return kn_ref_sigmoid(z);
    return sqrt(log1p(exp(z)));
}

/* sum_k g_k c w_k / D of one token with scores s and ids; D as `normalise` says. */
static double routed_weights(const kn_gen *g, int64_t t, const double *s) {
    const kiln_router_backward_options *o = &g->config.options.router;
    int64_t k = g->config.top_k;
    double sum = 0, loss = 0, c = o->scaling == 0 ? 1 : o->scaling;
    for (int64_t j = 0; j < k; j++) {
        int64_t e = (int64_t)get(g, "selected_experts", t * k + j);
        if (e >= 0) sum += s[e];
    }
    double d = o->normalise == KILN_NORMALISE_NONE      ? 1
               : o->normalise == KILN_NORMALISE_SUM     ? sum
               : o->normalise == KILN_NORMALISE_SUM_EPS ? sum + o->eps
                                                        : fmax(sum, o->eps);
    if (o->score == KILN_SCORE_SOFTMAX_SELECTED) d = sum;
    for (int64_t j = 0; j < k; j++) {
        int64_t e = (int64_t)get(g, "selected_experts", t * k + j);
        if (e >= 0) loss += get(g, "grad_routing_weights", t * k + j) * c * s[e] / d;
    }
    return loss;
}

static double balance_loss(const kn_gen *g, int64_t t, const double *s, double sum) {
    int64_t row = (int64_t)get(g, "aux_row", t), experts = g->config.experts;
    double loss = 0;
    for (int64_t e = 0; e < experts; e++) loss += get(g, "aux_expert_coefficients", row * experts + e) * s[e] / sum;
    return loss;
}

static double router_forward(const kn_gen *g, double *const *variable) {
    int64_t experts = g->config.experts;
    int32_t score = g->config.options.router.score;
    bool softmax = score == KILN_SCORE_SOFTMAX || score == KILN_SCORE_SOFTMAX_SELECTED;
    double s[64], loss = 0;
    for (int64_t t = 0; t < g->config.tokens; t++) {
        const double *z = variable[0] + t * experts;
        double sum = 0, total = 0;
        if (get(g, "token_mask", t) == 0) continue;
        for (int64_t e = 0; e < experts; e++) sum += exp(z[e]);
        for (int64_t e = 0; e < experts; e++) {
            s[e] = softmax ? exp(z[e]) / sum : score_of(score, z[e]);
            total += s[e];
            loss += get(g, "grad_router_logits", t * experts + e) * z[e];
        }
        loss += routed_weights(g, t, s);
        if (g->args[kn_gen_arg("router_backward", "aux_expert_coefficients")]) loss += balance_loss(g, t, s, total);
        loss += get(g, "z_loss_coefficient", 0) * log(sum) * log(sum);
    }
    return loss;
}

START_TEST(router_gradients) {
    const char *op = "router_backward";
    kn_gen_config c = kn_gen_defaults(op);
    kn_gen *g;
    c.tokens = 9;
    c.hidden = 3;
    c.aux_rows = 2;
    c.seed = (uint64_t)_i + 1;
    c.side_dtype = KN_F32;
    c.skip_percent = 15;
    c.absent = 0;
    c.options.router.score = _i % 4;
    c.options.router.normalise = _i / 4;
    c.options.router.logits_gradient = KILN_LOGITS_GRADIENT_AFTER_SOFTMAX;
    c.options.router.scaling = 2.5;
    c.options.router.eps = c.options.router.score == KILN_SCORE_SOFTMAX ? 0.2 : 1.5;
    c.absent |= bit(op, "grad_expert_mask"); /* straight through: the gradient of nothing */
    if (c.options.router.score == KILN_SCORE_SOFTMAX_SELECTED) c.absent |= bit(op, "aux_expert_coefficients");
    if (_i % 3) c.absent |= bit(op, "routing_weights_sum");
    ck_assert_ok(kn_gen_make(&c, &g));
    ck_assert_ok(kn_gen_reference(g));
    double *z = values_of(g, "router_logits");
    check_gradient(router_forward, g, &z, z, c.tokens * c.experts, g->exact[3], "grad_logits");
    for (int64_t e = 0; e < c.experts; e++) { /* and the sums that follow from it */
        double sum = 0;
        for (int64_t t = 0; t < c.tokens; t++) sum += g->exact[3][t * c.experts + e];
        ck_assert(fabs(sum - g->exact[2][e]) <= 1e-13 * g->magnitude[2][e]);
    }
    kn_free(z);
    kn_gen_free(g);
}
END_TEST

/* ---- activation ----------------------------------------------------------------------------------------------------
 */

static double activate(const kn_ref_act *act, double gate, double up) {
    double g = fmin(gate, act->limit), u = fmax(fmin(up, act->limit), -act->limit);
    return g / (1 + exp(-act->alpha * g)) * (u + act->offset);
}

START_TEST(activation_derivatives) {
    static const kn_ref_act acts[] = {{1, (double)INFINITY, 0}, {1.702, 7, 1}, {1, 10, 0}, {-0.7, 3, 0.5}};
    for (size_t i = 0; i < sizeof acts / sizeof acts[0]; i++) {
        for (int n = 0; n < 961; n++) {
            int i_gate = n % 31, i_up = n / 31;
            double gate = -11.6 + 0.75 * i_gate, up = -11.7 + 0.75 * i_up, h = 1e-5;
            kn_ref_act_parts p = kn_ref_act_eval(&acts[i], (kn_ref_num){gate, fabs(gate)}, (kn_ref_num){up, fabs(up)});
            double dg = p.g_clamped ? 0 : p.up.x * p.dsilu.x, du = p.u_clamped ? 0 : p.silu.x;
            double want_g = (activate(&acts[i], gate + h, up) - activate(&acts[i], gate - h, up)) / (2 * h);
            double want_u = (activate(&acts[i], gate, up + h) - activate(&acts[i], gate, up - h)) / (2 * h);
            ck_assert_double_eq_tol(p.silu.x * p.up.x, activate(&acts[i], gate, up), 1e-12);
            ck_assert_double_eq_tol(dg, want_g, 1e-6);
            ck_assert_double_eq_tol(du, want_u, 1e-6);
        }
    }
    kn_ref_act act = acts[1]; /* the gradient passes at exactly the limit */
    kn_ref_act_parts p = kn_ref_act_eval(&act, (kn_ref_num){7, 7}, (kn_ref_num){-7, 7});
    ck_assert(!p.g_clamped && !p.u_clamped);
}
END_TEST

static kn_ref_act activation_of(const kiln_activation *a) {
    kn_ref_act act;
    ck_assert_ok(kn_ref_act_init(a, &act));
    return act;
}

/* One gated MLP on row x: y = h(x gate^T, x up^T) down^T; weights [inner, hidden], [inner, hidden], [hidden, inner]. */
static void mlp(const kn_ref_act *act, int64_t hidden, int64_t inner, const double *x, const double *gate,
                const double *up, const double *down, double *y) {
    memset(y, 0, (size_t)hidden * sizeof *y);
    for (int64_t i = 0; i < inner; i++) {
        double g = 0, u = 0;
        for (int64_t j = 0; j < hidden; j++) {
            g += x[j] * gate[i * hidden + j];
            u += x[j] * up[i * hidden + j];
        }
        double h = activate(act, g, u);
        for (int64_t j = 0; j < hidden; j++) y[j] += h * down[j * inner + i];
    }
}

/* ---- routed experts: variables x, w, gate, up, down ----------------------------------------------------------------
 */

static double routed_forward(const kn_gen *g, double *const *v) {
    const kiln_routed_experts_backward_options *o = &g->config.options.routed;
    kn_ref_act act = activation_of(&o->activation);
    int64_t hidden = g->config.hidden, inner = g->config.inner, size = hidden * inner;
    double loss = 0, x[16], y[16];
    for (int64_t slot = 0; slot < g->config.tokens * g->config.top_k; slot++) {
        int64_t t = slot / g->config.top_k, e = (int64_t)get(g, "topk_indices", slot) - o->expert_lo;
        if (e < 0 || e >= g->config.local_experts) continue;
        bool input = o->weight_on == KILN_WEIGHT_ON_INPUT;
        for (int64_t j = 0; j < hidden; j++) x[j] = v[0][t * hidden + j] * (input ? v[1][slot] : 1);
        mlp(&act, hidden, inner, x, v[2] + e * size, v[3] + e * size, v[4] + e * size, y);
        for (int64_t j = 0; j < hidden; j++) {
            loss += get(g, "grad_output", t * hidden + j) * y[j] * (input ? 1 : v[1][slot]);
        }
    }
    return loss;
}

START_TEST(routed_experts_gradients) {
    static const char *const names[] = {"hidden_states", "topk_weights", "gate_weights", "up_weights", "down_weights"};
    kn_gen_config c = kn_gen_defaults("routed_experts_backward");
    kn_gen *g;
    double *v[5];
    c.tokens = 5;
    c.hidden = 4;
    c.inner = 3;
    c.experts = 6;
    c.local_experts = 3;
    c.top_k = 2;
    c.skip_percent = 10;
    c.seed = (uint64_t)_i + 20;
    c.options.routed.expert_lo = 2;
    c.options.routed.weight_on = _i % 2;
    if (_i / 2) c.options.routed.activation = (kiln_activation){.alpha = 1.702, .limit = 1.1, .offset = 1};
    ck_assert_ok(kn_gen_make(&c, &g));
    ck_assert_ok(kn_gen_reference(g));
    for (int i = 0; i < 5; i++) v[i] = values_of(g, names[i]);
    for (int i = 0; i < 5; i++) {
        int64_t n = kn_gen_elements(g, kn_gen_arg(g->op.name, names[i]));
        check_gradient(routed_forward, g, v, v[i], n, g->exact[i], names[i]);
    }
    for (int i = 0; i < 5; i++) kn_free(v[i]);
    kn_gen_free(g);
}
END_TEST

/* ---- expert_mlp: variables x, w, w1, w2, w3 ------------------------------------------------------------------------
 */

static double expert_forward(const kn_gen *g, double *const *v) {
    kn_ref_act act = activation_of(&g->config.options.expert_mlp.activation);
    int64_t hidden = g->config.hidden;
    double loss = 0, y[16];
    for (int64_t t = 0; t < g->config.tokens; t++) {
        int64_t token = (int64_t)get(g, "token_indices", t);
        if (token < 0) continue;
        mlp(&act, hidden, g->config.inner, v[0] + t * hidden, v[2], v[4], v[3], y);
        for (int64_t j = 0; j < hidden; j++) loss += v[1][t] * get(g, "grad_output", token * hidden + j) * y[j];
    }
    return loss;
}

/* Make what was saved follow from x, w1 and w3. */
static void save_forward(kn_gen *g) {
    const char *op = g->op.name;
    kn_ref_act act = activation_of(&g->config.options.expert_mlp.activation);
    int64_t hidden = g->config.hidden, inner = g->config.inner;
    for (int64_t at = 0; at < g->config.tokens * inner; at++) {
        double gate = 0, up = 0;
        for (int64_t j = 0; j < hidden; j++) {
            double x = get(g, "selected_tokens", at / inner * hidden + j);
            gate += x * get(g, "w1_weight", at % inner * hidden + j);
            up += x * get(g, "w3_weight", at % inner * hidden + j);
        }
        kn_gen_put(g, kn_gen_arg(op, "w1_output"), at, gate);
        kn_gen_put(g, kn_gen_arg(op, "up_output"), at, up);
        if (!g->args[kn_gen_arg(op, "gate_output")]) continue;
        kn_gen_put(g, kn_gen_arg(op, "gate_output"), at, activate(&act, gate, 1 - act.offset));
        kn_gen_put(g, kn_gen_arg(op, "gated_output"), at, activate(&act, gate, up));
    }
    for (int64_t t = 0; g->args[kn_gen_arg(op, "expert_output")] && t < g->config.tokens; t++) {
        double y[16], x[16], *w[3] = {values_of(g, "w1_weight"), values_of(g, "w3_weight"), values_of(g, "w2_weight")};
        for (int64_t j = 0; j < hidden; j++) x[j] = get(g, "selected_tokens", t * hidden + j);
        mlp(&act, hidden, inner, x, w[0], w[1], w[2], y);
        for (int64_t j = 0; j < hidden; j++) kn_gen_put(g, kn_gen_arg(op, "expert_output"), t * hidden + j, y[j]);
        for (int i = 0; i < 3; i++) kn_free(w[i]);
    }
}

START_TEST(expert_mlp_gradients) {
    static const char *const names[] = {"selected_tokens", "selected_weights", "w1_weight", "w2_weight", "w3_weight"};
    kn_gen_config c = kn_gen_defaults("expert_mlp_backward");
    kn_gen *g;
    double *v[5];
    c.tokens = 6;
    c.batch = 9;
    c.hidden = 4;
    c.inner = 5;
    c.dtype = KN_F32; /* so that saved tensors are as good as exact */
    c.skip_percent = 20;
    c.seed = (uint64_t)_i + 40;
    if (_i % 2) c.absent = 0;
    if (_i / 2 % 2) c.options.expert_mlp.activation = (kiln_activation){.alpha = 1.702, .limit = 0.9, .offset = 1};
    ck_assert_ok(kn_gen_make(&c, &g));
    save_forward(g);
    ck_assert_ok(kn_gen_reference(g));
    for (int i = 0; i < 5; i++) v[i] = values_of(g, names[i]);
    double rows[2][64] = {{0}}; /* the gradients of rows, back in the order of the rows */
    for (int64_t t = 0; t < c.tokens; t++) {
        int64_t token = (int64_t)get(g, "token_indices", t);
        for (int64_t j = 0; token >= 0 && j < 4; j++) rows[0][t * 4 + j] = g->exact[0][token * 4 + j];
        if (token >= 0) rows[1][t] = g->exact[1][token];
    }
    for (int i = 0; i < 5; i++) {
        int64_t n = kn_gen_elements(g, kn_gen_arg(g->op.name, names[i]));
        check_gradient(expert_forward, g, v, v[i], n, i < 2 ? rows[i] : g->exact[i], names[i]);
    }
    for (int i = 0; i < 5; i++) kn_free(v[i]);
    kn_gen_free(g);
}
END_TEST

/* ---- moe_layer, router mode exact: variables x, router, gate, up, down ---------------------------------------------
 */

static double layer_forward(const kn_gen *g, double *const *v) {
    const kiln_moe_layer_backward_options *o = &g->config.options.moe_layer;
    kn_ref_act act = {.alpha = 1, .limit = (double)INFINITY};
    int64_t hidden = g->config.hidden, k = g->config.top_k;
    double loss = 0, y[16], w[16];
    for (int64_t t = 0; t < g->config.tokens; t++) {
        const double *x = v[0] + t * hidden;
        mlp(&act, hidden, g->config.inner, x, v[2], v[3], v[4], y);
        for (int64_t j = 0; j < hidden; j++) loss += get(g, "grad_output", t * hidden + j) * y[j];
        double d = 0;
        for (int64_t i = 0; i < k; i++) {
            int64_t e = (int64_t)get(g, "topk_indices", t * k + i);
            double z = 0;
            for (int64_t j = 0; e >= 0 && j < hidden; j++) z += x[j] * v[1][e * hidden + j];
            w[i] = e < 0 ? 0 : kn_ref_sigmoid(z);
            d += w[i];
        }
        if (o->norm_topk_prob == KILN_FALSE) d = 1;
        for (int64_t i = 0; i < k; i++) {
            loss += get(g, "grad_topk_weights", t * k + i) * o->routed_scaling_factor * w[i] / d;
        }
    }
    return loss;
}

START_TEST(moe_layer_gradients) {
    static const char *const names[] = {"hidden_states", "router_weight", "shared_expert_gate_weight",
                                        "shared_expert_up_weight", "shared_expert_down_weight"};
    const char *op = "moe_layer_backward";
    kn_gen_config c = kn_gen_defaults(op);
    kn_gen *g;
    double *v[5];
    c.tokens = 5;
    c.hidden = 4;
    c.inner = 3;
    c.experts = 6;
    c.top_k = 3;
    c.dtype = KN_F32;
    c.skip_percent = 10;
    c.seed = (uint64_t)_i + 60;
    c.absent &= ~bit(op, "grad_topk_weights");
    c.options.moe_layer.router_mode = KILN_ROUTER_MODE_EXACT;
    c.options.moe_layer.norm_topk_prob = _i % 2;
    c.options.moe_layer.routed_scaling_factor = 2.5;
    ck_assert_ok(kn_gen_make(&c, &g));
    for (int i = 0; i < 5; i++) v[i] = values_of(g, names[i]);
    for (int64_t t = 0; t < c.tokens; t++) { /* what was saved follows from the variables */
        const double *x = v[0] + t * c.hidden;
        const double *w[] = {v[2], v[3], v[1]};
        const char *outs[] = {"shared_gate_output", "shared_up_output", "scores"};
        for (int o = 0; o < 3; o++) {
            int64_t width = o < 2 ? c.inner : c.experts;
            for (int64_t i = 0; i < width; i++) {
                double sum = 0;
                for (int64_t j = 0; j < c.hidden; j++) sum += x[j] * w[o][i * c.hidden + j];
                kn_gen_put(g, kn_gen_arg(op, outs[o]), t * width + i, o < 2 ? sum : kn_ref_sigmoid(sum));
            }
        }
    }
    ck_assert_ok(kn_gen_reference(g));
    for (int i = 0; i < 5; i++) {
        int64_t n = kn_gen_elements(g, kn_gen_arg(op, names[i]));
        check_gradient(layer_forward, g, v, v[i], n, g->exact[i], names[i]);
    }
    for (int i = 0; i < 5; i++) kn_free(v[i]);
    kn_gen_free(g);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("ops/reference_fd");
    TCase *t = tcase_create("differences");
    tcase_add_loop_test(t, router_gradients, 0, 16);
    tcase_add_test(t, activation_derivatives);
    tcase_add_loop_test(t, routed_experts_gradients, 0, 4);
    tcase_add_loop_test(t, expert_mlp_gradients, 0, 4);
    tcase_add_loop_test(t, moe_layer_gradients, 0, 2);
    suite_add_tcase(suite, t);
    return kn_run_suite(suite);
}
