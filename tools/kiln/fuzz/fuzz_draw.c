/* Drawing cases: sizes at edges, primes, powers of two and their neighbours, zeros; types, optional tensors, layouts,
 * options, ids and values. See fuzz_case.h. */
#include "fuzz/fuzz_case.h"

#include <math.h>
#include <string.h>

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

static bool chance(kt_random *r, int percent) {
    return kt_random_below(r, 100) < percent;
}

static int64_t pick(kt_random *r, const int64_t *of, int64_t n) {
    return of[kt_random_below(r, n)];
}
#define PICK(r, ...)                                                                                                   \
    pick((r), (const int64_t[]){__VA_ARGS__}, (int64_t)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)))

static int64_t clamp(int64_t v, int64_t lo, int64_t hi) {
    return v < lo ? lo : v > hi ? hi : v;
}

static bool is_prime(int64_t n) {
    if (n < 2) return false;
    for (int64_t d = 2; d * d <= n; d++)
        if (n % d == 0) return false;
    return true;
}

/* Every size up to `hi` is as likely as its order of magnitude is. */
static int64_t log_uniform(kt_random *r, int64_t lo, int64_t hi) {
    double from = log((double)(lo > 0 ? lo : 1)), to = log((double)hi + 0.999);
    return clamp((int64_t)exp(from + kt_random_uniform(r) * (to - from)), lo, hi);
}

/* Where kernels have their edges. */
static int64_t draw_size(kt_random *r, int64_t lo, int64_t hi) {
    int64_t n = log_uniform(r, lo, hi);
    switch (kt_random_below(r, 5)) {
    case 0: return clamp(PICK(r, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 63, 65, 72, 100, 127, 129, 255, 257), lo, hi);
    case 1:
        while (n < hi && !is_prime(n)) n++;
        return n;
    case 2: return clamp(((int64_t)1 << (int)log2((double)(n > 0 ? n : 1) + 0.5)) + PICK(r, -1, 0, 1), lo, hi);
    case 3: return clamp((n + 63) / 64 * 64, lo, hi);
    default: return n;
    }
}

/* Sizes that the fast kernels take: multiples of 64 most of the time, of 8 always. */
static int64_t draw_aligned(kt_random *r, int64_t hi) {
    int64_t n = log_uniform(r, 16, hi), step = PICK(r, 8, 16, 64, 64, 128);
    n = (n + step - 1) / step * step;
    return n <= hi ? n : hi >= step ? hi / step * step : hi;
}

/* ---- sizes ------------------------------------------------------------------------------------------------------- */

static bool is_op(const kt_fuzz_case *c, const char *name) {
    return strcmp(c->op->name, name) == 0;
}

static int64_t *size(kt_fuzz_case *c, char letter) {
    return &c->size[letter - 'A'];
}

static int64_t draw_tokens(kt_random *r, int64_t hi) {
    return chance(r, 6) ? 0 : draw_size(r, 1, hi);
}

/* K experts of E for a token: few as a rule. */
static int64_t draw_top_k(kt_random *r, int64_t experts) {
    int64_t most = experts < 256 ? experts : 256;
    return chance(r, 10) ? log_uniform(r, 1, most) : clamp(PICK(r, 1, 2, 2, 3, 4, 6, 8, 8), 1, most);
}

static void draw_sizes(kt_random *r, bool aligned, bool large, kt_fuzz_case *c) {
    int64_t widest = large ? 4096 : 512, longest = large ? 8192 : 1024;
    bool product = is_op(c, "gemm") || is_op(c, "grouped_gemm"), flat = is_op(c, "load_balance_backward");
    for (int i = 0; i < 26; i++) c->size[i] = -1;
    const char *features = "HIF";
    for (const char *s = features; *s; s++)
        if (kt_op_has_axis(c->op, *s)) *size(c, *s) = aligned ? draw_aligned(r, widest) : draw_size(r, 1, widest);
    if (kt_op_has_axis(c->op, 'E'))
        *size(c, 'E') = flat ? draw_size(r, 1, 4096) : draw_size(r, 1, chance(r, 10) ? 2048 : 256);
    if (kt_op_has_axis(c->op, 'T')) *size(c, 'T') = draw_tokens(r, longest);
    if (kt_op_has_axis(c->op, 'B')) *size(c, 'B') = draw_tokens(r, 4096);
    if (product) {
        *size(c, 'M') = chance(r, 5) ? 0 : aligned ? draw_aligned(r, longest) : draw_size(r, 1, longest);
        *size(c, 'N') = chance(r, 3) ? 0 : aligned ? draw_aligned(r, longest) : draw_size(r, 1, longest);
        *size(c, 'K') = chance(r, 5) ? 0 : aligned ? draw_aligned(r, 2 * longest) : draw_size(r, 1, 2 * longest);
        if (is_op(c, "grouped_gemm")) *size(c, 'G') = draw_size(r, 1, chance(r, 10) ? 512 : 24);
        return;
    }
    if (is_op(c, "routed_experts_backward")) {
        *size(c, 'L') = draw_size(r, 1, chance(r, 10) ? 256 : 24);
        *size(c, 'E') = *size(c, 'L') + (chance(r, 30) ? kt_random_below(r, 16) : 0);
    }
    if (kt_op_has_axis(c->op, 'K'))
        *size(c, 'K') = flat ? draw_size(r, 1, 16) : draw_top_k(r, *size(c, 'E') > 0 ? *size(c, 'E') : 1);
    if (kt_op_has_axis(c->op, 'S')) *size(c, 'S') = chance(r, 50) ? 1 : 1 + kt_random_below(r, 5);
}

