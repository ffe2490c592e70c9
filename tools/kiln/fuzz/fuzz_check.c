/* Judging outputs: see fuzz_check.h. */
#include "fuzz/fuzz_check.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int kt_fuzz_oracle_make(const kt_fuzz_memory *m, kt_fuzz_oracle *o) {
    *o = (kt_fuzz_oracle){0};
    for (int i = 0; i < m->c->op->n_args; i++) {
        if (!kt_fuzz_is_output(m, i)) continue;
        int k = o->n++;
        o->arg[k] = i;
        if (!m->host_args[i]) continue;
        uint64_t n = m->shapes.tensor[i].elements;
        o->exact[k] = kt_alloc(n ? n : 1, sizeof(double));
        o->magnitude[k] = kt_alloc(n ? n : 1, sizeof(double));
    }
    return kt_status(m->lib,
                     KT_CALL(m->lib, "kiln_reference", KT_STR(m->c->op->name), KT_PTR(m->host_args),
                             KT_I32(m->c->op->n_args), KT_PTR(m->options), KT_PTR(o->exact), KT_PTR(o->magnitude)));
}

void kt_fuzz_oracle_free(kt_fuzz_oracle *o) {
    for (int k = 0; k < o->n; k++) {
        free(o->exact[k]);
        free(o->magnitude[k]);
    }
    *o = (kt_fuzz_oracle){0};
}

/* ---- the Frobenius rule -------------------------------------------------------------------------------------------
 * A result is a sum of many terms whose rounding errors are independent: its error is in proportion to the root of the
 * sum of the terms' squares. Abs, the sum of their absolute values, divided by the root of their number is never more
 * than that. So |err|_F <= limit * max(|exact|_F, 2 |Abs|_F / sqrt(terms)) holds for right results of any size, those
 * whose few terms cancel among them, and catches a slice that is off by two percent in most types. */

/* The axes whose product counts the terms of an element, by output: those whose terms are much alike. NULL
 * where the rule does not apply: dot products that may cancel, which the library judges by their factors. */
static const struct rule {
    const char *op, *output, *terms;
} rules[] = {
    {"load_balance_backward", "grad_expert_mask_out", ""},
    {"router_backward", "grad_hidden_states", "K"},
    {"router_backward", "grad_gate_weight", "K"},
    {"router_backward", "grad_gate_bias", "K"},
    {"router_backward", "grad_logits", "K"},
    {"expert_mlp_backward", "grad_hidden_states", "H"},
    {"expert_mlp_backward", "grad_routing_weights", NULL},
    {"expert_mlp_backward", "grad_w1_weight", "H"},
    {"expert_mlp_backward", "grad_w2_weight", ""},
    {"expert_mlp_backward", "grad_w3_weight", "H"},
    {"moe_layer_backward", "grad_hidden_states", "H"},
    {"moe_layer_backward", "grad_router_weight", "K"},
    {"moe_layer_backward", "grad_shared_expert_gate_weight", "H"},
    {"moe_layer_backward", "grad_shared_expert_up_weight", "H"},
    {"moe_layer_backward", "grad_shared_expert_down_weight", ""},
    {"routed_experts_backward", "grad_hidden_states", "H"},
    {"routed_experts_backward", "grad_topk_weights", NULL},
    {"routed_experts_backward", "grad_gate_weights", "H"},
    {"routed_experts_backward", "grad_up_weights", "H"},
    {"routed_experts_backward", "grad_down_weights", "H"},
    {"gemm", "d", "K"},
    {"grouped_gemm", "d", "K"},
};

static const struct rule *rule_of(const kt_fuzz_memory *m, int arg) {
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (strcmp(rules[i].op, m->c->op->name) == 0 && strcmp(rules[i].output, m->c->op->args[arg].name) == 0)
            return &rules[i];
    return NULL;
}

static double unit_of(const kt_dtype *t) {
    return t->bits == 32 ? 0x1p-24 : t->code == KT_DL_BFLOAT ? 0x1p-9 : 0x1p-12;
}

static bool option_is(const kt_fuzz_memory *m, const char *name, const char *value) {
    const char *set = json_string_value(json_object_get(m->c->settings, name));
    return set && strcmp(set, value) == 0;
}

static bool is_half(const kt_fuzz_memory *m) {
    return m->c->dtype[0]->code == KT_DL_FLOAT && m->c->dtype[0]->bits == 16;
}

/* f16 numbers below 6e-5 are not rounded in proportion to their size. Abs and the bounds of elements know it, the
 * Frobenius rules do not, but for the library's of the router. */
static bool is_small_half(const kt_fuzz_memory *m) {
    return is_half(m) && m->c->scale < 1;
}

/* Are values so much alike that errors average out? The library's Frobenius rule takes that for granted. Values of one
 * sign have a common part, which cancels in the router's products, while the rounding of the dlogits does not. */
static bool is_even(const kt_fuzz_memory *m) {
    bool alike = m->c->values == KT_VALUES_NORMAL ||
                 (m->c->values == KT_VALUES_POSITIVE && strcmp(m->c->op->name, "router_backward") != 0);
    return alike && !is_small_half(m);
}

/* The coarsest rounding on the way to an output, times 4 for several of them (8 in f16, where some numbers are small,
 * and of ties: a slice of a few tokens is one number over and over, and its four roundings, of 2 u each, add up); and
 * never less than what the library's own rule allows. */
