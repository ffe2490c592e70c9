/* Contents of benchmark tensors: see bench_pattern.h. */
#include "bench/bench_pattern.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    UNITS = 131071,    /* a prime: 16-byte units of a block, 2 MiB */
    ROUTED_ROWS = 4093 /* a prime: tokens after which routing decisions repeat */
};

void kt_bench_store(const kt_dtype *dtype, void *data, uint64_t i, double value) {
    kt_number_store(dtype->code, dtype->bits, (unsigned char *)data + i * (dtype->bits / 8u), value);
}

/* ---- routing ----------------------------------------------------------------------------------------------------- */

/* Scores of ROUTED_ROWS tokens and the experts that they choose. */
struct kt_bench_routes {
    int64_t experts, k;
    bool softmax;    /* else sigmoid */
    double *score;   /* [rows, experts] */
    double *best;    /* [rows, k]: the k largest scores */
    double *sum;     /* [rows]: of best */
    int64_t *expert; /* [rows, k] */
};

static void free_routes(struct kt_bench_routes *r) {
    if (!r) return;
    free(r->score);
    free(r->best);
    free(r->sum);
    free(r->expert);
    free(r);
}

static void score_row(struct kt_bench_routes *r, double *s, kt_random *random) {
    double sum = 0;
    for (int64_t e = 0; e < r->experts; e++) {
        double x = kt_random_normal(random);
        s[e] = r->softmax ? exp(x) : 1 / (1 + exp(-x));
        sum += s[e];
    }
    for (int64_t e = 0; e < r->experts && r->softmax; e++) s[e] /= sum;
    /* As f32 tensors hold them: all that is derived from them fits. */
    for (int64_t e = 0; e < r->experts; e++) s[e] = (double)(float)s[e];
}

/* The k best of a row, best first. */
static void choose_row(struct kt_bench_routes *r, int64_t row) {
    const double *s = r->score + row * r->experts;
    double *best = r->best + row * r->k;
    int64_t *expert = r->expert + row * r->k, n = 0;
    for (int64_t e = 0; e < r->experts; e++) {
        if (n == r->k && s[e] <= best[n - 1]) continue;
        int64_t at = n < r->k ? n++ : n - 1;
        for (; at > 0 && best[at - 1] < s[e]; at--) {
            best[at] = best[at - 1];
            expert[at] = expert[at - 1];
        }
        best[at] = s[e];
        expert[at] = e;
    }
    r->sum[row] = 0;
    for (int64_t k = 0; k < r->k; k++) r->sum[row] += best[k];
}

static struct kt_bench_routes *make_routes(int64_t experts, int64_t k, bool softmax) {
    struct kt_bench_routes *r = kt_alloc(1, sizeof *r);
    kt_random random = {0x726F75746573};
    *r = (struct kt_bench_routes){.experts = experts, .k = k, .softmax = softmax};
    r->score = kt_alloc((size_t)(ROUTED_ROWS * experts), sizeof *r->score);
    r->best = kt_alloc((size_t)(ROUTED_ROWS * k), sizeof *r->best);
    r->sum = kt_alloc(ROUTED_ROWS, sizeof *r->sum);
    r->expert = kt_alloc((size_t)(ROUTED_ROWS * k), sizeof *r->expert);
    for (int64_t row = 0; row < ROUTED_ROWS; row++) {
        score_row(r, r->score + row * experts, &random);
        choose_row(r, row);
    }
    return r;
}

/* ---- contents ---------------------------------------------------------------------------------------------------- */

typedef enum contents {
    NORMAL,     /* `scale` times a normal number */
    UNIFORM,    /* in (0, 1) */
    ONE,        /* 1, true */
    SCORES,     /* of all experts */
    CHOSEN,     /* the ids of the k best experts */
    CHOSEN_SUM, /* the sum of their scores */
    SHARES,     /* their scores over that sum */
    SORTED,     /* T different ids below B, rising */
    SILU,       /* silu(from) */
    GATED       /* silu(from) * with */
} contents;

