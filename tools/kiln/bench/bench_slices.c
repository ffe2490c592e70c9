/* Which parts of a benchmark case are checked: see bench_verify.h. */
#include "bench/bench_verify.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void kt_bench_slice_free(kt_bench_slice *slice) {
    for (int i = 0; i < 26; i++) free(slice->index[i]);
    *slice = (kt_bench_slice){0};
}

/* What one slice is drawn from. */
typedef struct draw {
    const kt_tensors *tensors;
    uint64_t seed;
    kt_random random;
    kt_bench_slice *slice;
} draw;

static int64_t size_of(const draw *d, char letter) {
    return d->tensors->size[letter - 'A'];
}

static void want_output(const draw *d, const char *name) {
    d->slice->outputs |= 1u << (kt_op_arg(d->tensors->op, name) - d->tensors->op->args);
}

/* The marked ones of `size` indices. */
static void take_marked(const draw *d, char letter, const bool *marked, int64_t size) {
    int64_t *index = kt_alloc((size_t)size, sizeof *index), n = 0;
    for (int64_t i = 0; i < size; i++)
        if (marked[i]) index[n++] = i;
    d->slice->index[letter - 'A'] = index;
    d->slice->n[letter - 'A'] = n;
}

/* `count` indices of an axis in runs of `run`: the last ones, where tiles end, and others at random. All when it is
 * short. */
static void pick(draw *d, char letter, int64_t count, int64_t run) {
    int64_t size = size_of(d, letter);
    if (size <= count || size <= run) return;
    bool *marked = kt_alloc((size_t)size, sizeof *marked);
    int64_t start = size - run;
    for (int64_t n = 0; n < count;) {
        for (int64_t i = start; i < start + run && n < count; i++) {
            n += !marked[i];
            marked[i] = true;
        }
        start = (int64_t)(kt_random_bits(&d->random) % (uint64_t)(size - run + 1));
    }
    take_marked(d, letter, marked, size);
    free(marked);
}

/* Features for a weight's gradient: enough for the Frobenius rule, fewer where the sums over tokens are long. */
static void pick_features(draw *d, char letter) {
    pick(d, letter, size_of(d, 'T') > 4096 ? 32 : 64, 16);
}

/* ---- one function an operation ----------------------------------------------------------------------------------- */

/* All of it, or rows whose number n divides B * K: with top_k = B * K / n the loss is spread as over all rows. */
static int load_balance(draw *d) {
    int64_t rows = size_of(d, 'B'), k = size_of(d, 'K'), n = 4096;
    want_output(d, "grad_expert_mask_out");
    if (rows * size_of(d, 'E') <= INT64_C(1) << 23) return 1;
    while (rows * k % n != 0) n--;
    d->slice->top_k = (int32_t)(rows * k / n);
    pick(d, 'B', n, 1);
    return 1;
}

static int router(draw *d) {
    static const char *const rows[] = {"grad_hidden_states", "grad_logits"};
    static const char *const sums[] = {"grad_gate_weight", "grad_gate_bias"};
    for (int i = 0; i < 2; i++) want_output(d, rows[i]);
    pick(d, 'T', 64, 8);
    d->slice++;
    for (int i = 0; i < 2; i++) want_output(d, sums[i]);
    pick(d, 'H', 64, 16);
    return 2;
}

static int expert_mlp(draw *d, const kt_bench_pattern *indices) {
    want_output(d, "grad_hidden_states");
    want_output(d, "grad_routing_weights");
    pick(d, 'T', 8, 4);
    /* The rows of B that the slice's tokens are, and some that no token is. */
    int64_t batch = size_of(d, 'B'), tokens = size_of(d, 'T');
    const int64_t *index = d->slice->index['T' - 'A'];
    if (index) {
        bool *marked = kt_alloc((size_t)batch, sizeof *marked), *chosen = kt_alloc((size_t)batch, sizeof *chosen);
        for (int64_t i = 0; i < d->slice->n['T' - 'A']; i++)
            marked[(int64_t)kt_element(indices->dtype, indices->block, (uint64_t)index[i])] = true;
        for (int64_t i = 0; i < tokens; i++)
            chosen[(int64_t)kt_element(indices->dtype, indices->block, (uint64_t)i)] = true;
        for (int64_t b = 0, more = 8; b < batch && more > 0; b++) {
            if (chosen[b]) continue;
            marked[b] = true;
            more--;
        }
        take_marked(d, 'B', marked, batch);
        free(marked);
        free(chosen);
    }
    d->slice++;
    static const char *const weights[] = {"grad_w1_weight", "grad_w2_weight", "grad_w3_weight"};
    for (int i = 0; i < 3; i++) want_output(d, weights[i]);
    pick_features(d, 'F');
    return 2;
}

