/* Random problems for tests: sizes, memory, references and checks. Values are those of
 * tools/kiln/problems/problem_fill.c, which `kiln fuzz` fills its tensors with, too. */
#include "support/problem_gen.h"

#include "base/alloc.h"
#include "ops/compare.h"
#include "ops/ref_common.h"
#include "problems/problem_fill.h"

#include <string.h>

/* ---- operations: the public table and the references, whether or not the registry has the operation yet ------------
 */

enum { ROLE_in = 'i', ROLE_optional = 'o', ROLE_out = 'w' };

static const struct {
    const char *op;
    kn_arg_info info;
} arg_rows[] = {
#define KILN_ARG(op, name, role, dtypes, shape, layout) {#op, {#name, dtypes, shape, layout, ROLE_##role}},
#include "kiln/kiln_abi.def"
};
enum { N_ARG_ROWS = sizeof arg_rows / sizeof arg_rows[0], N_OPS = 7 };

typedef kn_status reference_fn(const kn_call *call, double *const *exact, double *const *magnitude);
static const struct {
    const char *op;
    reference_fn *reference;
} references[N_OPS] = {
    {"load_balance_backward", kn_load_balance_reference},
    {"router_backward", kn_router_reference},
    {"expert_mlp_backward", kn_expert_mlp_reference},
    {"moe_layer_backward", kn_moe_layer_reference},
    {"routed_experts_backward", kn_routed_experts_reference},
    {"gemm", kn_gemm_reference},
    {"grouped_gemm", kn_grouped_gemm_reference},
};

static int find_op(const char *op) {
    for (int i = 0; i < N_OPS; i++) {
        if (strcmp(references[i].op, op) == 0) return i;
    }
    return -1;
}

/* The operation's arguments, contiguous as kn_op wants them. */
static const kn_arg_info *arguments(int op, int *n, int *n_outputs) {
    static kn_arg_info table[N_OPS][KN_MAX_TENSORS];
    *n = *n_outputs = 0;
    for (int i = 0; i < N_ARG_ROWS; i++) {
        if (strcmp(arg_rows[i].op, references[op].op) != 0) continue;
        table[op][(*n)++] = arg_rows[i].info;
        *n_outputs += arg_rows[i].info.role == 'w';
    }
    return table[op];
}

int kn_gen_arg(const char *op, const char *name) {
    return kt_problem_arg(op, name);
}

kn_gen_config kn_gen_defaults(const char *op) {
    kn_gen_config c = {.op = op, .seed = 1, .batch = 40, .tokens = 24, .hidden = 48, .inner = 40, .experts = 12};
    c.local_experts = 12;
    c.top_k = 3;
    c.aux_rows = 1;
    c.m = 24;
    c.n = 32;
    c.k = 40;
    c.groups = 5;
    c.dtype = c.side_dtype = KN_BF16;
    c.out_dtype = KN_F32;
    c.id_dtype = KN_I64;
    c.scale = 1;
    c.training = 1;
    int n, n_outputs, index = find_op(op);
    const kn_arg_info *args = arguments(index, &n, &n_outputs);
    for (int i = 0; i < n; i++) {
        if (args[i].role == 'o') c.absent |= (uint64_t)1 << i;
    }
    if (strcmp(op, "routed_experts_backward") == 0) {
        c.absent &= ~((uint64_t)1 << kn_gen_arg(op, "topk_indices"));
        c.dtype = KN_F32;
    }
    return c;
}

/* ---- random numbers ------------------------------------------------------------------------------------------------
 */

uint64_t kn_gen_bits(kn_gen *g) {
    kt_random r = {g->random};
    uint64_t bits = kt_random_bits(&r);
    g->random = r.state;
    return bits;
}

double kn_gen_uniform(kn_gen *g) {
    kt_random r = {g->random};
    double v = kt_random_uniform(&r);
    g->random = r.state;
    return v;
}

double kn_gen_normal(kn_gen *g) {
    kt_random r = {g->random};
    double v = kt_random_normal(&r);
    g->random = r.state;
    return v;
}

int64_t kn_gen_below(kn_gen *g, int64_t n) {
    return (int64_t)(kn_gen_bits(g) % (uint64_t)n);
}

/* ---- elements ------------------------------------------------------------------------------------------------------
 */

