/* Operations as a user composes them: see bench_composed.h. */
#include "bench/bench_composed.h"

#include "gpu/compile_cuda_c.h"

#include <stdlib.h>
#include <string.h>

enum { THREADS = 256, MAX_ARGS = 8, MAX_STEPS = 12, MAX_SCRATCH = 10 };

/* ---- recipes ----------------------------------------------------------------------------------------------------- */

/* How a kernel of glue.cu is spread over blocks. */
typedef enum spread { A_BLOCK_A_ROW, A_WARP_A_ROW, FOUR_A_THREAD, EIGHT_A_THREAD } spread;

enum { LOAD_BALANCE, ROUTER_DLOGITS, GATHER_ROWS, ZERO_ROWS, SCATTER_ROWS, SWIGLU_BACKWARD, LAYER_ROUTER, N_KERNELS };

static const struct {
    const char *name;
    spread spread;
} kernels[N_KERNELS] = {
    [LOAD_BALANCE] = {"load_balance", FOUR_A_THREAD}, [ROUTER_DLOGITS] = {"router_dlogits", A_WARP_A_ROW},
    [GATHER_ROWS] = {"gather_rows", A_BLOCK_A_ROW},   [ZERO_ROWS] = {"zero_rows", EIGHT_A_THREAD},
    [SCATTER_ROWS] = {"scatter_rows", A_BLOCK_A_ROW}, [SWIGLU_BACKWARD] = {"swiglu_backward", EIGHT_A_THREAD},
    [LAYER_ROUTER] = {"layer_router", A_BLOCK_A_ROW},
};

/* A step. Sizes are axis letters; operands are the operation's tensors by name, or "#0" to "#9": scratch. A product is
 * args[2][m,n] = args[0][m,k] * args[1][k,n] (+ args[2]). */
typedef enum kind { KERNEL, PRODUCT, PRODUCT_OF_TRANSPOSED, ADD_PRODUCT } kind;
typedef struct step {
    kind kind;
    int kernel;
    const char *sizes, *args[MAX_ARGS];
} step;

typedef struct recipe {
    const char *op, *scratch; /* two axis letters, or 1, a buffer */
    step steps[MAX_STEPS];
} recipe;

static const recipe recipes[] = {
    {"load_balance_backward",
     "BE",
     {{KERNEL,
       LOAD_BALANCE,
       "BEK",
       {"grad_tokens_per_expert", "grad_expert_mask", "grad_load_balance_loss", "training", "#0"}}}},
    {"router_backward",
     "TETHEH",
     {{KERNEL,
       ROUTER_DLOGITS,
       "TEK",
       {"routing_probs", "selected_experts", "routing_weights_sum", "grad_routing_weights", "grad_expert_mask",
        "grad_router_logits", NULL, "#0"}},
      {PRODUCT, 0, "THE", {"#0", "gate_weight", "#1"}},
      {PRODUCT_OF_TRANSPOSED, 0, "EHT", {"#0", "hidden_states", "#2"}}}},
    {"expert_mlp_backward",
     "THTFTFTFTHBHB1HFFHFH",
     {{KERNEL, ZERO_ROWS, "BH", {NULL, NULL, NULL, NULL, "#5"}},
      {KERNEL,
       GATHER_ROWS,
       "TH",
       {"grad_output", "token_indices", "expert_output", "selected_weights", NULL, "#0", NULL, "#6"}},
      {PRODUCT, 0, "TFH", {"#0", "w2_weight", "#1"}},
      {PRODUCT_OF_TRANSPOSED, 0, "HFT", {"#0", "gated_output", "#7"}},
      {KERNEL, SWIGLU_BACKWARD, "TF", {"#1", "w1_output", "up_output", NULL, "#2", "#3"}},
      {PRODUCT_OF_TRANSPOSED, 0, "FHT", {"#2", "selected_tokens", "#8"}},
      {PRODUCT_OF_TRANSPOSED, 0, "FHT", {"#3", "selected_tokens", "#9"}},
      {PRODUCT, 0, "THF", {"#2", "w1_weight", "#4"}},
      {ADD_PRODUCT, 0, "THF", {"#3", "w3_weight", "#4"}},
      {KERNEL, SCATTER_ROWS, "TH", {"#4", "token_indices", NULL, NULL, "#5"}}}},
    {"moe_layer_backward",
     "TETITITITHEHIHIHHI",
     {{KERNEL, LAYER_ROUTER, "TEKH", {"grad_output", "scores", "topk_indices", "topk_weights", NULL, NULL, NULL, "#0"}},
      {PRODUCT, 0, "TIH", {"grad_output", "shared_expert_down_weight", "#1"}},
      {PRODUCT_OF_TRANSPOSED, 0, "HIT", {"grad_output", "shared_activated", "#8"}},
      {KERNEL, SWIGLU_BACKWARD, "TI", {"#1", "shared_gate_output", "shared_up_output", NULL, "#2", "#3"}},
      {PRODUCT_OF_TRANSPOSED, 0, "IHT", {"#2", "hidden_states", "#6"}},
      {PRODUCT_OF_TRANSPOSED, 0, "IHT", {"#3", "hidden_states", "#7"}},
      {PRODUCT_OF_TRANSPOSED, 0, "EHT", {"#0", "hidden_states", "#5"}},
      {PRODUCT, 0, "THE", {"#0", "router_weight", "#4"}},
      {ADD_PRODUCT, 0, "THI", {"#2", "shared_expert_gate_weight", "#4"}},
      {ADD_PRODUCT, 0, "THI", {"#3", "shared_expert_up_weight", "#4"}}}},
};