static double limit_of(const kt_fuzz_memory *m, int arg) {
    const char *op = m->c->op->name;
    double in = unit_of(m->c->dtype[0]), out = unit_of(m->c->dtype[arg]), fine = 0x1p-20;
    bool wide = m->c->dtype[0]->bits == 32, product = strcmp(op, "gemm") == 0 || strcmp(op, "grouped_gemm") == 0;
    if (strcmp(op, "load_balance_backward") == 0) return 1e-6;
    if (strcmp(op, "router_backward") == 0)
        in = wide || option_is(m, "round_dlogits", "f32") ? fine : in;
    else if (strcmp(op, "moe_layer_backward") == 0 && strcmp(m->c->op->args[arg].name, "grad_router_weight") == 0)
        in = fine;
    else if (wide)
        in = option_is(m, "math", "accurate") ? fine : 0x1p-9;
    else if (product)
        in = 0x1p-15;
    bool apart = !is_half(m) && m->c->values != KT_VALUES_TIES;
    double coarsest = in > out ? in : out, limit = (apart ? 4 : 8) * coarsest;
    return limit > 2e-5 ? limit : 2e-5;
}

typedef struct sums {
    double error, exact, magnitude; /* of squares */
    uint64_t n;
    bool finite;
} sums;

static sums sum_part(const kt_tensor *t, const void *got, const double *exact, const double *magnitude, uint64_t from,
                     uint64_t n) {
    sums s = {.finite = true};
    for (uint64_t i = from; i < from + n; i++) {
        double d = kt_element(t->dtype, got, i) - exact[i];
        if (!isfinite(d) || !isfinite(magnitude[i])) {
            s.finite = false;
            return s;
        }
        s.error += d * d;
        s.exact += exact[i] * exact[i];
        s.magnitude += magnitude[i] * magnitude[i];
        s.n++;
    }
    return s;
}

/* How far off the part is, as a part of what is allowed. */
static double ratio_of(const sums *s, const kt_dtype *dtype, double limit, double terms) {
    if (!s->finite) return 0; /* the elements have been judged one by one */
    double size = fmax(sqrt(s->exact), 2 * sqrt(s->magnitude / terms)), tiny = dtype->bits == 16 ? 0x1p-24 : 0x1p-126;
    double allowed = limit * size + 0x1p-22 * sqrt(s->magnitude) + tiny * sqrt((double)s->n);
    return sqrt(s->error) / allowed;
}

enum { LEAST = 64 }; /* elements of a part: fewer may cancel by chance */

static int judge_parts(const kt_fuzz_oracle *o, const kt_fuzz_memory *m, int k, double *worst) {
    int arg = o->arg[k];
    const kt_tensor *t = &m->shapes.tensor[arg];
    const struct rule *rule = rule_of(m, arg);
    if (!rule || !rule->terms || t->elements < LEAST || is_small_half(m)) return KT_GOOD;
    /* Of values of unequal size only the largest count: then Abs itself is the measure. */
    bool alike = m->c->values != KT_VALUES_SPARSE && m->c->values != KT_VALUES_OUTLIERS;
    double terms = 1, limit = limit_of(m, arg);
    for (const char *s = alike ? rule->terms : ""; *s; s++)
        terms *= (double)(m->c->size[*s - 'A'] > 0 ? m->c->size[*s - 'A'] : 1);
    void *got = kt_fuzz_memory_compact(m, arg);
    uint64_t n_parts = t->rank > 1 ? (uint64_t)t->shape[0] : 1, part = t->elements / n_parts;
    int code = KT_GOOD;
    for (uint64_t p = 0; p <= n_parts && code == KT_GOOD; p++) { /* the last one: all of it */
        bool whole = p == n_parts;
        if (!whole && part < LEAST) continue;
        sums s = sum_part(t, got, o->exact[k], o->magnitude[k], whole ? 0 : p * part, whole ? t->elements : part);
        double ratio = ratio_of(&s, t->dtype, limit, terms);
        if (ratio > *worst) *worst = ratio;
        if (ratio <= 1) continue;
        char place[48] = "";
        if (!whole) snprintf(place, sizeof place, " slice %" PRIu64, p);
        code = kt_fail(KT_CHECK, "%s%s: relative Frobenius error %.3g, %.3g times what is allowed", rule->output, place,
                       sqrt(s.error / s.exact), ratio);
    }
    free(got);
    return code;
}

int kt_fuzz_oracle_judge(const kt_fuzz_oracle *o, const kt_fuzz_memory *m, int *arg, double *worst) {
    kiln_check_result *results = kt_alloc(KT_MAX_ARGS, sizeof *results);
    for (int k = 0; k < o->n; k++) results[k].struct_size = sizeof *results;
    int code = kt_status(m->lib, KT_CALL(m->lib, "kiln_check", KT_STR(m->c->op->name), KT_PTR(m->host_args),
                                         KT_I32(m->c->op->n_args), KT_PTR(m->options), KT_PTR(o->exact),
                                         KT_PTR(o->magnitude), KT_PTR(results)));
    for (int k = 0; k < o->n && code == KT_GOOD; k++) {
        *arg = o->arg[k];
        if (!o->exact[k]) continue;
        if (results[k].max_ratio > *worst) *worst = results[k].max_ratio;
        bool pass = results[k].pass || (!is_even(m) && results[k].bad_elements == 0);
        if (!pass) code = kt_fail(KT_CHECK, "%s", results[k].message);
        if (code == KT_GOOD) code = judge_parts(o, m, k, worst);
    }
    free(results);
    return code;
}