double kn_gen_get(const kn_gen *g, int arg, int64_t linear) {
    return kt_problem_get(&g->tensor[arg], linear);
}

void kn_gen_put(kn_gen *g, int arg, int64_t linear, double value) {
    kt_problem_put(&g->tensor[arg], linear, value);
}

int64_t kn_gen_elements(const kn_gen *g, int arg) {
    const kn_tensor *t = &g->call.tensor[arg];
    int64_t n = 1;
    for (int d = 0; d < t->ndim; d++) n *= t->shape[d];
    return n;
}

/* ---- shapes --------------------------------------------------------------------------------------------------------
 */

static int64_t letter_size(const kn_gen_config *c, char letter) {
    bool product = strcmp(c->op, "gemm") == 0 || strcmp(c->op, "grouped_gemm") == 0;
    switch (letter) {
    case 'B': return c->batch;
    case 'T': return c->tokens;
    case 'H': return c->hidden;
    case 'I':
    case 'F': return c->inner;
    case 'E': return c->experts;
    case 'L': return c->local_experts;
    case 'K': return product ? c->k : c->sorted ? 1 : c->top_k;
    case 'S': return c->aux_rows;
    case 'M': return c->m;
    case 'N': return c->n;
    case 'G': return c->groups;
    default: return -1;
    }
}

/* The shape text of an argument; grouped_gemm's "?" depends on what is ragged. */
static const char *shape_text(const kn_gen_config *c, const kn_arg_info *arg) {
    if (strcmp(arg->shape, "?") != 0) return arg->shape;
    bool rows = c->options.grouped.ragged == KILN_RAGGED_M, output = arg->role == 'w';
    if (output) return rows ? "M,N" : "G,M,N";
    return rows ? "G,K,N" : "K,N";
}

static void set_shape(kn_gen *g, int arg) {
    kn_tensor *t = &g->call.tensor[arg];
    for (const char *p = shape_text(&g->config, &g->op.args[arg]); *p; p++) {
        if (*p == ',') continue;
        int64_t size = *p >= 'A' && *p <= 'Z' ? letter_size(&g->config, *p) : *p - '0';
        if (*p >= 'A' && *p <= 'Z') g->call.letter[*p - 'A'] = size;
        if (p[1] == '+') {
            size += p[2] - '0';
            p += 2;
        }
        t->shape[t->ndim++] = size;
    }
}

static kn_dtype choose_dtype(const kn_gen *g, int arg) {
    const kn_arg_info *info = &g->op.args[arg];
    static const char *const side[] = {"router_logits", "grad_routing_weights", "grad_expert_mask",
                                       "grad_router_logits"};
    if (strcmp(info->dtypes, "f32") == 0) return KN_F32;
    if (strcmp(info->dtypes, "i32") == 0) return KN_I32;
    if (strcmp(info->dtypes, "int") == 0) return g->config.id_dtype;
    if (strcmp(info->dtypes, "bool") == 0) return KN_BOOL;
    if (strcmp(info->dtypes, "any") == 0) return strcmp(info->name, "topk_idx") == 0 ? KN_I64 : KN_F32;
    if (info->role == 'w') return g->config.out_dtype;
    for (size_t i = 0; i < sizeof side / sizeof side[0]; i++) {
        if (strcmp(info->name, side[i]) == 0 && strcmp(g->op.name, "router_backward") == 0) return g->config.side_dtype;
    }
    return g->config.dtype;
}

/* Compact strides, with a gap behind each row, and the last two axes swapped where asked. */
static void set_strides(kn_gen *g, int arg) {
    kn_tensor *t = &g->call.tensor[arg];
    int order[5] = {0, 1, 2, 3, 4}, n = t->ndim;
    if (n >= 2 && g->config.swapped >> arg & 1) {
        order[n - 1] = n - 2;
        order[n - 2] = n - 1;
    }
    int64_t stride = 1;
    for (int d = n - 1; d >= 0; d--) {
        t->stride[order[d]] = stride;
        stride *= t->shape[order[d]];
        if (d == n - 1 && n > 1) stride += g->config.gap;
    }
}