static void apply_fixed(const kt_fuzz_limits *limits, kt_fuzz_case *c) {
    for (int i = 0; i < 26; i++)
        if (limits->fixed[i] >= 0 && c->size[i] >= 0) c->size[i] = limits->fixed[i];
}

/* Halve what is largest until the work fits. */
static void fit(const kt_fuzz_limits *limits, bool aligned, double work, kt_fuzz_case *c) {
    for (int rounds = 0; rounds < 200 && kt_fuzz_case_work(c) > work; rounds++) {
        int largest = -1;
        for (int i = 0; i < 26; i++)
            if (limits->fixed[i] < 0 && c->size[i] > 1 && (largest < 0 || c->size[i] > c->size[largest])) largest = i;
        if (largest < 0) return;
        int64_t half = c->size[largest] / 2;
        bool keep = aligned && half > 64 && half % 8 == 0;
        c->size[largest] = aligned && half > 64 && !keep ? half / 8 * 8 : half;
        /* What the halved size bounds goes along. */
        if (limits->fixed['T' - 'A'] < 0 && *size(c, 'B') >= 0 && *size(c, 'T') > *size(c, 'B'))
            *size(c, 'T') = *size(c, 'B');
        if (limits->fixed['L' - 'A'] < 0 && *size(c, 'L') > *size(c, 'E')) *size(c, 'L') = *size(c, 'E');
        kt_fuzz_case_mend(c);
    }
}

/* ---- types ------------------------------------------------------------------------------------------------------- */

/* One of a column of kiln_abi.def: "bf16,f16", "int", ... */
static const kt_dtype *draw_dtype(kt_random *r, const char *list) {
    if (strcmp(list, "int") == 0) list = "i32,i64";
    if (strcmp(list, "bool") == 0) list = "bool,u8";
    if (strcmp(list, "any") == 0) list = "i64,i32,f32,bf16,bool";
    int n = 1;
    for (const char *s = list; *s; s++) n += *s == ',';
    int64_t chosen = kt_random_below(r, n);
    while (chosen-- > 0) list = strchr(list, ',') + 1;
    char name[16] = "";
    memcpy(name, list, strcspn(list, ",") < sizeof name - 1 ? strcspn(list, ",") : 0);
    return kt_dtype_named(name);
}

static bool is_half(const kt_dtype *t) {
    return t && t->code == KT_DL_FLOAT && t->bits == 16;
}

static int arg_of(const kt_fuzz_case *c, const char *name) {
    const kt_arg *arg = kt_op_arg(c->op, name);
    return arg ? (int)(arg - c->op->args) : -1;
}

static void draw_tensors(kt_random *r, kt_fuzz_case *c) {
    bool one_left = false;
    for (int i = 0; i < c->op->n_args; i++) {
        const kt_arg *arg = &c->op->args[i];
        bool wanted = arg->role == KT_IN || (arg->role == KT_OPTIONAL ? chance(r, 50) : chance(r, 88));
        if (arg->role == KT_OUT && i == c->op->n_args - 1 && !one_left) wanted = true;
        one_left = one_left || (arg->role == KT_OUT && wanted);
        const kt_dtype *t = arg->dtypes[0] == '=' ? c->dtype[arg_of(c, arg->dtypes + 1)] : draw_dtype(r, arg->dtypes);
        /* f16 ends at 65504: large values are for the other types */
        while (is_half(t) && c->scale > 8 && arg->dtypes[0] != '=') t = draw_dtype(r, arg->dtypes);
        c->dtype[i] = wanted ? t : NULL;
    }
}

/* Where activations have a limit, pre-activations are saved: a recomputed one may fall to the other side of the limit
 * than the exact one. With the weight on the input its gradient has them recomputed all the same: it is left out. */