/* ---- state ------------------------------------------------------------------------------------------------------- */

/* A step made ready: a plan of cuBLASLt, or a kernel with its arguments. */
typedef struct ready {
    kt_bench_cublaslt_plan *plan;
    int kernel;
    uint32_t blocks;
    void *arg[MAX_ARGS];
    int64_t size[4], id_bytes;
} ready;

struct kt_bench_composed {
    kt_bench_memory *memory;
    kt_bench_cublaslt *cublaslt;
    void *module, *function[N_KERNELS];
    kt_bench_buffer scratch[MAX_SCRATCH];
    ready step[MAX_STEPS];
    size_t n;
};

static int open_all(kt_bench_composed *c) {
    char *source = kt_alloc(kt_bench_glue_bytes + 1, 1), *ptx = NULL;
    memcpy(source, kt_bench_glue, kt_bench_glue_bytes);
    int code = kt_nvrtc_ptx(source, "glue.cu", "sm_80", &ptx); /* the driver makes it this GPU's */
    free(source);
    KT_TRY(code);
    code = kt_gpu_load(c->memory->gpu, ptx, &c->module);
    free(ptx);
    KT_TRY(code);
    for (int i = 0; i < N_KERNELS; i++)
        KT_TRY(kt_gpu_function(c->memory->gpu, c->module, kernels[i].name, &c->function[i]));
    return KT_GOOD;
}

int kt_bench_composed_open(kt_bench_memory *memory, kt_bench_cublaslt *cublaslt, kt_bench_composed **out) {
    kt_bench_composed *c = kt_alloc(1, sizeof *c);
    c->memory = memory;
    c->cublaslt = cublaslt;
    int code = open_all(c);
    if (code != KT_GOOD) {
        kt_bench_composed_close(c);
        c = NULL;
    }
    *out = c;
    return code;
}

static void drop_steps(kt_bench_composed *c) {
    for (size_t i = 0; i < c->n; i++) kt_bench_cublaslt_plan_free(c->step[i].plan);
    c->n = 0;
}

void kt_bench_composed_close(kt_bench_composed *c) {
    if (!c) return;
    drop_steps(c);
    for (int i = 0; i < MAX_SCRATCH; i++) kt_bench_memory_drop(c->memory, &c->scratch[i]);
    kt_gpu_unload(c->memory->gpu, c->module);
    free(c);
}

/* ---- a case ------------------------------------------------------------------------------------------------------ */

static int64_t size_of(const kt_tensors *ts, char letter) {
    return ts->size[letter - 'A'];
}

static int64_t scratch_size_of(const kt_tensors *ts, char letter) {
    return letter == '1' ? 1 : size_of(ts, letter);
}

/* The tensor that an operand names, if it names one. */
static const kt_tensor *find(const kt_tensors *ts, const char *name) {
    return name && name[0] != '#' ? &ts->tensor[kt_op_arg(ts->op, name) - ts->op->args] : NULL;
}

static void *operand(const kt_bench_composed *c, const kt_tensors *ts, const char *name) {
    const kt_tensor *t = find(ts, name);
    if (t) return t->on_device.data;
    return name ? c->scratch[name[1] - '0'].device : NULL;
}

/* The kernels know bf16, f32 and indices, rows of whole 16 bytes, and as many experts as their shared memory holds. */
static bool is_possible(const kt_tensors *ts, uint32_t transposed, const recipe *r) {
    for (const step *s = r->steps; s->sizes; s++) {
        for (int i = 0; i < MAX_ARGS; i++) {
            const kt_tensor *t = find(ts, s->args[i]);
            if (!t) continue;
            if (!t->present || t->elements == 0 || transposed >> (t - ts->tensor) & 1) return false;
            if (t->dtype->bits == 16 && strcmp(t->dtype->name, "bf16") != 0) return false;
        }
        for (const char *letter = s->sizes; *letter; letter++)
            if (size_of(ts, *letter) % (strchr("HFI", *letter) ? 8 : *letter == 'E' ? 4 : 1) != 0) return false;
        if (s->kind == KERNEL && strchr(s->sizes, 'K') && (size_of(ts, 'E') > 512 || size_of(ts, 'K') > 32))
            return false;
    }
    return true;
}

