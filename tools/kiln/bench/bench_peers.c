/* Peers in the same process: see bench_peers.h. */
#include "bench/bench_peers.h"

#include "bench/bench_composed.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_PRODUCTS = 6 };

struct kt_bench_peers {
    kt_bench_memory *memory;
    bool products; /* "cublaslt" is wanted */
    kt_bench_cublaslt *cublaslt;
    kt_bench_composed *composed; /* NULL unless wanted */
    kt_bench_cublaslt_plan *plan[MAX_PRODUCTS];
    const char *part[MAX_PRODUCTS];
    size_t kernels[MAX_PRODUCTS]; /* of each product, as CUPTI saw them; 0: not known */
    size_t n;
    kt_bench_buffer scratch[MAX_PRODUCTS]; /* results */
};

/* Which peers the list names. */
static int read_list(const char *list, bool *products, bool *composed) {
    *products = *composed = false;
    for (const char *at = list; *at;) {
        size_t n = strcspn(at, ",");
        if (n == 8 && strncmp(at, "cublaslt", n) == 0)
            *products = true;
        else if (n == 8 && strncmp(at, "composed", n) == 0)
            *composed = true;
        else
            return kt_fail(KT_USAGE, "--peers %s: the peers are: cublaslt, composed", list);
        at += n + (at[n] == ',');
    }
    return KT_GOOD;
}

static int open_all(kt_bench_peers *peers, bool composed) {
    KT_TRY(kt_bench_cublaslt_open(peers->memory, &peers->cublaslt));
    return composed ? kt_bench_composed_open(peers->memory, peers->cublaslt, &peers->composed) : KT_GOOD;
}

int kt_bench_peers_open(const char *list, kt_bench_memory *memory, kt_bench_peers **out) {
    bool products, composed;
    *out = NULL;
    if (!list || !*list) return KT_GOOD;
    KT_TRY(read_list(list, &products, &composed));
    if (!memory->gpu) return kt_fail(KT_USAGE, "--peers %s: peers need a GPU", list);
    kt_bench_peers *peers = kt_alloc(1, sizeof *peers);
    peers->memory = memory;
    peers->products = products;
    int code = open_all(peers, composed);
    if (code != KT_GOOD) {
        kt_bench_peers_close(peers);
        peers = NULL;
    }
    *out = peers;
    return code;
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
    kt_bench_composed_close(peers->composed);
    kt_bench_cublaslt_close(peers->cublaslt);
    free(peers);
}

json_t *kt_bench_peers_json(const kt_bench_peers *peers) {
    json_t *o = json_object();
    if (peers) json_object_set_new(o, "cublaslt", json_integer(kt_bench_cublaslt_version(peers->cublaslt)));
    return o;
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* One product of an operation: letters of its sizes, names of the tensors that stand in for its operands (same shape
 * and type; what the numbers are does not matter). into: which result, so that the second may be added to the first.
 * part: what Kiln makes in one launch has one name. */
typedef struct recipe {
    char m, n, k;
    bool a_transposed;
    const char *a, *b;
    int into;
    bool add;
    const char *part;
} recipe;

static const recipe expert_mlp[] = {
    {'T', 'F', 'H', false, "selected_tokens", "w2_weight", 0, false, "da"},
    {'H', 'F', 'T', true, "selected_tokens", "gated_output", 1, false, "dw"},
    {'F', 'H', 'T', true, "w1_output", "selected_tokens", 2, false, "dw"},
    {'F', 'H', 'T', true, "up_output", "selected_tokens", 3, false, "dw"},
    {'T', 'H', 'F', false, "w1_output", "w1_weight", 4, false, "dx"},
    {'T', 'H', 'F', false, "up_output", "w3_weight", 4, true, "dx"},
};
static const recipe moe_layer[] = {
    {'T', 'I', 'H', false, "grad_output", "shared_expert_down_weight", 0, false, "da"},
    {'H', 'I', 'T', true, "grad_output", "shared_activated", 1, false, "dw"},
    {'I', 'H', 'T', true, "shared_gate_output", "hidden_states", 2, false, "dw"},
    {'I', 'H', 'T', true, "shared_up_output", "hidden_states", 3, false, "dw"},
    {'T', 'H', 'I', false, "shared_gate_output", "shared_expert_gate_weight", 4, false, "dx"},
    {'T', 'H', 'I', false, "shared_up_output", "shared_expert_up_weight", 4, true, "dx"},
};
static const recipe gemm[] = {{'M', 'N', 'K', false, "a", "b", 0, false, "d"}};

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
    peers->part[peers->n] = r->part;
    return kt_bench_cublaslt_plan_make(peers->cublaslt, &p, timer, &peers->plan[peers->n++]);
}