static kn_status make_tensor(kn_gen *g, int arg) {
    kn_tensor *t = &g->call.tensor[arg];
    if (g->config.absent >> arg & 1) return KN_OK;
    set_shape(g, arg);
    t->dtype = choose_dtype(g, arg);
    set_strides(g, arg);
    int64_t last = 0;
    for (int d = 0; d < t->ndim; d++) last += (t->shape[d] - 1) * t->stride[d];
    bool empty = kn_gen_elements(g, arg) == 0;
    t->bytes = empty ? 0 : (uint64_t)(last + 1) * kn_dtype_size(t->dtype);
    g->memory_bytes[arg] = (size_t)t->bytes + 256;
    KN_REQUIRE(g->memory[arg] = kn_malloc(g->memory_bytes[arg]), KN_E_NOMEM, "out of memory for a test's tensor");
    memset(g->memory[arg], 0xFF, g->memory_bytes[arg]);
    t->data = (void *)(((uintptr_t)g->memory[arg] + 127) & ~(uintptr_t)127);

    static const uint8_t codes[KN_DTYPE_COUNT] = {
        [KN_BF16] = 4, [KN_F16] = 2,  [KN_F32] = 2, [KN_F64] = 2, [KN_I32] = 0,
        [KN_I64] = 0,  [KN_BOOL] = 6, [KN_U8] = 1,  [KN_I8] = 0};
    DLTensor *d = &g->tensor[arg];
    memcpy(g->stride[arg], t->stride, sizeof t->stride);
    *d = (DLTensor){.data = t->data, .ndim = t->ndim, .shape = t->shape, .strides = g->stride[arg]};
    d->device.device_type = 1;
    d->dtype.code = codes[t->dtype];
    d->dtype.bits = (uint8_t)(8 * kn_dtype_size(t->dtype));
    d->dtype.lanes = 1;
    g->args[arg] = d;
    return KN_OK;
}

/* ---- problems ------------------------------------------------------------------------------------------------------
 */

static const uint32_t options_size[N_OPS] = {sizeof(kiln_load_balance_backward_options),
                                             sizeof(kiln_router_backward_options),
                                             sizeof(kiln_expert_mlp_backward_options),
                                             sizeof(kiln_moe_layer_backward_options),
                                             sizeof(kiln_routed_experts_backward_options),
                                             sizeof(kiln_gemm_options),
                                             sizeof(kiln_grouped_gemm_options)};

kn_status kn_gen_op(const char *name, kn_op *out) {
    int index = find_op(name);
    KN_REQUIRE(index >= 0, KN_E_ARG, "there is no operation %s", name);
    *out = (kn_op){.name = references[index].op, .reference = references[index].reference};
    out->args = arguments(index, &out->n_args, &out->n_outputs);
    out->options_size = options_size[index];
    return KN_OK;
}

static kn_status fill(kn_gen *g) {
    kt_problem p = {.op = g->config.op, .options = &g->config.options, .random = {g->random}};
    p.scale = g->config.scale;
    p.ids = g->config.skew ? KT_IDS_SKEWED : KT_IDS_UNIFORM;
    p.skip_percent = g->config.skip_percent;
    p.training = g->config.training != 0;
    for (char letter = 'A'; letter <= 'Z'; letter++) p.size[letter - 'A'] = letter_size(&g->config, letter);
    for (int i = 0; i < g->op.n_args - g->op.n_outputs; i++) p.tensor[i] = g->args[i];
    const char *error = kt_problem_fill(&p);
    g->random = p.random.state;
    KN_REQUIRE(!error, KN_E_ARG, "%s: %s", g->config.op, error);
    return KN_OK;
}

static kn_status set_up(kn_gen *g) {
    KN_TRY(kn_gen_op(g->config.op, &g->op));
    g->config.options.common.struct_size = g->op.options_size;
    g->call.op = &g->op;
    g->call.n_tensors = g->op.n_args;
    g->call.options = &g->config.options;
    g->random = g->config.seed * 0x2545F4914F6CDD1Du + 1;
    memset(g->call.letter, 0xFF, sizeof g->call.letter);
    int offsets = kn_gen_arg(g->config.op, "expert_offsets"), ids = kn_gen_arg(g->config.op, "topk_indices");
    if (offsets >= 0) {
        uint64_t offsets_bit = (uint64_t)1 << offsets, ids_bit = (uint64_t)1 << ids;
        g->config.absent = g->config.sorted ? (g->config.absent & ~offsets_bit) | ids_bit
                                            : (g->config.absent & ~ids_bit) | offsets_bit;
    }
    for (int i = 0; i < g->op.n_args; i++) KN_TRY(make_tensor(g, i));
    for (int i = 0; i < g->op.n_outputs; i++) {
        int arg = g->op.n_args - g->op.n_outputs + i;
        bool accumulate = g->config.options.common.accumulate >> i & 1;
        int64_t n = accumulate && g->args[arg] ? kn_gen_elements(g, arg) : 0;
        for (int64_t e = 0; e < n; e++) kn_gen_put(g, arg, e, kn_gen_normal(g));
    }
    return fill(g);
}