static int moe_layer(draw *d) {
    static const char *const weights[] = {"grad_router_weight", "grad_shared_expert_gate_weight",
                                          "grad_shared_expert_up_weight", "grad_shared_expert_down_weight"};
    want_output(d, "grad_hidden_states");
    pick(d, 'T', 64, 8);
    d->slice++;
    for (int i = 0; i < 4; i++) want_output(d, weights[i]);
    pick_features(d, 'I');
    return 2;
}

/* Id of slot n of the whole problem. */
static int64_t id_at(const kt_bench_pattern *ids, int64_t n) {
    return (int64_t)kt_element(ids->dtype, ids->block, (uint64_t)n % ids->period);
}

/* Experts of which the weights' gradients are checked: the busiest, the idlest, and two others. */
static void pick_experts(draw *d, const kt_bench_pattern *ids, bool *marked) {
    int64_t experts = size_of(d, 'L'), slots = size_of(d, 'T') * size_of(d, 'K'), most = 0, least = 0;
    int64_t *count = kt_alloc((size_t)experts, sizeof *count);
    for (int64_t n = 0; n < slots; n++) count[id_at(ids, n)]++;
    for (int64_t e = 0; e < experts; e++) {
        if (count[e] > count[most]) most = e;
        if (count[e] < count[least]) least = e;
    }
    marked[most] = marked[least] = true;
    for (int i = 0; i < 2; i++) marked[kt_random_bits(&d->random) % (uint64_t)experts] = true;
    free(count);
}

static int routed_experts(draw *d, const kt_bench_pattern *ids) {
    static const char *const weights[] = {"grad_gate_weights", "grad_up_weights", "grad_down_weights"};
    int64_t experts = size_of(d, 'L'), tokens = size_of(d, 'T'), k = size_of(d, 'K');
    bool *expert = kt_alloc((size_t)experts, sizeof *expert), *token = kt_alloc((size_t)tokens + 1, sizeof *token);
    /* One token and all of its experts: the last one, or in every second case another. */
    want_output(d, "grad_hidden_states");
    want_output(d, "grad_topk_weights");
    pick(d, 'T', 1, 1);
    int64_t row = d->seed % 2 && tokens ? (int64_t)(kt_random_bits(&d->random) % (uint64_t)tokens) : tokens - 1;
    if (d->slice->index['T' - 'A']) d->slice->index['T' - 'A'][0] = row;
    for (int64_t j = 0; j < k && tokens; j++) expert[id_at(ids, row * k + j)] = true;
    if (d->slice->index['T' - 'A']) take_marked(d, 'L', expert, experts);
    d->slice++;
    /* A few experts, the tokens that chose them, and some features. */
    memset(expert, 0, (size_t)experts * sizeof *expert);
    pick_experts(d, ids, expert);
    for (int64_t n = 0; n < tokens * k; n++)
        if (expert[id_at(ids, n)]) token[n / k] = true;
    take_marked(d, 'L', expert, experts);
    take_marked(d, 'T', token, tokens);
    for (int i = 0; i < 3; i++) want_output(d, weights[i]);
    pick(d, 'I', 64, 32);
    free(expert);
    free(token);
    return 2;
}

static int gemm(draw *d) {
    want_output(d, "d");
    pick(d, 'M', 128, 16);
    pick(d, 'N', 128, 16);
    return 1;
}

int kt_bench_slices(const kt_tensors *tensors, const kt_bench_patterns *patterns, uint64_t seed,
                    kt_bench_slice slices[KT_BENCH_MAX_SLICES]) {
    const kt_op *op = tensors->op;
    draw d = {tensors, seed, {seed}, slices};
    memset(slices, 0, KT_BENCH_MAX_SLICES * sizeof *slices);
    if (strcmp(op->name, "load_balance_backward") == 0) return load_balance(&d);
    if (strcmp(op->name, "router_backward") == 0) return router(&d);
    if (strcmp(op->name, "moe_layer_backward") == 0) return moe_layer(&d);
    if (strcmp(op->name, "gemm") == 0) return gemm(&d);
    if (strcmp(op->name, "expert_mlp_backward") == 0)
        return expert_mlp(&d, &patterns->arg[kt_op_arg(op, "token_indices") - op->args]);
    if (strcmp(op->name, "routed_experts_backward") == 0 &&
        tensors->tensor[kt_op_arg(op, "topk_indices") - op->args].present)
        return routed_experts(&d, &patterns->arg[kt_op_arg(op, "topk_indices") - op->args]);
    kt_fail(KT_USAGE, "kiln bench cannot verify this form of %s", op->name);
    return 0;
}
