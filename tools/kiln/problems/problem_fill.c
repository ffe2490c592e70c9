/* Values of random problems, one function an operation: see problem_fill.h. */
#include "problems/problem_fill.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char out_of_memory[] = "out of memory for a problem's values";

/* ---- arguments --------------------------------------------------------------------------------------------------- */

static const struct {
    const char *op, *name;
} arg_rows[] = {
#define KILN_ARG(op, name, role, dtypes, shape, layout) {#op, #name},
#include "kiln/kiln_abi.def"
};

int kt_problem_arg(const char *op, const char *name) {
    int place = 0;
    for (size_t i = 0; i < sizeof arg_rows / sizeof *arg_rows; i++) {
        if (strcmp(arg_rows[i].op, op) != 0) continue;
        if (strcmp(arg_rows[i].name, name) == 0) return place;
        place++;
    }
    return -1;
}

/* NULL where the operation or the call has no such tensor. */
static const DLTensor *find(const kt_problem *p, const char *name) {
    int i = kt_problem_arg(p->op, name);
    return i < 0 ? NULL : p->tensor[i];
}

static int64_t size_of(const kt_problem *p, char letter) {
    return p->size[letter - 'A'];
}

static void put(const DLTensor *t, int64_t linear, double v) {
    if (t) kt_problem_put(t, linear, v);
}