static int run_products(void *user, void *stream) {
    kt_bench_peers *peers = user;
    for (size_t i = 0; i < peers->n; i++) KT_TRY(kt_bench_cublaslt_run(peers->plan[i], stream));
    return KT_GOOD;
}

/* How many kernels each product has, so that the times of kernels can be told apart. */
static int count_kernels(kt_bench_peers *peers, kt_bench_timer *timer) {
    kt_bench_memory *m = peers->memory;
    kt_bench_kernel *kernels = NULL;
    size_t n = 0;
    double spans[MAX_PRODUCTS];
    memset(peers->kernels, 0, sizeof peers->kernels);
    if (!kt_bench_cupti_path() || kt_bench_cupti_start() != KT_GOOD) return KT_GOOD;
    int code = KT_GOOD;
    for (size_t i = 0; i < peers->n && code == KT_GOOD; i++) {
        code = kt_gpu_mark(m->gpu, timer->stream, 0);
        if (code == KT_GOOD) code = kt_bench_cublaslt_run(peers->plan[i], timer->stream);
    }
    if (code == KT_GOOD)
        code = kt_status(m->lib, KT_CALL(m->lib, "kiln_stream_synchronize", KT_PTR(m->ctx), KT_PTR(timer->stream)));
    bool recorded = kt_bench_cupti_stop(&kernels, &n) == KT_GOOD;
    if (recorded && kt_bench_cut(kernels, n, spans, peers->kernels, peers->n) != KT_GOOD)
        memset(peers->kernels, 0, sizeof peers->kernels);
    free(kernels);
    return code;
}

double kt_bench_peers_part(const kt_bench_peers *peers, const kt_bench_times *times, const char *part) {
    double us = 0;
    size_t at = 0;
    for (size_t i = 0; i < peers->n; i++) {
        if (peers->kernels[i] == 0 || at + peers->kernels[i] > times->n_steps) return 0;
        for (size_t k = 0; k < peers->kernels[i]; k++, at++)
            if (strcmp(peers->part[i], part) == 0) us += times->step[at];
    }
    return at == times->n_steps ? us : 0;
}

static int add_products(kt_bench_peers *peers, const kt_tensors *ts, uint32_t transposed, kt_bench_timer *timer,
                        kt_bench_subject *subjects, size_t *n) {
    size_t n_recipes;
    const recipe *recipes = recipes_of(ts->op, &n_recipes);
    drop_plans(peers);
    if (!peers->products || !recipes) return KT_GOOD;
    for (size_t i = 0; i < n_recipes; i++) {
        bool possible;
        KT_TRY(make(peers, ts, transposed, &recipes[i], timer, &possible));
        if (!possible) return KT_GOOD;
    }
    const char *name = recipes == gemm ? "cublaslt" : "cublaslt_products";
    subjects[(*n)++] = (kt_bench_subject){.name = name, .enqueue = run_products, .user = peers};
    return count_kernels(peers, timer);
}

int kt_bench_peers_add(kt_bench_peers *peers, const kt_tensors *ts, uint32_t transposed, kt_bench_timer *timer,
                       kt_bench_subject *subjects, size_t *n) {
    if (!peers) return KT_GOOD;
    KT_TRY(add_products(peers, ts, transposed, timer, subjects, n));
    return peers->composed ? kt_bench_composed_add(peers->composed, ts, transposed, timer, subjects, n) : KT_GOOD;
}