static int make_room(kt_bench_composed *c, const kt_tensors *ts, const char *scratch) {
    for (int i = 0; scratch[2 * i]; i++) {
        int64_t elements = scratch_size_of(ts, scratch[2 * i]) * scratch_size_of(ts, scratch[2 * i + 1]);
        KT_TRY(kt_bench_memory_room(c->memory, &c->scratch[i], 4 * (uint64_t)elements));
    }
    return KT_GOOD;
}

static int make_product(kt_bench_composed *c, const kt_tensors *ts, const step *s, kt_bench_timer *timer, ready *out) {
    kt_bench_product p = {.m = size_of(ts, s->sizes[0]), .n = size_of(ts, s->sizes[1]), .k = size_of(ts, s->sizes[2])};
    p.dtype = kt_dtype_named("bf16");
    p.a = operand(c, ts, s->args[0]);
    p.b = operand(c, ts, s->args[1]);
    p.d = operand(c, ts, s->args[2]);
    p.a_transposed = s->kind == PRODUCT_OF_TRANSPOSED;
    p.add = s->kind == ADD_PRODUCT;
    return kt_bench_cublaslt_plan_make(c->cublaslt, &p, timer, &out->plan);
}

static void make_kernel(const kt_bench_composed *c, const kt_tensors *ts, const step *s, ready *out) {
    static const int64_t rows_a_block[] = {[A_BLOCK_A_ROW] = 1, [A_WARP_A_ROW] = THREADS / 32};
    out->kernel = s->kernel;
    out->id_bytes = 8;
    for (int i = 0; i < MAX_ARGS; i++) {
        const kt_tensor *t = find(ts, s->args[i]);
        out->arg[i] = operand(c, ts, s->args[i]);
        if (t && t->dtype->bits >= 32 && strcmp(t->dtype->name, "f32") != 0) out->id_bytes = t->dtype->bits / 8;
    }
    for (int i = 0; s->sizes[i]; i++) out->size[i] = size_of(ts, s->sizes[i]);
    spread how = kernels[s->kernel].spread;
    int64_t in_a_block = how == FOUR_A_THREAD ? 4 * THREADS : how == EIGHT_A_THREAD ? 8 * THREADS : rows_a_block[how];
    int64_t all = how == FOUR_A_THREAD || how == EIGHT_A_THREAD ? out->size[0] * out->size[1] : out->size[0];
    out->blocks = (uint32_t)((all + in_a_block - 1) / in_a_block);
}

static int run_steps(void *user, void *stream) {
    kt_bench_composed *c = user;
    for (size_t i = 0; i < c->n; i++) {
        ready *s = &c->step[i];
        if (s->plan) {
            KT_TRY(kt_bench_cublaslt_run(s->plan, stream));
            continue;
        }
        void *params[MAX_ARGS + 5];
        for (int k = 0; k < MAX_ARGS; k++) params[k] = &s->arg[k];
        for (int k = 0; k < 4; k++) params[MAX_ARGS + k] = &s->size[k];
        params[MAX_ARGS + 4] = &s->id_bytes;
        KT_TRY(kt_gpu_launch(c->memory->gpu, c->function[s->kernel], s->blocks, THREADS, params, stream));
    }
    return KT_GOOD;
}

int kt_bench_composed_add(kt_bench_composed *c, const kt_tensors *ts, uint32_t transposed, kt_bench_timer *timer,
                          kt_bench_subject *subjects, size_t *n) {
    const recipe *r = NULL;
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++)
        if (strcmp(recipes[i].op, ts->op->name) == 0) r = &recipes[i];
    drop_steps(c);
    if (!r || !is_possible(ts, transposed, r)) return KT_GOOD;
    KT_TRY(make_room(c, ts, r->scratch));
    for (const step *s = r->steps; s->sizes; s++) {
        ready *out = &c->step[c->n++];
        *out = (ready){0};
        if (s->kind == KERNEL)
            make_kernel(c, ts, s, out);
        else
            KT_TRY(make_product(c, ts, s, timer, out));
    }
    subjects[(*n)++] = (kt_bench_subject){.name = "composed", .enqueue = run_steps, .user = c};
    return KT_GOOD;
}
