/* Peers in the same process: see bench_peers.h. */
#include "bench_peers.h"

#include "bench_cublaslt.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_PRODUCTS = 6 };

struct kt_bench_peers {
    kt_bench_memory *memory;
    kt_bench_cublaslt *cublaslt;
    kt_bench_cublaslt_plan *plan[MAX_PRODUCTS];
    size_t n;
    kt_bench_buffer scratch[MAX_PRODUCTS]; /* results */
};

int kt_bench_peers_open(const char *list, kt_bench_memory *memory, kt_bench_peers **out) {
    *out = NULL;
    if (!list || !*list) return KT_GOOD;
    if (strcmp(list, "cublaslt") != 0) return kt_fail(KT_USAGE, "--peers %s: the peers are: cublaslt", list);
    if (!memory->gpu) return kt_fail(KT_USAGE, "--peers %s: peers need a GPU", list);
    *out = kt_alloc(1, sizeof **out);
    (*out)->memory = memory;
    return kt_bench_cublaslt_open(memory, &(*out)->cublaslt);
}

static void drop_plans(kt_bench_peers *peers) {
    for (size_t i = 0; i < MAX_PRODUCTS; i++) {
        kt_bench_cublaslt_plan_free(peers->plan[i]);
        peers->plan[i] = NULL;
    }
    peers->n = 0;
}

void kt_bench_peers_close(kt_bench_peers *peers) {
    if (!peers) return;
    drop_plans(peers);
    for (size_t i = 0; i < MAX_PRODUCTS; i++) kt_bench_memory_drop(peers->memory, &peers->scratch[i]);
    kt_bench_cublaslt_close(peers->cublaslt);
    free(peers);
}

json_t *kt_bench_peers_json(const kt_bench_peers *peers) {
    json_t *o = json_object();
    if (peers) json_object_set_new(o, "cublaslt", json_integer(kt_bench_cublaslt_version(peers->cublaslt)));
    return o;
}

/* ---- products -----------------------------------------------------------------------------------------------------
 */

/* One product of an operation: letters of its sizes, names of the tensors that stand in for its operands (same shape
 * and type; what the numbers are does not matter). into: which result, so that the second may be added to the first. */
typedef struct recipe {
    char m, n, k;
    bool a_transposed;
    const char *a, *b;
    int into;
    bool add;
} recipe;

static const recipe expert_mlp[] = {
    {'T', 'F', 'H', false, "selected_tokens", "w2_weight", 0, false},
    {'H', 'F', 'T', true, "selected_tokens", "gated_output", 1, false},
    {'F', 'H', 'T', true, "w1_output", "selected_tokens", 2, false},
    {'F', 'H', 'T', true, "up_output", "selected_tokens", 3, false},
    {'T', 'H', 'F', false, "w1_output", "w1_weight", 4, false},
    {'T', 'H', 'F', false, "up_output", "w3_weight", 4, true},
};
static const recipe moe_layer[] = {
    {'T', 'I', 'H', false, "grad_output", "shared_expert_down_weight", 0, false},
    {'H', 'I', 'T', true, "grad_output", "shared_activated", 1, false},
    {'I', 'H', 'T', true, "shared_gate_output", "hidden_states", 2, false},
    {'I', 'H', 'T', true, "shared_up_output", "hidden_states", 3, false},
    {'T', 'H', 'I', false, "shared_gate_output", "shared_expert_gate_weight", 4, false},
    {'T', 'H', 'I', false, "shared_up_output", "shared_expert_up_weight", 4, true},
};
static const recipe gemm[] = {{'M', 'N', 'K', false, "a", "b", 0, false}};

static const recipe *recipes_of(const kt_op *op, size_t *n) {
    *n = MAX_PRODUCTS;
    if (strcmp(op->name, "expert_mlp_backward") == 0) return expert_mlp;
    if (strcmp(op->name, "moe_layer_backward") == 0) return moe_layer;
    *n = 1;
    return strcmp(op->name, "gemm") == 0 ? gemm : NULL;
}

/* The tensor `name`, if the case has it. */
static const kt_tensor *operand(const kt_tensors *ts, const char *name, int *index) {
    *index = (int)(kt_op_arg(ts->op, name) - ts->op->args);
    return ts->tensor[*index].present ? &ts->tensor[*index] : NULL;
}

static int make(kt_bench_peers *peers, const kt_tensors *ts, uint32_t transposed, const recipe *r,
                kt_bench_timer *timer, bool *possible) {
    int ai, bi;
    const kt_tensor *a = operand(ts, r->a, &ai), *b = operand(ts, r->b, &bi);
    kt_bench_product p = {.m = ts->size[r->m - 'A'], .n = ts->size[r->n - 'A'], .k = ts->size[r->k - 'A']};
    *possible = a && b && a->dtype->bits == 16 && p.m > 0 && p.n > 0 && p.k > 0;
    if (!*possible) return KT_GOOD;
    p.dtype = a->dtype;
    p.a = a->on_device.data;
    p.b = b->on_device.data;
    p.a_transposed = r->a_transposed || transposed >> ai & 1;
    p.b_transposed = transposed >> bi & 1;
    p.add = r->add;
    kt_bench_buffer *into = &peers->scratch[r->into];
    KT_TRY(kt_bench_memory_room(peers->memory, into, (uint64_t)p.m * (uint64_t)p.n * 2));
    p.d = into->device;
    return kt_bench_cublaslt_plan_make(peers->cublaslt, &p, timer, &peers->plan[peers->n++]);
}

static int run_products(void *user, void *stream) {
    kt_bench_peers *peers = user;
    for (size_t i = 0; i < peers->n; i++) KT_TRY(kt_bench_cublaslt_run(peers->plan[i], stream));
    return KT_GOOD;
}

int kt_bench_peers_add(kt_bench_peers *peers, const kt_tensors *ts, uint32_t transposed, kt_bench_timer *timer,
                       kt_bench_subject *subjects, size_t *n) {
    size_t n_recipes;
    const recipe *recipes = recipes_of(ts->op, &n_recipes);
    if (!peers || !recipes) return KT_GOOD;
    drop_plans(peers);
    for (size_t i = 0; i < n_recipes; i++) {
        bool possible;
        KT_TRY(make(peers, ts, transposed, &recipes[i], timer, &possible));
        if (!possible) return KT_GOOD;
    }
    const char *name = recipes == gemm ? "cublaslt" : "cublaslt_products";
    subjects[(*n)++] = (kt_bench_subject){.name = name, .enqueue = run_products, .user = peers};
    return KT_GOOD;
}
