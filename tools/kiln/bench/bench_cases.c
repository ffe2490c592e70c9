/* Case files of `kiln bench`: see bench_cases.h.
 *
 *     {"tensor_flops": {"NVIDIA H200": 7.9e14},
 *      "groups": [{"op": "router_backward", "axes": {"E": 128, "K": 8, "H": 2048}, "with": ["routing_weights_sum"],
 *                  "without": ["grad_logits"], "dtypes": {"hidden_states": "bf16"}, "options": {"score": "softmax"},
 *                  "best_public_us": 15.2, "cases": [{"T": 1024}, {"T": 2048}]}]}
 *
 * A case may also have "name", and "transposed": matrices whose first axis is the contiguous one. */
#include "bench/bench_cases.h"

#include "abi/options.h"
#include "common/report.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool lists(const json_t *object, const char *key, const char *word) {
    const json_t *list = json_object_get(object, key);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *item = json_string_value(json_array_get(list, i));
        if (item && strcmp(item, word) == 0) return true;
    }
    return false;
}

/* Words of a list must be arguments of the operation: a misspelt one would change what is measured. */
static int check_words(const char *path, const kt_op *op, const json_t *object, const char *key) {
    const json_t *list = json_object_get(object, key);
    if (list && !json_is_array(list)) return kt_fail(KT_USAGE, "%s: \"%s\" of %s is no list", path, key, op->name);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *word = json_string_value(json_array_get(list, i));
        if (!word || !kt_op_arg(op, word))
            return kt_fail(KT_USAGE, "%s: \"%s\" names %s, which is no argument of %s", path, key, word ? word : "?",
                           op->name);
    }
    return KT_GOOD;
}

static int check_dtypes(const char *path, const kt_op *op, const json_t *group) {
    const char *name;
    json_t *value;
    json_object_foreach(json_object_get(group, "dtypes"), name, value) {
        if (!kt_op_arg(op, name))
            return kt_fail(KT_USAGE, "%s: \"dtypes\" names %s, which is no argument of %s", path, name, op->name);
    }
    return KT_GOOD;
}

/* Take the sizes in `object`: one-letter keys. `others` may stand beside them; `what` is the object, in an error. */
static int take_sizes(const char *path, const json_t *object, const char *others, const char *what, kt_bench_case *c) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value) {
        if (kt_choice(others, key, NULL)) continue;
        if (!(key[0] >= 'A' && key[0] <= 'Z' && key[1] == '\0'))
            return kt_fail(KT_USAGE, "%s: %s \"%s\"", path, what, key);
        if (!kt_op_has_axis(c->op, key[0])) return kt_fail(KT_USAGE, "%s: %s has no axis %s", path, c->op->name, key);
        if (!json_is_integer(value) || json_integer_value(value) < 0)
            return kt_fail(KT_USAGE, "%s: axis %s of %s is no size", path, key, c->group);
        c->size[key[0] - 'A'] = json_integer_value(value);
    }
    return KT_GOOD;
}

static char *name_of(const kt_bench_case *c) {
    static const char order[] = "BTMNHIFELGKSACDJOPQRUVWXYZ";
    const char *given = json_string_value(json_object_get(c->row, "name"));
    char *text = kt_copy(given ? given : "");
    for (const char *s = order; *s && !given; s++) {
        char key[2] = {*s, '\0'};
        if (!json_object_get(c->row, key)) continue;
        char *longer = kt_format("%s%s%c=%" PRId64, text, *text ? " " : "", *s, c->size[*s - 'A']);
        free(text);
        text = longer;
    }
    return text;
}

static int check_keys(const char *path, const char *op, const json_t *group) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)group, key, value) {
        if (!kt_choice("op,group,problem,axes,with,without,transposed,dtypes,options,best_public_us,cases", key, NULL))
            return kt_fail(KT_USAGE, "%s: a group of %s has no \"%s\"", path, op, key);
    }
    return KT_GOOD;
}

static int read_cases(const char *path, const kt_op *op, const json_t *group, kt_bench_cases *out) {
    const char *name = json_string_value(json_object_get(group, "group"));
    const json_t *rows = json_object_get(group, "cases");
    char in_axes[96], in_case[96];
    snprintf(in_axes, sizeof in_axes, "the axes of %s have no", op->name);
    snprintf(in_case, sizeof in_case, "a case of %s has no", op->name);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        out->item = kt_grow(out->item, out->n + 1, sizeof *out->item);
        kt_bench_case *c = &out->item[out->n++];
        *c = (kt_bench_case){.op = op, .group = name ? name : op->name, .shared = group};
        c->row = json_array_get(rows, i);
        c->settings = json_object_get(group, "options");
        c->best_public_us = json_number_value(json_object_get(group, "best_public_us"));
        for (int a = 0; a < 26; a++) c->size[a] = -1;
        KT_TRY(take_sizes(path, json_object_get(group, "axes"), "", in_axes, c));
        KT_TRY(take_sizes(path, c->row, "name,transposed", in_case, c));
        KT_TRY(check_words(path, op, c->row, "transposed"));
        c->name = name_of(c);
    }
    return KT_GOOD;
}