static const struct rule {
    const char *op, *name;
    contents what;
    double scale;
    const char *from, *with;
} rules[] = {
    {"load_balance_backward", "training", ONE, 0, NULL, NULL},
    {"load_balance_backward", "topk_idx", CHOSEN, 0, NULL, NULL},
    {"router_backward", "gate_weight", NORMAL, .02, NULL, NULL},
    {"router_backward", "routing_probs", SCORES, 0, NULL, NULL},
    {"router_backward", "selected_experts", CHOSEN, 0, NULL, NULL},
    {"router_backward", "routing_weights_sum", CHOSEN_SUM, 0, NULL, NULL},
    {"router_backward", "grad_routing_weights", NORMAL, .1, NULL, NULL},
    {"router_backward", "grad_expert_mask", NORMAL, .01, NULL, NULL},
    {"router_backward", "grad_router_logits", NORMAL, .1, NULL, NULL},
    {"expert_mlp_backward", "token_indices", SORTED, 0, NULL, NULL},
    {"expert_mlp_backward", "gate_output", SILU, 0, "w1_output", NULL},
    {"expert_mlp_backward", "gated_output", GATED, 0, "w1_output", "up_output"},
    {"expert_mlp_backward", "selected_weights", UNIFORM, 0, NULL, NULL},
    {"expert_mlp_backward", "w1_weight", NORMAL, .02, NULL, NULL},
    {"expert_mlp_backward", "w2_weight", NORMAL, .02, NULL, NULL},
    {"expert_mlp_backward", "w3_weight", NORMAL, .02, NULL, NULL},
    {"moe_layer_backward", "router_weight", NORMAL, .02, NULL, NULL},
    {"moe_layer_backward", "scores", SCORES, 0, NULL, NULL},
    {"moe_layer_backward", "topk_indices", CHOSEN, 0, NULL, NULL},
    {"moe_layer_backward", "topk_weights", SHARES, 0, NULL, NULL},
    {"moe_layer_backward", "score_mask", ONE, 0, NULL, NULL},
    {"moe_layer_backward", "shared_expert_gate_weight", NORMAL, .02, NULL, NULL},
    {"moe_layer_backward", "shared_expert_up_weight", NORMAL, .02, NULL, NULL},
    {"moe_layer_backward", "shared_expert_down_weight", NORMAL, .02, NULL, NULL},
    {"moe_layer_backward", "shared_activated", GATED, 0, "shared_gate_output", "shared_up_output"},
    {"routed_experts_backward", "topk_indices", CHOSEN, 0, NULL, NULL},
    {"routed_experts_backward", "topk_weights", SHARES, 0, NULL, NULL},
    {"routed_experts_backward", "gate_weights", NORMAL, .02, NULL, NULL},
    {"routed_experts_backward", "up_weights", NORMAL, .02, NULL, NULL},
    {"routed_experts_backward", "down_weights", NORMAL, .02, NULL, NULL},
};
static const struct rule everything_else = {"", "", NORMAL, 1, NULL, NULL};

static const struct rule *rule_of(const kt_op *op, int i) {
    for (size_t r = 0; r < sizeof rules / sizeof *rules; r++)
        if (strcmp(rules[r].op, op->name) == 0 && strcmp(rules[r].name, op->args[i].name) == 0) return &rules[r];
    return &everything_else;
}

static int64_t size_of(const kt_tensors *ts, char letter) {
    return ts->size[letter - 'A'];
}

/* Experts of the layer: E, or L where all of them are held here. */
static int64_t experts_of(const kt_tensors *ts) {
    return size_of(ts, 'E') >= 0 ? size_of(ts, 'E') : size_of(ts, 'L');
}

static uint64_t period_of(const kt_tensors *ts, int i, const struct rule *rule) {
    const kt_tensor *t = &ts->tensor[i];
    switch (rule->what) {
    case SCORES: return (uint64_t)(ROUTED_ROWS * experts_of(ts));
    case CHOSEN:
    case SHARES: return (uint64_t)(ROUTED_ROWS * size_of(ts, 'K'));
    case CHOSEN_SUM: return ROUTED_ROWS;
    case SORTED: return t->elements ? t->elements : 1;
    default: return UINT64_C(128) * UNITS / t->dtype->bits;
    }
}

/* All that the contents depend on. */
static char *key_of(const kt_tensors *ts, int i, const struct rule *rule) {
    return kt_format("%s.%s %s %d E%" PRId64 " K%" PRId64 " B%" PRId64 " T%" PRId64, ts->op->name, ts->op->args[i].name,
                     ts->tensor[i].dtype->name, (int)rule->what, experts_of(ts), size_of(ts, 'K'),
                     rule->what == SORTED ? size_of(ts, 'B') : 0, rule->what == SORTED ? size_of(ts, 'T') : 0);
}

static void fill_sorted(const kt_tensors *ts, kt_bench_pattern *p, kt_random *random) {
    int64_t left = size_of(ts, 'T');
    for (int64_t id = 0, n = 0, of = size_of(ts, 'B'); id < of && left > 0; id++) {
        /* Take each id with the chance that the rest needs it: every set is equally likely. */
        if (kt_random_uniform(random) * (double)(of - id) >= (double)left) continue;
        kt_bench_store(p->dtype, p->block, (uint64_t)n++, (double)id);
        left--;
    }
}