static void mend_limited(kt_fuzz_case *c) {
    static const char *const saved[] = {"saved_gate", "saved_up"};
    const char *weight_on = json_string_value(json_object_get(c->settings, "weight_on"));
    if (!json_object_get(json_object_get(c->settings, "activation"), "limit")) return;
    for (int i = 0; i < 2; i++) c->dtype[arg_of(c, saved[i])] = c->dtype[0];
    if (!weight_on || strcmp(weight_on, "input") != 0) return;
    c->dtype[arg_of(c, "grad_topk_weights")] = NULL;
    int hidden = arg_of(c, "grad_hidden_states"); /* one output is left */
    if (!c->dtype[hidden]) c->dtype[hidden] = c->dtype[0];
}

/* Either ids or offsets, and which of the experts are here. */
static void draw_routing(kt_random *r, kt_fuzz_case *c) {
    const kt_dtype *ids = draw_dtype(r, "int");
    bool sorted = chance(r, 30);
    c->dtype[arg_of(c, "topk_indices")] = sorted ? NULL : ids;
    c->dtype[arg_of(c, "expert_offsets")] = sorted ? ids : NULL;
    mend_limited(c);
    int64_t spare = *size(c, 'E') - *size(c, 'L');
    json_object_set_new(c->settings, "expert_lo", json_integer(spare > 0 ? kt_random_below(r, spare + 1) : 0));
    if (chance(r, 30)) json_object_set_new(c->settings, "num_experts", json_integer(*size(c, 'E')));
}

/* What the host would make by a product of its own. */
static void drop_products(kt_fuzz_case *c) {
    static const char *const names[] = {"saved_gate", "saved_up", "expert_output"};
    for (int i = 0; i < 3; i++)
        if (kt_op_arg(c->op, names[i])) c->dtype[arg_of(c, names[i])] = NULL;
    if (is_op(c, "routed_experts_backward")) json_object_del(json_object_get(c->settings, "activation"), "limit");
}

/* ---- layouts ----------------------------------------------------------------------------------------------------- */

static int rank_of(const kt_op *op, int i) {
    int n = op->args[i].shape[0] != '\0';
    for (const char *s = op->args[i].shape; *s; s++) n += *s == ',';
    return strcmp(op->args[i].shape, "?") == 0 ? 2 : n;
}

static void draw_layout(kt_random *r, bool aligned, kt_fuzz_case *c, int i) {
    const kt_arg *arg = &c->op->args[i];
    kt_fuzz_layout *l = &c->layout[i];
    int rank = rank_of(c->op, i);
    bool any = strcmp(arg->layout, "any") == 0, either = strcmp(arg->layout, "either") == 0;
    l->at_end = chance(r, 70);
    if (chance(r, 30)) return;
    if (aligned) {
        l->gap = rank > 1 && chance(r, 30) ? 16 * (1 + kt_random_below(r, 8)) : 0;
        l->shift = chance(r, 30) ? 16 * kt_random_below(r, 8) : 0;
    } else {
        l->gap = rank > 1 && chance(r, 50) ? 1 + kt_random_below(r, 40) : 0;
        l->shift = chance(r, 50) ? kt_random_below(r, 70) : 0;
    }
    if (l->shift && chance(r, 50)) l->byte_offset = kt_random_below(r, l->shift + 1);
    if (rank > 1 && (any || either)) l->swapped = chance(r, 40);
    if (any && rank > 0) l->spread = chance(r, 20) ? 1 + kt_random_below(r, 2) : 0;
    if (rank > 2) l->turned = chance(r, 25);
    /* Rows that are all one make sense for gradients alone: nothing else is derived from them. */
    bool gradient = strncmp(arg->name, "grad_", 5) == 0 && arg->role != KT_OUT;
    if (gradient && rank > 1 && !l->swapped && !l->turned) l->expanded = chance(r, 5);
}

/* ---- options ----------------------------------------------------------------------------------------------------- */

static void draw_number(kt_random *r, const kt_field *f, json_t *settings) {
    static const struct {
        const char *name;
        double choices[3];
    } numbers[] = {{"eps", {1e-20, 1e-6, 1e-2}},
                   {"scaling", {2.5, 0.5, -1.25}},
                   {"routed_scaling_factor", {2.5, 0.5, 16}},
                   {"activation.alpha", {1.702, 0.5, 1}},
                   {"activation.limit", {7, 1, 30}},
                   {"activation.offset", {1, -0.5, 0.25}}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (strcmp(numbers[i].name, f->name) != 0) continue;
        json_t *value = json_real(numbers[i].choices[kt_random_below(r, 3)]);
        const char *dot = strchr(f->name, '.');
        if (!dot) {
            json_object_set_new(settings, f->name, value);
            return;
        }
        json_t *nested = json_object_get(settings, "activation");
        if (!nested) {
            nested = json_object();
            json_object_set_new(settings, "activation", nested);
        }
        json_object_set_new(nested, dot + 1, value);
    }
}

