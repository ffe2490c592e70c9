/* Cases as JSON and in words: see fuzz_case.h. */
#include "fuzz/fuzz_case.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const kt_fuzz_values_names[KT_N_VALUES] = {"normal", "ties", "sparse", "positive", "outliers"};
const char *const kt_fuzz_ids_names[KT_N_IDS] = {"uniform", "skewed", "last", "repeat"};
const char *const kt_fuzz_poison_names[KT_FUZZ_N_POISONS] = {"finite", "nan", "infinite"};
const char *const kt_fuzz_path_names[KT_FUZZ_N_PATHS] = {"auto", "portable"};

bool kt_fuzz_is_compact(const kt_fuzz_layout *l) {
    return !l->swapped && !l->turned && !l->expanded && l->spread == 0 && l->gap == 0 && l->shift == 0 &&
           l->byte_offset == 0;
}

kt_fuzz_case kt_fuzz_case_copy(const kt_fuzz_case *c) {
    kt_fuzz_case copy = *c;
    copy.settings = json_deep_copy(c->settings);
    return copy;
}

void kt_fuzz_case_free(kt_fuzz_case *c) {
    json_decref(c->settings);
    c->settings = NULL;
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static json_t *layout_to_json(const kt_fuzz_layout *l) {
    return json_pack("{s:b, s:b, s:b, s:b, s:I, s:I, s:I, s:I}", "swapped", l->swapped, "turned", l->turned, "expanded",
                     l->expanded, "at_end", l->at_end, "spread", (json_int_t)l->spread, "gap", (json_int_t)l->gap,
                     "shift", (json_int_t)l->shift, "byte_offset", (json_int_t)l->byte_offset);
}

json_t *kt_fuzz_case_to_json(const kt_fuzz_case *c) {
    json_t *sizes = json_object(), *tensors = json_object();
    for (int i = 0; i < 26; i++) {
        char letter[2] = {(char)('A' + i), '\0'};
        if (c->size[i] >= 0) json_object_set_new(sizes, letter, json_integer(c->size[i]));
    }
    for (int i = 0; i < c->op->n_args; i++) {
        if (!c->dtype[i]) continue;
        json_t *t = layout_to_json(&c->layout[i]);
        json_object_set_new(t, "dtype", json_string(c->dtype[i]->name));
        json_object_set_new(tensors, c->op->args[i].name, t);
    }
    char seed[24];
    snprintf(seed, sizeof seed, "%" PRIu64, c->seed); /* as text: JSON numbers of other readers are doubles */
    return json_pack("{s:s, s:s, s:o, s:o, s:O, s:f, s:s, s:s, s:i, s:i, s:s, s:b, s:b, s:s}", "op", c->op->name,
                     "seed", seed, "sizes", sizes, "tensors", tensors, "options", c->settings, "scale", c->scale,
                     "values", kt_fuzz_values_names[c->values], "ids", kt_fuzz_ids_names[c->ids], "skip_percent",
                     c->skip_percent, "wild_percent", c->wild_percent, "row", kt_fuzz_poison_names[c->poison],
                     "training", c->training, "in_place", c->in_place, "path", kt_fuzz_path_names[c->path]);
}

static int name_index(const json_t *json, const char *key, const char *const *names, int n, int *out) {
    const char *name = json_string_value(json_object_get(json, key));
    for (*out = 0; name && *out < n; ++*out)
        if (strcmp(names[*out], name) == 0) return KT_GOOD;
    return kt_fail(KT_USAGE, "a fuzz case's \"%s\" is \"%s\", which is none", key, name ? name : "");
}

static int64_t whole(const json_t *object, const char *key) {
    return (int64_t)json_integer_value(json_object_get(object, key));
}

static bool truth(const json_t *object, const char *key) {
    return json_is_true(json_object_get(object, key));
}

static int read_tensors(const json_t *tensors, kt_fuzz_case *out) {
    const char *name;
    json_t *t;
    json_object_foreach((json_t *)(uintptr_t)tensors, name, t) {
        const kt_arg *arg = kt_op_arg(out->op, name);
        const char *dtype = json_string_value(json_object_get(t, "dtype"));
        const kt_dtype *found = dtype ? kt_dtype_named(dtype) : NULL;
        if (!arg || !found) return kt_fail(KT_USAGE, "a fuzz case's tensor %s is not one of %s", name, out->op->name);
        out->dtype[arg - out->op->args] = found;
        out->layout[arg - out->op->args] = (kt_fuzz_layout){.swapped = truth(t, "swapped"),
                                                            .turned = truth(t, "turned"),
                                                            .expanded = truth(t, "expanded"),
                                                            .at_end = truth(t, "at_end"),
                                                            .spread = whole(t, "spread"),
                                                            .gap = whole(t, "gap"),
                                                            .shift = whole(t, "shift"),
                                                            .byte_offset = whole(t, "byte_offset")};
    }
    return KT_GOOD;
}

int kt_fuzz_case_from_json(const json_t *json, kt_fuzz_case *out) {
    *out = (kt_fuzz_case){0};
    const char *op = json_string_value(json_object_get(json, "op"));
    const char *seed = json_string_value(json_object_get(json, "seed"));
    if (!op || !seed) return kt_fail(KT_USAGE, "a fuzz case needs \"op\" and \"seed\"");
    out->op = kt_op_find(op);
    if (!out->op) return KT_USAGE;
    out->seed = strtoull(seed, NULL, 10);
    const json_t *sizes = json_object_get(json, "sizes");
    for (int i = 0; i < 26; i++) {
        char letter[2] = {(char)('A' + i), '\0'};
        const json_t *size = json_object_get(sizes, letter);
        out->size[i] = json_is_integer(size) ? (int64_t)json_integer_value(size) : -1;
    }
    int values = 0, ids = 0, poison = 0, path = 0;
    KT_TRY(name_index(json, "values", kt_fuzz_values_names, KT_N_VALUES, &values));
    KT_TRY(name_index(json, "ids", kt_fuzz_ids_names, KT_N_IDS, &ids));
    KT_TRY(name_index(json, "row", kt_fuzz_poison_names, KT_FUZZ_N_POISONS, &poison));
    KT_TRY(name_index(json, "path", kt_fuzz_path_names, KT_FUZZ_N_PATHS, &path));
    out->values = (kt_values)values;
    out->ids = (kt_ids)ids;
    out->poison = (kt_fuzz_poison)poison;
    out->path = (kt_fuzz_path)path;
    out->skip_percent = (int)whole(json, "skip_percent");
    out->wild_percent = (int)whole(json, "wild_percent");
    out->training = truth(json, "training");
    out->in_place = truth(json, "in_place");
    out->scale = json_number_value(json_object_get(json, "scale"));
    out->settings = json_deep_copy(json_object_get(json, "options"));
    return read_tensors(json_object_get(json, "tensors"), out);
}

/* ---- what belongs together --------------------------------------------------------------------------------------- */

int kt_fuzz_case_arg(const kt_fuzz_case *c, const char *name) {
    const kt_arg *arg = kt_op_arg(c->op, name);
    int i = arg ? (int)(arg - c->op->args) : -1;
    return i >= 0 && c->dtype[i] ? i : -1;
}

static void drop(kt_fuzz_case *c, const char *name) {
    int i = kt_fuzz_case_arg(c, name);
    if (i >= 0) c->dtype[i] = NULL;
}

static bool setting_is(const kt_fuzz_case *c, const char *key, const char *value) {
    const char *set = json_string_value(json_object_get(c->settings, key));
    return set && strcmp(set, value) == 0;
}

static int64_t *size_at(kt_fuzz_case *c, char letter) {
    return &c->size[letter - 'A'];
}

static void at_most(int64_t *size, int64_t most) {
    if (*size > most) *size = most;
}

static void mend_router(kt_fuzz_case *c) {
    if (setting_is(c, "score", "softmax_selected")) drop(c, "aux_expert_coefficients");
    if (kt_fuzz_case_arg(c, "aux_expert_coefficients") < 0) drop(c, "aux_row");
    if (kt_fuzz_case_arg(c, "aux_row") < 0) *size_at(c, 'S') = 1;
    if (kt_fuzz_case_arg(c, "router_logits") < 0) drop(c, "z_loss_coefficient");
}

static void mend_routed(kt_fuzz_case *c) {
    int64_t *experts = size_at(c, 'E'), local = *size_at(c, 'L');
    bool sorted = kt_fuzz_case_arg(c, "expert_offsets") >= 0;
    if (sorted) *size_at(c, 'K') = 1;
    if (*experts < local || sorted) *experts = local;
    int64_t lo = (int64_t)json_integer_value(json_object_get(c->settings, "expert_lo"));
    at_most(&lo, *experts - local);
    bool all = lo + local == *experts && !json_object_get(c->settings, "num_experts");
    json_object_del(c->settings, "expert_lo");
    if (lo > 0) json_object_set_new(c->settings, "expert_lo", json_integer(lo));
    if (!all) json_object_set_new(c->settings, "num_experts", json_integer(*experts));
}

void kt_fuzz_case_mend(kt_fuzz_case *c) {
    const char *op = c->op->name;
    bool product = strcmp(op, "gemm") == 0 || strcmp(op, "grouped_gemm") == 0;
    for (const char *s = product ? "G" : "HIFELKS"; *s; s++) /* tokens and the sides of products may be none */
        if (*size_at(c, *s) == 0) *size_at(c, *s) = 1;
    if (strcmp(op, "router_backward") == 0) mend_router(c);
    if (strcmp(op, "routed_experts_backward") == 0) mend_routed(c);
    int64_t experts = *size_at(c, 'E');
    if (strcmp(op, "load_balance_backward") == 0) {
        bool given = kt_fuzz_case_arg(c, "topk_idx") >= 0;
        json_object_del(c->settings, "top_k");
        if (!given) json_object_set_new(c->settings, "top_k", json_integer(*size_at(c, 'K')));
    } else if (experts > 0) {
        at_most(size_at(c, 'K'), experts < 256 ? experts : 256);
    }
    if (strcmp(op, "expert_mlp_backward") == 0) { /* distinct tokens are at most all of them */
        bool repeats = json_is_false(json_object_get(c->settings, "unique_indices"));
        int64_t least = repeats ? *size_at(c, 'T') > 0 : *size_at(c, 'T');
        if (*size_at(c, 'B') < least) *size_at(c, 'B') = least;
    }
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

static double size_of(const kt_fuzz_case *c, char letter) {
    int64_t n = c->size[letter - 'A'];
    return n > 0 ? (double)n : 0;
}

double kt_fuzz_case_work(const kt_fuzz_case *c) {
    const char *op = c->op->name;
    double b = size_of(c, 'B'), t = size_of(c, 'T'), h = size_of(c, 'H'), e = size_of(c, 'E'), k = size_of(c, 'K');
    double i = size_of(c, 'I'), f = size_of(c, 'F'), l = size_of(c, 'L');
    if (strcmp(op, "load_balance_backward") == 0) return 8 * b * e;
    if (strcmp(op, "router_backward") == 0) return t * e * (2 * h + 64 + 8 * k);
    if (strcmp(op, "expert_mlp_backward") == 0) return 6 * t * h * f + 8 * (b * h + 3 * h * f + t * (h + f));
    if (strcmp(op, "moe_layer_backward") == 0) return 6 * t * h * i + t * e * (2 * h + 64) + 8 * (t * h + 3 * h * i);
    if (strcmp(op, "routed_experts_backward") == 0)
        return 8 * t * k * h * i + 16 * l * h * i + 16 * t * k * (h + i) + 64 * l;
    double m = size_of(c, 'M'), n = size_of(c, 'N'), g = size_of(c, 'G');
    if (strcmp(op, "gemm") == 0) return m * n * k + 8 * (m * k + k * n + m * n);
    return 2 * m * n * k + 8 * (m * k + g * n * (k + m));
}

char *kt_fuzz_case_text(const kt_fuzz_case *c) {
    kt_tensors sizes = {.op = c->op};
    memcpy(sizes.size, c->size, sizeof sizes.size);
    char *axes = kt_tensors_axes_text(&sizes);
    const kt_dtype *first = NULL;
    for (int i = 0; i < c->op->n_args && !first; i++)
        if (c->dtype[i] && c->dtype[i]->code != KT_DL_INT && strchr(c->op->args[i].dtypes, ',')) first = c->dtype[i];
    char *options = json_dumps(c->settings, JSON_COMPACT | JSON_SORT_KEYS);
    char *text = kt_format("%s %s%s%s, values %s x %g, ids %s%s%s %s", c->op->name, axes, first ? " " : "",
                           first ? first->name : "", kt_fuzz_values_names[c->values], c->scale,
                           kt_fuzz_ids_names[c->ids], c->path == KT_FUZZ_PATH_PORTABLE ? ", portable" : "",
                           c->poison ? ", a row is not finite" : "", options);
    free(options);
    free(axes);
    return text;
}