static void fill_routed(const struct kt_bench_routes *r, contents what, kt_bench_pattern *p) {
    for (uint64_t n = 0; n < p->period; n++) {
        double v = 0;
        switch (what) {
        case SCORES: v = r->score[n]; break;
        case CHOSEN: v = (double)r->expert[n]; break;
        case CHOSEN_SUM: v = r->sum[n]; break;
        default: v = r->best[n] / r->sum[n / (uint64_t)r->k];
        }
        kt_bench_store(p->dtype, p->block, n, v);
    }
}

/* From the rounded values of the tensors that it is made of, as a saved tensor is. */
static int fill_derived(kt_bench_patterns *all, const struct rule *rule, kt_bench_pattern *p) {
    const kt_bench_pattern *from = &all->arg[kt_op_arg(all->op, rule->from) - all->op->args];
    const kt_bench_pattern *with = rule->with ? &all->arg[kt_op_arg(all->op, rule->with) - all->op->args] : NULL;
    if (from->period != p->period || (with && with->period != p->period))
        return kt_fail(KT_USAGE, "%s needs %s of the same type", p->key, rule->from);
    for (uint64_t n = 0; n < p->period; n++) {
        double g = kt_element(from->dtype, from->block, n), v = g / (1 + exp(-g));
        if (with) v *= kt_element(with->dtype, with->block, n);
        kt_bench_store(p->dtype, p->block, n, v);
    }
    return KT_GOOD;
}

static int fill(kt_bench_patterns *all, const kt_tensors *ts, int i, const struct rule *rule) {
    kt_bench_pattern *p = &all->arg[i];
    kt_random random = {(uint64_t)(i + 1) << 32};
    switch (rule->what) {
    case SCORES:
    case CHOSEN:
    case CHOSEN_SUM:
    case SHARES: fill_routed(all->routes, rule->what, p); return KT_GOOD;
    case SORTED: fill_sorted(ts, p, &random); return KT_GOOD;
    case SILU:
    case GATED: return fill_derived(all, rule, p);
    default: break;
    }
    for (uint64_t n = 0; n < p->period; n++) {
        double v = rule->what == ONE       ? 1
                   : rule->what == UNIFORM ? kt_random_uniform(&random)
                                           : rule->scale * kt_random_normal(&random);
        kt_bench_store(p->dtype, p->block, n, v);
    }
    return KT_GOOD;
}

static int need_routes(kt_bench_patterns *all, const kt_tensors *ts) {
    int64_t experts = experts_of(ts), k = size_of(ts, 'K');
    bool softmax = strcmp(ts->op->name, "moe_layer_backward") != 0;
    if (all->routes && all->routes->experts == experts && all->routes->k == k && all->routes->softmax == softmax)
        return KT_GOOD;
    if (k < 1 || k > experts)
        return kt_fail(KT_USAGE, "%s: K is %" PRId64 "; wanted 1 to %" PRId64, ts->op->name, k, experts);
    free_routes(all->routes);
    all->routes = make_routes(experts, k, softmax);
    return KT_GOOD;
}

static void drop(kt_bench_pattern *p) {
    free(p->key);
    free(p->block);
    *p = (kt_bench_pattern){0};
}

static int make(kt_bench_patterns *all, const kt_tensors *ts, int i) {
    const struct rule *rule = rule_of(ts->op, i);
    kt_bench_pattern *p = &all->arg[i];
    char *key = key_of(ts, i, rule);
    if (p->key && strcmp(p->key, key) == 0) {
        free(key);
        return KT_GOOD;
    }
    drop(p);
    *p = (kt_bench_pattern){.key = key, .dtype = ts->tensor[i].dtype, .period = period_of(ts, i, rule)};
    p->block = kt_alloc(p->period, p->dtype->bits / 8u);
    bool routed = rule->what >= SCORES && rule->what <= SHARES;
    if (routed) KT_TRY(need_routes(all, ts));
    return fill(all, ts, i, rule);
}

int kt_bench_patterns_make(kt_bench_patterns *all, const kt_tensors *ts) {
    if (all->op != ts->op) kt_bench_patterns_free(all);
    all->op = ts->op;
    /* Derived contents last: what they are made of stands anywhere in the list. */
    for (int derived = 0; derived < 2; derived++) {
        for (int i = 0; i < ts->op->n_args; i++) {
            contents what = rule_of(ts->op, i)->what;
            if (!ts->tensor[i].present || ts->op->args[i].role == KT_OUT || (what >= SILU) != derived) continue;
            KT_TRY(make(all, ts, i));
        }
    }
    return KT_GOOD;
}

void kt_bench_patterns_free(kt_bench_patterns *all) {
    for (int i = 0; i < KT_MAX_ARGS; i++) drop(&all->arg[i]);
    free_routes(all->routes);
    *all = (kt_bench_patterns){0};
}