static void draw_choice(kt_random *r, const kt_field *f, json_t *settings) {
    if (strcmp(f->choices, "true,false") == 0) {
        json_object_set_new(settings, f->name, json_boolean(chance(r, 50)));
        return;
    }
    int n = 1;
    for (const char *s = f->choices; *s; s++) n += *s == ',';
    const char *word = f->choices;
    for (int64_t skip = kt_random_below(r, n); skip > 0; skip--) word = strchr(word, ',') + 1;
    json_object_set_new(settings, f->name, json_stringn(word, strcspn(word, ",")));
}

static void draw_options(kt_random *r, kt_fuzz_case *c) {
    c->settings = json_object();
    for (int i = 0; i < c->op->n_fields; i++) {
        const kt_field *f = &c->op->fields[i];
        if (chance(r, 50)) continue;
        if (f->type == KT_FIELD_F64) draw_number(r, f, c->settings);
        if (f->type == KT_FIELD_I32 && *f->choices) draw_choice(r, f, c->settings);
    }
}

static void draw_accumulate(kt_random *r, kt_fuzz_case *c) {
    json_t *names = json_array();
    bool all = chance(r, 15), some = chance(r, 25);
    for (int i = 0; i < c->op->n_args; i++)
        if (c->op->args[i].role == KT_OUT && c->dtype[i] && (all || (some && chance(r, 50))))
            json_array_append_new(names, json_string(c->op->args[i].name));
    if (json_array_size(names) > 0) json_object_set(c->settings, "accumulate", names);
    json_decref(names);
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

static void draw_values(kt_random *r, const kt_fuzz_limits *limits, kt_fuzz_case *c) {
    static const double scales[] = {1, 1, 1, 1, 1e-3, 1e3, 0x1p-20, 0.0625};
    double drawn = scales[kt_random_below(r, (int64_t)(sizeof scales / sizeof *scales))];
    c->scale = limits->scale > 0 ? limits->scale : drawn;
    c->values = chance(r, 50) ? KT_VALUES_NORMAL : (kt_values)kt_random_below(r, KT_N_VALUES);
    c->ids = chance(r, 40) ? KT_IDS_UNIFORM : (kt_ids)kt_random_below(r, KT_N_IDS);
    c->skip_percent = (int)PICK(r, 0, 0, 0, 10, 50, 100);
    c->wild_percent = (int)PICK(r, 0, 0, 0, 0, 10, 40);
    c->training = chance(r, 70);
    c->poison = chance(r, 10) ? (kt_fuzz_poison)(1 + kt_random_below(r, 2)) : KT_FUZZ_FINITE;
    c->path = chance(r, 25) ? KT_FUZZ_PATH_PORTABLE : KT_FUZZ_PATH_AUTO;
    c->in_place = is_op(c, "load_balance_backward") && chance(r, 15);
}

static uint64_t mix(uint64_t seed, uint64_t number, const char *op) {
    kt_random r = {seed * UINT64_C(0x2545F4914F6CDD1D) + number};
    uint64_t bits = kt_random_bits(&r);
    for (; *op; op++) bits = (bits ^ (unsigned char)*op) * UINT64_C(0x100000001B3);
    return bits;
}

kt_fuzz_case kt_fuzz_draw(const kt_op *op, uint64_t seed, uint64_t number, const kt_fuzz_limits *limits) {
    kt_random r = {mix(seed, number, op->name)};
    kt_fuzz_case c = {.op = op};
    c.seed = kt_random_bits(&r);
    bool aligned = chance(&r, 50), large = chance(&r, 10) && limits->large_work > 0;
    draw_values(&r, limits, &c);
    draw_sizes(&r, aligned, large, &c);
    draw_options(&r, &c);
    draw_tensors(&r, &c);
    apply_fixed(limits, &c);
    if (is_op(&c, "routed_experts_backward")) draw_routing(&r, &c);
    if (large) drop_products(&c);
    kt_fuzz_case_mend(&c);
    fit(limits, aligned, large ? limits->large_work : limits->work, &c);
    draw_accumulate(&r, &c);
    if (c.in_place) json_object_del(c.settings, "accumulate");
    bool half = is_half(c.dtype[0]);
    if (half && c.values == KT_VALUES_OUTLIERS) c.values = KT_VALUES_NORMAL;
    for (int i = 0; i < op->n_args; i++)
        if (c.dtype[i]) draw_layout(&r, aligned, &c, i);
    if (c.in_place) c.layout[arg_of(&c, "grad_expert_mask")].expanded = false;
    return c;
}
