/* A call from sizes alone: see sizes.h. */
#include "shapes/sizes.h"

#include "abi/options.h"

#include <stdlib.h>
#include <string.h>

/* Optional inputs that a call usually has: the others come with --with. */
static bool usual(const kt_arg *arg) {
    return strcmp(arg->name, "topk_idx") == 0 || strcmp(arg->name, "topk_indices") == 0;
}

static int check_names(const kt_sizes *s) {
    const kt_list *lists[] = {&s->with, &s->without};
    for (int l = 0; l < 2; l++) {
        for (size_t i = 0; i < lists[l]->n; i++) {
            const kt_arg *arg = kt_op_arg(s->op, lists[l]->item[i]);
            if (!arg)
                return kt_fail(KT_USAGE, "--%s %s: %s has no such argument", l ? "without" : "with", lists[l]->item[i],
                               s->op->name);
            if (l && arg->role == KT_IN) return kt_fail(KT_USAGE, "--without %s: %s needs it", arg->name, s->op->name);
        }
    }
    return KT_GOOD;
}

/* B=130 */
static int read_axes(const kt_sizes *s, kt_tensors *tensors) {
    const char *letter;
    json_t *size;
    json_object_foreach(json_object_get(s->base, "axes"), letter, size) {
        tensors->size[letter[0] - 'A'] = json_integer_value(size);
    }
    for (size_t i = 0; i < s->axes.n; i++) {
        char axis;
        int64_t given;
        KT_TRY(kt_op_read_axis(s->op, s->axes.item[i], &axis, &given));
        tensors->size[axis - 'A'] = given;
    }
    return KT_GOOD;
}

static bool base_lists(const kt_sizes *s, const char *key, const char *name) {
    size_t i;
    const json_t *item;
    json_array_foreach(json_object_get(s->base, key), i, item) {
        if (strcmp(json_string_value(item), name) == 0) return true;
    }
    return false;
}

static bool is_present(const kt_sizes *s, const kt_arg *arg) {
    if (kt_list_has(&s->without, arg->name)) return false;
    if (kt_list_has(&s->with, arg->name)) return true;
    if (base_lists(s, "without", arg->name)) return false;
    return arg->role != KT_OPTIONAL || usual(arg) || base_lists(s, "with", arg->name);
}

static int make_tensors(const kt_sizes *s, kt_call *out) {
    kt_tensors_begin(&out->tensors, s->op, out->options);
    KT_TRY(read_axes(s, &out->tensors));
    KT_TRY(kt_dtype_words_check(&s->dtypes, s->op));
    for (int i = 0; i < s->op->n_args; i++) {
        if (!is_present(s, &s->op->args[i])) continue;
        const kt_dtype *dtype = kt_tensors_default_dtype(&out->tensors, i);
        KT_TRY(kt_dtype_words_choose(&s->dtypes, s->op, i, &dtype));
        KT_TRY(kt_tensors_derive(&out->tensors, i, dtype));
    }
    return KT_GOOD;
}

int kt_sizes_call(const kt_sizes *s, kt_call *out) {
    *out = (kt_call){.settings = json_object()};
    KT_TRY(check_names(s));
    json_object_update(out->settings, json_object_get(s->base, "options"));
    for (size_t i = 0; i < s->settings.n; i++) KT_TRY(kt_options_add(s->op, out->settings, s->settings.item[i]));
    out->options = kt_alloc(1, s->op->options_size);
    KT_TRY(kt_options_fill(s->op, out->settings, out->options));
    return make_tensors(s, out);
}

void kt_call_free(kt_call *call) {
    kt_tensors_free(&call->tensors, NULL, NULL);
    free(call->options);
    json_decref(call->settings);
    *call = (kt_call){0};
}

void kt_sizes_free(kt_sizes *s) {
    kt_list *const lists[] = {&s->axes, &s->settings, &s->dtypes, &s->with, &s->without};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) kt_list_free(lists[i]);
}