static int read_group(const char *path, const json_t *group, const char *wanted, kt_bench_cases *out) {
    const char *op_name = json_string_value(json_object_get(group, "op"));
    const char *name = json_string_value(json_object_get(group, "group"));
    const json_t *rows = json_object_get(group, "cases");
    if (!op_name || !json_is_array(rows)) return kt_fail(KT_USAGE, "%s: a group needs \"op\" and \"cases\"", path);
    if (wanted && strcmp(wanted, op_name) != 0 && !(name && strcmp(wanted, name) == 0)) return KT_GOOD;
    const kt_op *op = kt_op_find(op_name);
    if (!op) return kt_prefix(KT_USAGE, "%s: ", path);
    static const char *const words[] = {"with", "without", "transposed"};
    for (size_t i = 0; i < 3; i++) KT_TRY(check_words(path, op, group, words[i]));
    KT_TRY(check_keys(path, op_name, group));
    KT_TRY(check_dtypes(path, op, group));
    return read_cases(path, op, group, out);
}

/* "gemm, router_backward": what a command line may call the groups. */
static const char *list_groups(const json_t *groups, char *text, size_t cap) {
    kt_list names = {0};
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < json_array_size(groups); i++) {
        const json_t *group = json_array_get(groups, i);
        const char *name = kt_json_text(group, "group", kt_json_text(group, "op", "?"));
        if (kt_list_has(&names, name) || used + strlen(name) + 3 > cap) continue;
        used += (size_t)snprintf(text + used, cap - used, "%s%s", used ? ", " : "", name);
        kt_list_add(&names, name);
    }
    kt_list_free(&names);
    return text;
}

int kt_bench_cases_read(const char *path, const char *op, kt_bench_cases *out) {
    *out = (kt_bench_cases){0};
    if (path) {
        KT_TRY(kt_read_json(path, &out->file));
        return kt_bench_cases_take(out->file, path, op, out);
    }
    json_error_t error;
    path = "bench/cases/seeds.json";
    out->file = json_loadb((const char *)kt_bench_seeds, kt_bench_seeds_bytes, JSON_REJECT_DUPLICATES, &error);
    if (!out->file) return kt_fail(KT_ENVIRONMENT, "the built-in %s:%d: %s", path, error.line, error.text);
    return kt_bench_cases_take(out->file, path, op, out);
}

int kt_bench_cases_take(json_t *file, const char *path, const char *op, kt_bench_cases *out) {
    *out = (kt_bench_cases){.file = file};
    const json_t *groups = json_object_get(out->file, "groups");
    if (!json_is_array(groups)) return kt_fail(KT_USAGE, "%s has no list \"groups\"", path);
    for (size_t i = 0; i < json_array_size(groups); i++) KT_TRY(read_group(path, json_array_get(groups, i), op, out));
    if (out->n > 0) return KT_GOOD;
    char known[1024];
    return op ? kt_fail(KT_USAGE, "%s has no case of %s; it has %s", path, op, list_groups(groups, known, sizeof known))
              : kt_fail(KT_USAGE, "%s has no case", path);
}

void kt_bench_cases_free(kt_bench_cases *cases) {
    for (size_t i = 0; i < cases->n; i++) free(cases->item[i].name);
    free(cases->item);
    json_decref(cases->file);
    *cases = (kt_bench_cases){0};
}

double kt_bench_tensor_flops(const kt_bench_cases *cases, const char *device, double dflt) {
    const json_t *rate = json_object_get(json_object_get(cases->file, "tensor_flops"), device);
    return json_is_number(rate) ? json_number_value(rate) : dflt;
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

bool kt_bench_has_arg(const kt_bench_case *c, int i) {
    const kt_arg *arg = &c->op->args[i];
    if (arg->role == KT_OPTIONAL) return lists(c->shared, "with", arg->name);
    return arg->role == KT_IN || !lists(c->shared, "without", arg->name);
}

int kt_bench_case_options(const kt_bench_case *c, void **options) {
    json_t *none = json_object();
    *options = kt_alloc(1, c->op->options_size);
    int code = kt_options_fill(c->op, c->settings ? (json_t *)(uintptr_t)c->settings : none, *options);
    json_decref(none);
    return code;
}

int kt_bench_case_tensors(const kt_bench_case *c, const void *options, kt_tensors *tensors, uint32_t *transposed) {
    const json_t *dtypes = json_object_get(c->shared, "dtypes");
    kt_tensors_begin(tensors, c->op, options);
    memcpy(tensors->size, c->size, sizeof tensors->size);
    *transposed = 0;
    for (int i = 0; i < c->op->n_args; i++) {
        const kt_arg *arg = &c->op->args[i];
        if (!kt_bench_has_arg(c, i)) continue;
        const char *given = json_string_value(json_object_get(dtypes, arg->name));
        const kt_dtype *dtype = given ? kt_dtype_named(given) : kt_tensors_default_dtype(tensors, i);
        if (!dtype) return kt_fail(KT_USAGE, "%s has type \"%s\", which is none", arg->name, given);
        KT_TRY(kt_tensors_derive(tensors, i, dtype));
        if (lists(c->row, "transposed", arg->name)) *transposed |= 1u << i;
    }
    return KT_GOOD;
}