kn_status kn_gen_make(const kn_gen_config *config, kn_gen **out) {
    kn_gen *g = NULL;
    KN_TRY(KN_NEW(&g, 1, "a test's problem"));
    g->config = *config;
    kn_status st = set_up(g);
    if (st != KN_OK) {
        kn_gen_free(g);
        g = NULL;
    }
    *out = g;
    return st;
}

void kn_gen_free(kn_gen *g) {
    if (!g) return;
    for (int i = 0; i < KN_MAX_TENSORS; i++) kn_free(g->memory[i]);
    for (int i = 0; i < 8; i++) {
        kn_free(g->exact[i]);
        kn_free(g->magnitude[i]);
    }
    kn_free(g);
}

/* ---- references and checks -----------------------------------------------------------------------------------------
 */

static int output_arg(const kn_gen *g, int output) {
    return g->op.n_args - g->op.n_outputs + output;
}

kn_status kn_gen_reference(kn_gen *g) {
    for (int i = 0; i < g->op.n_outputs; i++) {
        if (!g->args[output_arg(g, i)] || g->exact[i]) continue;
        int64_t n = kn_gen_elements(g, output_arg(g, i));
        KN_TRY(KN_NEW(&g->exact[i], n, "a test's reference"));
        KN_TRY(KN_NEW(&g->magnitude[i], n, "a test's reference"));
    }
    return g->op.reference(&g->call, g->exact, g->magnitude);
}

kn_status kn_gen_compare(kn_gen *g, kiln_check_result *results) {
    return kn_compare(&g->call, (const double *const *)g->exact, (const double *const *)g->magnitude, results);
}

/* Every byte that belongs to no element must still hold its pattern. */
static kn_status check_gaps(const kn_gen *g, int arg) {
    const kn_tensor *t = &g->call.tensor[arg];
    const uint8_t *bytes = g->memory[arg];
    size_t item = kn_dtype_size(t->dtype), start = (size_t)((const uint8_t *)t->data - bytes);
    int64_t n = kn_gen_elements(g, arg);
    uint8_t *owned = NULL;
    KN_TRY(KN_NEW(&owned, g->memory_bytes[arg], "the check of a test's gaps"));
    for (int64_t i = 0; i < n; i++) memset(owned + start + (size_t)kn_ref_offset(t, i) * item, 1, item);
    kn_status st = KN_OK;
    for (size_t i = 0; st == KN_OK && i < g->memory_bytes[arg]; i++) {
        if (!owned[i] && bytes[i] != 0xFF) {
            st = kn_fail(KN_E_SIM, "%s: byte %lld beside its elements was written to", g->op.args[arg].name,
                         (long long)i - (long long)start);
        }
    }
    kn_free(owned);
    return st;
}

kn_status kn_gen_check(kn_gen *g) {
    kiln_check_result results[8];
    KN_TRY(kn_gen_compare(g, results));
    for (int i = 0; i < g->op.n_outputs; i++) {
        if (!g->args[output_arg(g, i)]) continue;
        KN_REQUIRE(results[i].pass, KN_E_SIM, "%s", results[i].message);
        KN_TRY(check_gaps(g, output_arg(g, i)));
    }
    return KN_OK;
}

void kn_gen_store_exact(kn_gen *g) {
    for (int i = 0; i < g->op.n_outputs; i++) {
        int arg = output_arg(g, i);
        int64_t n = g->args[arg] ? kn_gen_elements(g, arg) : 0;
        for (int64_t e = 0; e < n; e++) kn_gen_put(g, arg, e, g->exact[i][e]);
    }
}
