/* Values of random problems: one function an operation. Sizes of the scale s: gradients, hidden states and weights grow
 * with it; logits, scores and pre-activations do not, so that no score saturates. */
#include "support/problem_gen.h"

#include "base/alloc.h"
#include "ops/ref_common.h"

#include <math.h>
#include <string.h>

static int arg(const kn_gen *g, const char *name) {
    int i = kn_gen_arg(g->op.name, name);
    return i >= 0 && g->args[i] ? i : -1;
}

/* All elements of an argument, if it is there: normal numbers of standard deviation sd. */
static void fill_normal(kn_gen *g, const char *name, double sd) {
    int a = arg(g, name);
    for (int64_t i = 0, n = a < 0 ? 0 : kn_gen_elements(g, a); i < n; i++) kn_gen_put(g, a, i, sd * kn_gen_normal(g));
}

static void fill_value(kn_gen *g, const char *name, double v) {
    int a = arg(g, name);
    for (int64_t i = 0, n = a < 0 ? 0 : kn_gen_elements(g, a); i < n; i++) kn_gen_put(g, a, i, v);
}

static double get(const kn_gen *g, const char *name, int64_t linear) {
    return kn_gen_get(g, arg(g, name), linear);
}

static void put(kn_gen *g, const char *name, int64_t linear, double v) {
    int a = arg(g, name);
    if (a >= 0) kn_gen_put(g, a, linear, v);
}

/* k distinct numbers of [0, n) into ids, some of them then replaced by -1. */
static void choose_distinct(kn_gen *g, int64_t n, int64_t k, int64_t *ids) {
    for (int64_t i = 0; i < k; i++) {
        bool taken = true;
        while (taken) {
            int64_t spread = g->config.skew && kn_gen_below(g, 4) ? (n + 7) / 8 : n;
            ids[i] = kn_gen_below(g, spread >= k ? spread : n);
            taken = false;
            for (int64_t j = 0; j < i; j++) taken |= ids[j] == ids[i];
        }
    }
    for (int64_t i = 0; i < k; i++) {
        if (kn_gen_below(g, 100) < g->config.skip_percent) ids[i] = -1;
    }
}

/* ---- load_balance, products ----------------------------------------------------------------------------------------
 */

static kn_status fill_load_balance(kn_gen *g) {
    double s = g->config.scale;
    fill_normal(g, "grad_tokens_per_expert", s);
    fill_normal(g, "grad_expert_mask", s);
    fill_value(g, "grad_load_balance_loss", s * (double)g->config.batch * (double)g->config.top_k * 0.75);
    fill_value(g, "topk_idx", 0);
    fill_value(g, "training", g->config.training);
    if (arg(g, "topk_idx") < 0) g->config.options.load_balance.top_k = (int32_t)g->config.top_k;
    return KN_OK;
}

static kn_status fill_gemm(kn_gen *g) {
    fill_normal(g, "a", g->config.scale);
    fill_normal(g, "b", g->config.scale);
    return KN_OK;
}

/* Offsets of groups that share `rows` rows; about one in four is empty. */
static void fill_offsets(kn_gen *g, const char *name, int64_t groups, int64_t rows) {
    int64_t at = 0;
    put(g, name, 0, 0);
    for (int64_t i = 1; i <= groups; i++) {
        int64_t left = rows - at, part = 2 * left / (groups - i + 1);
        if (part > left) part = left;
        if (i == groups) {
            at = rows;
        } else if (kn_gen_below(g, 4) && part > 0) {
            at += kn_gen_below(g, part + 1);
        }
        put(g, name, i, (double)at);
    }
}

static kn_status fill_grouped_gemm(kn_gen *g) {
    bool rows = g->config.options.grouped.ragged == KILN_RAGGED_M;
    fill_offsets(g, "offsets", g->config.groups, rows ? g->config.m : g->config.k);
    return fill_gemm(g);
}

/* ---- router --------------------------------------------------------------------------------------------------------
 */

/* Scores of one token from its logits. */
static void scores_of(const double *z, int64_t n, int32_t score, double *s) {
    double largest = -(double)INFINITY, sum = 0;
    for (int64_t e = 0; e < n; e++) largest = fmax(largest, z[e]);
    for (int64_t e = 0; e < n; e++) sum += exp(z[e] - largest);
    for (int64_t e = 0; e < n; e++) {
        if (score == KILN_SCORE_SIGMOID) {
            s[e] = kn_ref_sigmoid(z[e]);
        } else if (score == KILN_SCORE_SQRTSOFTPLUS) {
            s[e] = sqrt(fmax(z[e], 0) + log1p(exp(-fabs(z[e]))));
        } else {
            s[e] = exp(z[e] - largest) / sum;
        }
    }
}