/* All elements as doubles; NULL when memory is out. */
static double *load_all(const DLTensor *t) {
    int64_t n = kt_problem_elements(t);
    double *all = calloc((size_t)(n > 0 ? n : 1), sizeof *all);
    for (int64_t i = 0; all && i < n; i++) all[i] = kt_problem_get(t, i);
    return all;
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

static double value(kt_problem *p, kt_values kind) {
    static const double ties[8] = {-2, -1, -0.5, 0, 0, 0.5, 1, 2};
    switch (kind) {
    case KT_VALUES_TIES: return ties[kt_random_below(&p->random, 8)];
    case KT_VALUES_SPARSE: return kt_random_below(&p->random, 3) ? 0 : kt_random_normal(&p->random);
    case KT_VALUES_POSITIVE: return fabs(kt_random_normal(&p->random));
    case KT_VALUES_OUTLIERS:
        return kt_random_below(&p->random, 64) ? kt_random_normal(&p->random) : 256 * kt_random_normal(&p->random);
    default: return kt_random_normal(&p->random);
    }
}

/* A logit: values that are alike, or normal ones; with others scores would saturate. */
static double logit(kt_problem *p) {
    return 1.5 * value(p, p->values == KT_VALUES_TIES ? KT_VALUES_TIES : KT_VALUES_NORMAL);
}

/* All elements of an argument, if it is there: `sd` times the numbers of the problem's kind. */
static void fill(kt_problem *p, const char *name, double sd) {
    const DLTensor *t = find(p, name);
    for (int64_t i = 0, n = t ? kt_problem_elements(t) : 0; i < n; i++) kt_problem_put(t, i, sd * value(p, p->values));
}

static void fill_constant(kt_problem *p, const char *name, double v) {
    const DLTensor *t = find(p, name);
    for (int64_t i = 0, n = t ? kt_problem_elements(t) : 0; i < n; i++) kt_problem_put(t, i, v);
}

void kt_problem_fill_output(kt_problem *p, const DLTensor *t, double sd) {
    for (int64_t i = 0, n = kt_problem_elements(t); i < n; i++) kt_problem_put(t, i, sd * kt_random_normal(&p->random));
}

/* ---- ids --------------------------------------------------------------------------------------------------------- */

/* An id that names nothing among [0, n), as the type of its tensor can hold it. */
static int64_t wild_id(kt_problem *p, int64_t n, const DLTensor *t) {
    const int64_t beyond_32_bits = ((int64_t)1 << 32) + 1;
    const int64_t ids[] = {n, n + 5, -2, INT32_MAX, INT32_MIN, beyond_32_bits};
    return ids[kt_random_below(&p->random, t->dtype.bits == 64 ? 6 : 5)];
}

/* -1 or a wild id in the place of some. */
static int64_t spoil_id(kt_problem *p, int64_t id, int64_t n, const DLTensor *t) {
    if (kt_random_below(&p->random, 100) < p->skip_percent) return -1;
    if (p->wild_percent > 0 && kt_random_below(&p->random, 100) < p->wild_percent) return wild_id(p, n, t);
    return id;
}

/* k distinct numbers of [0, n) (with KT_IDS_REPEAT and `repeats`: any numbers) into ids, some of them then spoilt. */
static void choose(kt_problem *p, int64_t n, int64_t k, bool repeats, const DLTensor *t, int64_t *ids) {
    for (int64_t i = 0; i < k; i++) {
        bool taken = true;
        while (taken) {
            int64_t spread = p->ids == KT_IDS_SKEWED && kt_random_below(&p->random, 4) ? (n + 7) / 8 : n;
            ids[i] = p->ids == KT_IDS_LAST ? n - 1 - i : kt_random_below(&p->random, spread >= k ? spread : n);
            taken = false;
            if (repeats && p->ids == KT_IDS_REPEAT) continue;
            for (int64_t j = 0; j < i; j++) taken |= ids[j] == ids[i];
        }
    }
    for (int64_t i = 0; i < k; i++) ids[i] = spoil_id(p, ids[i], n, t);
}

/* Offsets of groups that share `rows` rows; about one in four is empty. */
static void fill_offsets(kt_problem *p, const char *name, int64_t groups, int64_t rows) {
    const DLTensor *t = find(p, name);
    int64_t at = 0;
    put(t, 0, 0);
    for (int64_t i = 1; i <= groups; i++) {
        int64_t left = rows - at, part = 2 * left / (groups - i + 1);
        if (part > left) part = left;
        if (i == groups)
            at = rows;
        else if (p->ids != KT_IDS_LAST && kt_random_below(&p->random, 4) && part > 0)
            at += kt_random_below(&p->random, part + 1);
        put(t, i, (double)at);
    }
}

/* ---- load_balance, products -------------------------------------------------------------------------------------- */

static const char *fill_load_balance(kt_problem *p) {
    kiln_load_balance_backward_options *options = p->options;
    double s = p->scale;
    fill(p, "grad_tokens_per_expert", s);
    fill(p, "grad_expert_mask", s);
    fill_constant(p, "grad_load_balance_loss", s * (double)size_of(p, 'B') * (double)size_of(p, 'K') * 0.75);
    fill_constant(p, "topk_idx", 0);
    fill_constant(p, "training", p->training);
    if (!find(p, "topk_idx")) options->top_k = (int32_t)size_of(p, 'K');
    return NULL;
}

static const char *fill_gemm(kt_problem *p) {
    fill(p, "a", p->scale);
    fill(p, "b", p->scale);
    return NULL;
}

static const char *fill_grouped_gemm(kt_problem *p) {
    bool rows = ((const kiln_grouped_gemm_options *)p->options)->ragged == KILN_RAGGED_M;
    fill_offsets(p, "offsets", size_of(p, 'G'), size_of(p, rows ? 'M' : 'K'));
    return fill_gemm(p);
}

/* ---- router ------------------------------------------------------------------------------------------------------ */

/* exp of a negative number alone, so that nothing overflows. */
static double sigmoid(double x) {
    if (x >= 0) return 1 / (1 + exp(-x));
    double e = exp(x);
    return e / (1 + e);
}

static bool names_one_of(int64_t id, int64_t n) {
    return id >= 0 && id < n;
}

/* Scores of one token from its logits. */
static void scores_of(const double *z, int64_t n, int32_t score, double *s) {
    double largest = -(double)INFINITY, sum = 0;
    for (int64_t e = 0; e < n; e++) largest = fmax(largest, z[e]);
    for (int64_t e = 0; e < n; e++) sum += exp(z[e] - largest);
    for (int64_t e = 0; e < n; e++) {
        if (score == KILN_SCORE_SIGMOID)
            s[e] = sigmoid(z[e]);
        else if (score == KILN_SCORE_SQRTSOFTPLUS)
            s[e] = sqrt(fmax(z[e], 0) + log1p(exp(-fabs(z[e]))));
        else
            s[e] = exp(z[e] - largest) / sum;
    }
}

/* Softmax over the selected experts alone; the other entries hold NaN, for nobody may read them. */
static void selected_scores(const double *z, int64_t n, const int64_t *ids, int64_t k, double *s) {
    double sum = 0;
    for (int64_t e = 0; e < n; e++) s[e] = (double)NAN;
    for (int64_t j = 0; j < k; j++) sum += names_one_of(ids[j], n) ? exp(z[ids[j]]) : 0;
    for (int64_t j = 0; j < k; j++) {
        if (names_one_of(ids[j], n)) s[ids[j]] = exp(z[ids[j]]) / sum;
    }
}

/* What the router's tokens are written to. */
typedef struct router {
    const DLTensor *logits, *probs, *selected, *sum;
    double *z, *s;
    int64_t *ids;
} router;

static void router_token(kt_problem *p, const router *r, int64_t t) {
    int64_t experts = size_of(p, 'E'), k = size_of(p, 'K');
    int32_t score = ((const kiln_router_backward_options *)p->options)->score;
    for (int64_t e = 0; e < experts; e++) {
        r->z[e] = logit(p);
        if (!r->logits) continue;
        kt_problem_put(r->logits, t * experts + e, r->z[e]);
        r->z[e] = kt_problem_get(r->logits, t * experts + e);
    }
    choose(p, experts, k, false, r->selected, r->ids);
    scores_of(r->z, experts, score, r->s);
    if (score == KILN_SCORE_SOFTMAX_SELECTED) selected_scores(r->z, experts, r->ids, k, r->s);
    for (int64_t e = 0; e < experts; e++) kt_problem_put(r->probs, t * experts + e, r->s[e]);
    double sum = 0;
    for (int64_t j = 0; j < k; j++) {
        put(r->selected, t * k + j, (double)r->ids[j]);
        if (names_one_of(r->ids[j], experts)) sum += kt_problem_get(r->probs, t * experts + r->ids[j]);
    }
    put(r->sum, t, sum);
}

static const char *fill_router(kt_problem *p) {
    int64_t experts = size_of(p, 'E');
    double s = p->scale;
    fill(p, "hidden_states", s);
    fill(p, "gate_weight", s / sqrt((double)size_of(p, 'H')));
    fill(p, "grad_routing_weights", s);
    fill(p, "grad_expert_mask", 0.3 * s);
    fill(p, "grad_router_logits", 0.1 * s);
    fill(p, "aux_expert_coefficients", 0.3 * s);
    fill_constant(p, "z_loss_coefficient", 0.05 * s);
    router r = {find(p, "router_logits"),
                find(p, "routing_probs"),
                find(p, "selected_experts"),
                find(p, "routing_weights_sum"),
                NULL,
                NULL,
                NULL};
    const DLTensor *aux_row = find(p, "aux_row"), *mask = find(p, "token_mask");
    r.z = calloc((size_t)(2 * experts + 1), sizeof *r.z);
    r.s = r.z ? r.z + experts : NULL;
    r.ids = calloc((size_t)size_of(p, 'K') + 1, sizeof *r.ids);
    bool room = r.z && r.ids;
    for (int64_t t = 0; room && t < size_of(p, 'T'); t++) {
        router_token(p, &r, t);
        put(aux_row, t, (double)kt_random_below(&p->random, size_of(p, 'S')));
        put(mask, t, kt_random_below(&p->random, 8) > 0);
    }
    free(r.z);
    free(r.ids);
    return room ? NULL : out_of_memory;
}

/* ---- activations ---------------------------------------------------------------------------------------------------
 * h = g' * sigmoid(alpha*g') * (u' + offset), g' = min(g, limit), u' = clamp(u, -limit, limit) */

typedef struct activated {
    double silu, up;
} activated;

static activated activate(const kiln_activation *a, double gate, double up) {
    double alpha = a->alpha == 0 ? 1 : a->alpha, limit = a->limit == 0 ? (double)INFINITY : a->limit;
    double g = fmin(gate, limit), u = fabs(up) > limit ? copysign(limit, up) : up;
    return (activated){g * sigmoid(alpha * g), u + a->offset};
}

/* ---- expert_mlp -------------------------------------------------------------------------------------------------- */

static const char *fill_token_indices(kt_problem *p) {
    const DLTensor *t = find(p, "token_indices");
    bool repeats = ((const kiln_expert_mlp_backward_options *)p->options)->unique_indices == KILN_FALSE;
    int64_t batch = size_of(p, 'B');
    int64_t *order = calloc((size_t)batch + 1, sizeof *order);
    if (!order) return out_of_memory;
    for (int64_t i = 0; i < batch; i++) order[i] = i;
    for (int64_t i = 0; i < size_of(p, 'T'); i++) {
        int64_t id;
        if (repeats) {
            id = p->ids == KT_IDS_LAST ? batch - 1 : kt_random_below(&p->random, batch);
        } else {
            int64_t j = i + kt_random_below(&p->random, batch - i);
            id = order[j];
            order[j] = order[i];
        }
        put(t, i, (double)spoil_id(p, id, batch, t));
    }
    free(order);
    return NULL;
}

/* gate_output, gated_output and expert_output of token t; h has room for its activations. */
static void expert_token(const kt_problem *p, int64_t t, const double *w2, double *h) {
    const DLTensor *w1 = find(p, "w1_output"), *up = find(p, "up_output"), *gate = find(p, "gate_output"),
                   *gated = find(p, "gated_output"), *output = find(p, "expert_output");
    kiln_activation activation = ((const kiln_expert_mlp_backward_options *)p->options)->activation;
    int64_t hidden = size_of(p, 'H'), inner = size_of(p, 'F');
    for (int64_t j = 0; j < inner; j++) {
        activated a = activate(&activation, kt_problem_get(w1, t * inner + j), kt_problem_get(up, t * inner + j));
        h[j] = a.silu * a.up;
        put(gate, t * inner + j, a.silu);
        put(gated, t * inner + j, h[j]);
    }
    for (int64_t i = 0; output && i < hidden; i++) {
        double y = 0;
        for (int64_t j = 0; j < inner; j++) y += h[j] * w2[i * inner + j];
        kt_problem_put(output, t * hidden + i, y);
    }
}

static const char *fill_expert_mlp(kt_problem *p) {
    int64_t tokens = size_of(p, 'T'), batch = size_of(p, 'B'), hidden = size_of(p, 'H'), inner = size_of(p, 'F');
    bool repeats = ((const kiln_expert_mlp_backward_options *)p->options)->unique_indices == KILN_FALSE;
    double s = p->scale;
    if (repeats ? tokens > 0 && batch == 0 : tokens > batch) return "there are more distinct tokens than rows";
    const char *error = fill_token_indices(p);
    if (error) return error;
    fill(p, "grad_output", s);
    fill(p, "selected_tokens", s);
    fill(p, "w1_output", 2);
    fill(p, "up_output", 2);
    fill(p, "w1_weight", s / sqrt((double)hidden));
    fill(p, "w2_weight", s / sqrt((double)inner));
    fill(p, "w3_weight", s / sqrt((double)hidden));
    const DLTensor *weights = find(p, "selected_weights");
    for (int64_t t = 0; t < tokens; t++) put(weights, t, 0.1 + 0.8 * kt_random_uniform(&p->random));
    double *w2 = load_all(find(p, "w2_weight")), *h = calloc((size_t)inner + 1, sizeof *h);
    for (int64_t t = 0; w2 && h && t < tokens; t++) expert_token(p, t, w2, h);
    error = w2 && h ? NULL : out_of_memory;
    free(w2);
    free(h);
    return error;
}

/* ---- moe_layer --------------------------------------------------------------------------------------------------- */

/* What the layer's tokens are written to. */
typedef struct layer {
    const DLTensor *logits, *scores, *mask, *indices, *weights;
    int64_t *ids;
} layer;

static void layer_token(kt_problem *p, const layer *l, int64_t t) {
    const kiln_moe_layer_backward_options *options = p->options;
    int64_t experts = size_of(p, 'E'), k = size_of(p, 'K');
    double c = options->routed_scaling_factor == 0 ? 1 : options->routed_scaling_factor, sum = 1e-20;
    for (int64_t e = 0; e < experts; e++) {
        double z = logit(p);
        put(l->logits, t * experts + e, z);
        put(l->scores, t * experts + e, sigmoid(z));
        put(l->mask, t * experts + e, kt_random_below(&p->random, 16) > 0);
    }
    choose(p, experts, k, false, l->indices, l->ids);
    for (int64_t j = 0; j < k; j++) {
        put(l->indices, t * k + j, (double)l->ids[j]);
        if (names_one_of(l->ids[j], experts)) sum += kt_problem_get(l->scores, t * experts + l->ids[j]);
    }
    if (options->norm_topk_prob == KILN_FALSE) sum = 1;
    for (int64_t j = 0; j < k; j++) {
        bool chosen = names_one_of(l->ids[j], experts);
        put(l->weights, t * k + j, chosen ? c * kt_problem_get(l->scores, t * experts + l->ids[j]) / sum : 0);
    }
}

static const char *fill_moe_layer(kt_problem *p) {
    int64_t hidden = size_of(p, 'H'), inner = size_of(p, 'I');
    double s = p->scale;
    fill(p, "grad_output", s);
    fill(p, "hidden_states", s);
    fill(p, "router_weight", s / sqrt((double)hidden));
    fill(p, "e_score_correction_bias", 1);
    fill(p, "shared_expert_gate_weight", s / sqrt((double)hidden));
    fill(p, "shared_expert_up_weight", s / sqrt((double)hidden));
    fill(p, "shared_expert_down_weight", s / sqrt((double)inner));
    fill(p, "shared_gate_output", 2);
    fill(p, "shared_up_output", 2);
    fill(p, "grad_topk_weights", 4 * s * s); /* so that router and shared expert weigh alike */
    const DLTensor *gate = find(p, "shared_gate_output"), *up = find(p, "shared_up_output"),
                   *activation = find(p, "shared_activated");
    for (int64_t i = 0; i < size_of(p, 'T') * inner; i++) {
        activated a = activate(&(kiln_activation){0}, kt_problem_get(gate, i), kt_problem_get(up, i));
        put(activation, i, a.silu * a.up);
    }
    layer l = {find(p, "router_logits"), find(p, "scores"),       find(p, "score_mask"),
               find(p, "topk_indices"),  find(p, "topk_weights"), calloc((size_t)size_of(p, 'K') + 1, sizeof(int64_t))};
    for (int64_t t = 0; l.ids && t < size_of(p, 'T'); t++) layer_token(p, &l, t);
    free(l.ids);
    return l.ids ? NULL : out_of_memory;
}

/* ---- routed_experts ---------------------------------------------------------------------------------------------- */

/* The local expert of a slot, -1 if it has none. */
static int64_t local_expert(const kt_problem *p, int64_t slot, int64_t top_k) {
    const DLTensor *ids = find(p, "topk_indices"), *offsets = find(p, "expert_offsets");
    int64_t local = size_of(p, 'L'), lo = ((const kiln_routed_experts_backward_options *)p->options)->expert_lo;
    if (ids) {
        int64_t id = (int64_t)kt_problem_get(ids, slot) - lo;
        return id >= 0 && id < local ? id : -1;
    }
    int64_t row = slot / top_k;
    for (int64_t e = 0; e < local; e++) {
        if (row >= (int64_t)kt_problem_get(offsets, e) && row < (int64_t)kt_problem_get(offsets, e + 1)) return e;
    }
    return -1;
}

/* saved_gate or saved_up: x times the transposed weights of the slot's expert. */
static const char *fill_saved(kt_problem *p, const char *name, const char *weights_name, int64_t top_k) {
    const DLTensor *saved = find(p, name), *topk_weights = find(p, "topk_weights");
    if (!saved) return NULL;
    int64_t hidden = size_of(p, 'H'), inner = size_of(p, 'I');
    bool on_input = ((const kiln_routed_experts_backward_options *)p->options)->weight_on == KILN_WEIGHT_ON_INPUT;
    double *x = load_all(find(p, "hidden_states")), *weights = load_all(find(p, weights_name));
    for (int64_t slot = 0; x && weights && slot < size_of(p, 'T') * top_k; slot++) {
        int64_t e = local_expert(p, slot, top_k);
        double w = on_input ? kt_problem_get(topk_weights, slot) : 1;
        for (int64_t i = 0; i < inner; i++) {
            double sum = e >= 0 ? 0 : (double)NAN; /* nobody may read what belongs to no expert */
            for (int64_t j = 0; e >= 0 && j < hidden; j++)
                sum += w * x[slot / top_k * hidden + j] * weights[(e * inner + i) * hidden + j];
            kt_problem_put(saved, slot * inner + i, sum);
        }
    }
    const char *error = x && weights ? NULL : out_of_memory;
    free(x);
    free(weights);
    return error;
}

static const char *fill_routed_experts(kt_problem *p) {
    kiln_routed_experts_backward_options *options = p->options;
    const DLTensor *indices = find(p, "topk_indices"), *weights = find(p, "topk_weights");
    int64_t top_k = indices ? size_of(p, 'K') : 1, experts = size_of(p, 'E');
    double s = p->scale;
    fill(p, "grad_output", s);
    fill(p, "hidden_states", 1);
    fill(p, "gate_weights", 1.5 / sqrt((double)size_of(p, 'H')));
    fill(p, "up_weights", 1.5 * s / sqrt((double)size_of(p, 'H')));
    fill(p, "down_weights", s / sqrt((double)size_of(p, 'I')));
    int64_t *ids = calloc((size_t)top_k + 1, sizeof *ids);
    for (int64_t t = 0; ids && t < size_of(p, 'T'); t++) {
        if (indices) choose(p, experts, top_k, true, indices, ids);
        for (int64_t k = 0; k < top_k; k++) {
            put(indices, t * top_k + k, (double)ids[k]);
            put(weights, t * top_k + k, 0.05 + 0.9 * kt_random_uniform(&p->random));
        }
    }
    free(ids);
    if (!indices) fill_offsets(p, "expert_offsets", size_of(p, 'L'), size_of(p, 'T'));
    if (options->num_experts == 0) options->num_experts = experts;
    const char *error = ids ? fill_saved(p, "saved_gate", "gate_weights", top_k) : out_of_memory;
    return error ? error : fill_saved(p, "saved_up", "up_weights", top_k);
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

const char *kt_problem_fill(kt_problem *p) {
    static const struct {
        const char *op;
        const char *(*fill)(kt_problem *p);
    } rows[] = {
        {"load_balance_backward", fill_load_balance},
        {"router_backward", fill_router},
        {"expert_mlp_backward", fill_expert_mlp},
        {"moe_layer_backward", fill_moe_layer},
        {"routed_experts_backward", fill_routed_experts},
        {"gemm", fill_gemm},
        {"grouped_gemm", fill_grouped_gemm},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (strcmp(rows[i].op, p->op) == 0) return rows[i].fill(p);
    }
    return "the operation has no values";
}