/* Softmax over the selected experts alone; the other entries hold NaN, for nobody may read them. */
static void selected_scores(const double *z, int64_t n, const int64_t *ids, int64_t k, double *s) {
    double sum = 0;
    for (int64_t e = 0; e < n; e++) s[e] = (double)NAN;
    for (int64_t j = 0; j < k; j++) sum += ids[j] >= 0 ? exp(z[ids[j]]) : 0;
    for (int64_t j = 0; j < k; j++) {
        if (ids[j] >= 0) s[ids[j]] = exp(z[ids[j]]) / sum;
    }
}

static void router_token(kn_gen *g, int64_t t, double *z, double *s, int64_t *ids) {
    int64_t experts = g->config.experts, k = g->config.top_k;
    int32_t score = g->config.options.router.score;
    int logits = arg(g, "router_logits"), probs = arg(g, "routing_probs");
    for (int64_t e = 0; e < experts; e++) {
        z[e] = 1.5 * kn_gen_normal(g);
        if (logits >= 0) {
            kn_gen_put(g, logits, t * experts + e, z[e]);
            z[e] = kn_gen_get(g, logits, t * experts + e);
        }
    }
    choose_distinct(g, experts, k, ids);
    scores_of(z, experts, score, s);
    if (score == KILN_SCORE_SOFTMAX_SELECTED) selected_scores(z, experts, ids, k, s);
    for (int64_t e = 0; e < experts; e++) kn_gen_put(g, probs, t * experts + e, s[e]);
    double sum = 0;
    for (int64_t j = 0; j < k; j++) {
        put(g, "selected_experts", t * k + j, (double)ids[j]);
        if (ids[j] >= 0) sum += kn_gen_get(g, probs, t * experts + ids[j]);
    }
    put(g, "routing_weights_sum", t, sum);
}

static kn_status fill_router(kn_gen *g) {
    double s = g->config.scale, *z = NULL;
    int64_t *ids = NULL, experts = g->config.experts;
    fill_normal(g, "hidden_states", s);
    fill_normal(g, "gate_weight", s / sqrt((double)g->config.hidden));
    fill_normal(g, "grad_routing_weights", s);
    fill_normal(g, "grad_expert_mask", 0.3 * s);
    fill_normal(g, "grad_router_logits", 0.1 * s);
    fill_normal(g, "aux_expert_coefficients", 0.3 * s);
    fill_value(g, "z_loss_coefficient", 0.05 * s);
    KN_TRY(KN_NEW(&z, 2 * experts, "a test's logits"));
    kn_status st = KN_NEW(&ids, g->config.top_k, "a test's ids");
    for (int64_t t = 0; st == KN_OK && t < g->config.tokens; t++) {
        router_token(g, t, z, z + experts, ids);
        put(g, "aux_row", t, (double)kn_gen_below(g, g->config.aux_rows));
        put(g, "token_mask", t, kn_gen_below(g, 8) > 0);
    }
    kn_free(z);
    kn_free(ids);
    return st;
}

/* ---- expert_mlp ----------------------------------------------------------------------------------------------------
 */

static kn_status fill_token_indices(kn_gen *g) {
    int64_t *order = NULL, batch = g->config.batch;
    KN_TRY(KN_NEW(&order, batch, "a test's permutation"));
    for (int64_t i = 0; i < batch; i++) order[i] = i;
    for (int64_t i = 0; i < g->config.tokens; i++) {
        int64_t id;
        if (g->config.options.expert_mlp.unique_indices == KILN_FALSE) {
            id = kn_gen_below(g, batch);
        } else {
            int64_t j = i + kn_gen_below(g, batch - i);
            id = order[j];
            order[j] = order[i];
        }
        put(g, "token_indices", i, kn_gen_below(g, 100) < g->config.skip_percent ? -1 : (double)id);
    }
    kn_free(order);
    return KN_OK;
}

static kn_ref_act_parts evaluate(const kn_ref_act *act, double gate, double up) {
    return kn_ref_act_eval(act, (kn_ref_num){gate, fabs(gate)}, (kn_ref_num){up, fabs(up)});
}

static kn_status fill_expert_mlp(kn_gen *g) {
    int64_t tokens = g->config.tokens, hidden = g->config.hidden, inner = g->config.inner;
    double s = g->config.scale;
    KN_REQUIRE(g->config.options.expert_mlp.unique_indices == KILN_FALSE || tokens <= g->config.batch, KN_E_ARG,
               "a test wants more distinct tokens than there are");
    KN_TRY(fill_token_indices(g));
    fill_normal(g, "grad_output", s);
    fill_normal(g, "selected_tokens", s);
    fill_normal(g, "w1_output", 2);
    fill_normal(g, "up_output", 2);
    fill_normal(g, "w1_weight", s / sqrt((double)hidden));
    fill_normal(g, "w2_weight", s / sqrt((double)inner));
    fill_normal(g, "w3_weight", s / sqrt((double)hidden));
    for (int64_t t = 0; t < tokens; t++) put(g, "selected_weights", t, 0.1 + 0.8 * kn_gen_uniform(g));
    kn_ref_act act;
    kiln_activation activation = g->config.options.expert_mlp.activation;
    activation.source = NULL;
    KN_TRY(kn_ref_act_init(&activation, &act));
    double *h = NULL;
    KN_TRY(KN_NEW(&h, inner, "a test's activations"));
    for (int64_t t = 0; t < tokens; t++) {
        for (int64_t j = 0; j < inner; j++) {
            kn_ref_act_parts p = evaluate(&act, get(g, "w1_output", t * inner + j), get(g, "up_output", t * inner + j));
            h[j] = p.silu.x * p.up.x;
            put(g, "gate_output", t * inner + j, p.silu.x);
            put(g, "gated_output", t * inner + j, h[j]);
        }
        for (int64_t i = 0; arg(g, "expert_output") >= 0 && i < hidden; i++) {
            double y = 0;
            for (int64_t j = 0; j < inner; j++) y += h[j] * get(g, "w2_weight", i * inner + j);
            put(g, "expert_output", t * hidden + i, y);
        }
    }
    kn_free(h);
    return KN_OK;
}

/* ---- moe_layer -----------------------------------------------------------------------------------------------------
 */

static void layer_token(kn_gen *g, int64_t t, double *z, int64_t *ids) {
    const kiln_moe_layer_backward_options *options = &g->config.options.moe_layer;
    int64_t experts = g->config.experts, k = g->config.top_k;
    double c = options->routed_scaling_factor == 0 ? 1 : options->routed_scaling_factor, sum = 1e-20;
    for (int64_t e = 0; e < experts; e++) {
        z[e] = 1.5 * kn_gen_normal(g);
        put(g, "router_logits", t * experts + e, z[e]);
        put(g, "scores", t * experts + e, kn_ref_sigmoid(z[e]));
        put(g, "score_mask", t * experts + e, kn_gen_below(g, 16) > 0);
    }
    choose_distinct(g, experts, k, ids);
    for (int64_t j = 0; j < k; j++) {
        put(g, "topk_indices", t * k + j, (double)ids[j]);
        if (ids[j] >= 0) sum += get(g, "scores", t * experts + ids[j]);
    }
    if (options->norm_topk_prob == KILN_FALSE) sum = 1;
    for (int64_t j = 0; j < k; j++) {
        put(g, "topk_weights", t * k + j, ids[j] < 0 ? 0 : c * get(g, "scores", t * experts + ids[j]) / sum);
    }
}

static kn_status fill_moe_layer(kn_gen *g) {
    int64_t hidden = g->config.hidden, inner = g->config.inner;
    double s = g->config.scale, *z = NULL;
    fill_normal(g, "grad_output", s);
    fill_normal(g, "hidden_states", s);
    fill_normal(g, "router_weight", s / sqrt((double)hidden));
    fill_normal(g, "e_score_correction_bias", 1);
    fill_normal(g, "shared_expert_gate_weight", s / sqrt((double)hidden));
    fill_normal(g, "shared_expert_up_weight", s / sqrt((double)hidden));
    fill_normal(g, "shared_expert_down_weight", s / sqrt((double)inner));
    fill_normal(g, "shared_gate_output", 2);
    fill_normal(g, "shared_up_output", 2);
    fill_normal(g, "grad_topk_weights", 4 * s * s); /* so that router and shared expert weigh alike */
    kn_ref_act act = {.alpha = 1, .limit = (double)INFINITY};
    for (int64_t i = 0; i < g->config.tokens * inner; i++) {
        kn_ref_act_parts p = evaluate(&act, get(g, "shared_gate_output", i), get(g, "shared_up_output", i));
        put(g, "shared_activated", i, p.silu.x * p.up.x);
    }
    KN_TRY(KN_NEW(&z, g->config.experts, "a test's logits"));
    int64_t *ids = NULL;
    kn_status st = KN_NEW(&ids, g->config.top_k, "a test's ids");
    for (int64_t t = 0; st == KN_OK && t < g->config.tokens; t++) layer_token(g, t, z, ids);
    kn_free(z);
    kn_free(ids);
    return st;
}

/* ---- routed_experts ------------------------------------------------------------------------------------------------
 */

/* The local expert of a row, -1 if it has none. */
static int64_t local_expert(const kn_gen *g, int64_t t, int64_t k) {
    int64_t local = g->config.local_experts;
    if (!g->config.sorted) {
        int64_t id = (int64_t)get(g, "topk_indices", t * g->config.top_k + k) - g->config.options.routed.expert_lo;
        return id >= 0 && id < local ? id : -1;
    }
    for (int64_t e = 0; e < local; e++) {
        if ((double)t >= get(g, "expert_offsets", e) && (double)t < get(g, "expert_offsets", e + 1)) return e;
    }
    return -1;
}

/* saved_gate or saved_up: x times the transposed weights of the slot's expert. */
static void fill_saved(kn_gen *g, const char *name, const char *weights) {
    int64_t hidden = g->config.hidden, inner = g->config.inner, top_k = g->config.sorted ? 1 : g->config.top_k;
    if (arg(g, name) < 0) return;
    for (int64_t slot = 0; slot < g->config.tokens * top_k; slot++) {
        int64_t e = local_expert(g, slot / top_k, slot % top_k);
        bool on_input = g->config.options.routed.weight_on == KILN_WEIGHT_ON_INPUT;
        double w = on_input ? get(g, "topk_weights", slot) : 1;
        for (int64_t i = 0; e >= 0 && i < inner; i++) {
            double sum = 0;
            for (int64_t j = 0; j < hidden; j++) {
                sum += w * get(g, "hidden_states", slot / top_k * hidden + j) *
                       get(g, weights, (e * inner + i) * hidden + j);
            }
            put(g, name, slot * inner + i, sum);
        }
    }
}

static kn_status fill_routed_experts(kn_gen *g) {
    int64_t tokens = g->config.tokens, top_k = g->config.sorted ? 1 : g->config.top_k, *ids = NULL;
    double s = g->config.scale;
    fill_normal(g, "grad_output", s);
    fill_normal(g, "hidden_states", 1);
    fill_normal(g, "gate_weights", 1.5 / sqrt((double)g->config.hidden));
    fill_normal(g, "up_weights", 1.5 * s / sqrt((double)g->config.hidden));
    fill_normal(g, "down_weights", s / sqrt((double)g->config.inner));
    KN_TRY(KN_NEW(&ids, top_k, "a test's ids"));
    for (int64_t t = 0; t < tokens; t++) {
        if (!g->config.sorted) choose_distinct(g, g->config.experts, top_k, ids);
        for (int64_t k = 0; k < top_k; k++) {
            put(g, "topk_indices", t * top_k + k, (double)ids[k]);
            put(g, "topk_weights", t * top_k + k, 0.05 + 0.9 * kn_gen_uniform(g));
        }
    }
    kn_free(ids);
    if (g->config.sorted) fill_offsets(g, "expert_offsets", g->config.local_experts, tokens);
    if (g->config.options.routed.num_experts == 0) g->config.options.routed.num_experts = g->config.experts;
    fill_saved(g, "saved_gate", "gate_weights");
    fill_saved(g, "saved_up", "up_weights");
    return KN_OK;
}

kn_status kn_gen_fill(kn_gen *g) {
    static const struct {
        const char *op;
        kn_status (*fill)(kn_gen *g);
    } rows[] = {
        {"load_balance_backward", fill_load_balance},
        {"router_backward", fill_router},
        {"expert_mlp_backward", fill_expert_mlp},
        {"moe_layer_backward", fill_moe_layer},
        {"routed_experts_backward", fill_routed_experts},
        {"gemm", fill_gemm},
        {"grouped_gemm", fill_grouped_gemm},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (strcmp(rows[i].op, g->op.name) == 0) return rows[i].fill(g);
    }
    return kn_fail(KN_E_INTERNAL, "operation %s has no values", g->op.name);
}
