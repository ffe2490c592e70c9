/* The calls of `kiln warm`: see warm_list.h. A line of a file is what ops/api_record.c writes:
 *
 *     {"v":1,"op":"load_balance_backward","args":{"grad_expert_mask":{"dtype":"f32","shape":[130,100]},...},
 *      "options":{"top_k":3}}
 *
 * with "strides" and "align" of an argument and "accumulate" (a mask of outputs) where they are not the usual ones. */
#include "warm/warm_list.h"

#include "abi/options.h"
#include "common/report.h"
#include "shapes/models.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void kt_warm_list_begin(kt_warm_list *list) {
    *list = (kt_warm_list){.skipped = json_array()};
}

static kt_warm_call *add(kt_warm_list *list, const kt_op *op, const char *group, char *what) {
    list->item = kt_grow(list->item, list->n + 1, sizeof *list->item);
    kt_warm_call *c = list->item[list->n++] = kt_alloc(1, sizeof *c);
    c->op = op;
    c->what = what;
    c->group = kt_copy(group);
    return c;
}

void kt_warm_list_free(kt_warm_list *list) {
    for (size_t i = 0; i < list->n; i++) {
        kt_call_free(&list->item[i]->call);
        free(list->item[i]->what);
        free(list->item[i]->group);
        free(list->item[i]);
    }
    free(list->item);
    json_decref(list->skipped);
    *list = (kt_warm_list){0};
}

/* ---- lines of a file --------------------------------------------------------------------------------------------- */

/* Whole numbers of a list, none negative; false if it is none. */
static bool read_list(const json_t *list, int64_t out[KT_MAX_RANK], int *n) {
    if (!json_is_array(list) || json_array_size(list) > KT_MAX_RANK) return false;
    *n = (int)json_array_size(list);
    for (int i = 0; i < *n; i++) {
        const json_t *v = json_array_get(list, (size_t)i);
        if (!json_is_integer(v) || json_integer_value(v) < 0) return false;
        out[i] = json_integer_value(v);
    }
    return true;
}

static int read_arg(kt_warm_call *c, int i, const json_t *arg) {
    const char *name = c->op->args[i].name;
    const char *type = json_string_value(json_object_get(arg, "dtype"));
    const kt_dtype *dtype = type ? kt_dtype_named(type) : NULL;
    const json_t *strides = json_object_get(arg, "strides"), *align = json_object_get(arg, "align");
    int64_t shape[KT_MAX_RANK];
    int rank = 0, n = 0;
    if (!dtype) return kt_fail(KT_USAGE, "the dtype of %s is \"%s\", which is none", name, type ? type : "");
    if (!read_list(json_object_get(arg, "shape"), shape, &rank))
        return kt_fail(KT_USAGE, "%s needs \"shape\", a list of sizes", name);
    KT_TRY(kt_tensors_set(&c->call.tensors, i, dtype, rank, shape));
    if (strides && (!read_list(strides, c->strides[i], &n) || n != rank))
        return kt_fail(KT_USAGE, "\"strides\" of %s must be %d whole numbers", name, rank);
    c->strided[i] = strides != NULL;
    json_int_t bytes = align ? json_integer_value(align) : 0;
    if (align && (bytes < 1 || bytes > 128 || (bytes & (bytes - 1))))
        return kt_fail(KT_USAGE, "\"align\" of %s must be a power of two up to 128", name);
    c->align[i] = (uint32_t)bytes;
    return KT_GOOD;
}

static int read_call(kt_warm_call *c, const json_t *line) {
    const char *name;
    json_t *arg, *args = json_object_get(line, "args"), *accumulate = json_object_get(line, "accumulate");
    c->call.settings = json_incref(json_object_get(line, "options"));
    if (!c->call.settings) c->call.settings = json_object();
    c->call.options = kt_alloc(1, c->op->options_size);
    KT_TRY(kt_options_fill(c->op, c->call.settings, c->call.options));
    if (accumulate) {
        if (!json_is_integer(accumulate)) return kt_fail(KT_USAGE, "\"accumulate\" must be a mask of outputs");
        ((kiln_common_options *)c->call.options)->accumulate = (uint64_t)json_integer_value(accumulate);
    }
    kt_tensors_begin(&c->call.tensors, c->op, c->call.options);
    if (!json_is_object(args)) return kt_fail(KT_USAGE, "the line has no \"args\"");
    json_object_foreach(args, name, arg) {
        const kt_arg *known = kt_op_arg(c->op, name);
        if (!known) return kt_fail(KT_USAGE, "%s has no argument \"%s\"", c->op->name, name);
        KT_TRY(read_arg(c, (int)(known - c->op->args), arg));
    }
    return KT_GOOD;
}

static int read_line(kt_warm_list *list, const char *path, int number, const char *text) {
    json_error_t error;
    json_t *line = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    if (!line) return kt_fail(KT_USAGE, "%s:%d: %s", path, number, error.text);
    int code = KT_GOOD;
    const char *op_name = json_string_value(json_object_get(line, "op"));
    if (json_integer_value(json_object_get(line, "v")) != 1 || !op_name)
        code = kt_fail(KT_USAGE, "wanted {\"v\":1,\"op\":...}, as KILN_RECORD writes it");
    const kt_op *op = code == KT_GOOD ? kt_op_find(op_name) : NULL;
    if (op)
        code = read_call(add(list, op, path, kt_format("%s:%d", path, number)), line);
    else
        code = KT_USAGE;
    json_decref(line);
    return code == KT_GOOD ? code : kt_prefix(code, "%s:%d: ", path, number);
}

int kt_warm_list_file(kt_warm_list *list, const char *path) {
    FILE *f = strcmp(path, "-") == 0 ? stdin : fopen(path, "r");
    if (!f) return kt_fail(KT_ENVIRONMENT, "%s: %s", path, strerror(errno));
    char *text = NULL;
    size_t cap = 0;
    int code = KT_GOOD, number = 0;
    while (code == KT_GOOD && getline(&text, &cap, f) >= 0) {
        number++;
        if (text[strspn(text, " \t\r\n")] != '\0') code = read_line(list, path, number, text);
    }
    if (code == KT_GOOD && ferror(f)) code = kt_fail(KT_ENVIRONMENT, "%s cannot be read", path);
    free(text);
    if (f != stdin) fclose(f);
    return code;
}

/* ---- models ------------------------------------------------------------------------------------------------------ */

static int add_call(kt_warm_list *list, const kt_warm_models *m, const json_t *model, const kt_op *op, int64_t tokens) {
    const char *why;
    json_t *base = kt_model_call(model, op, tokens, &why);
    if (!base) return KT_GOOD;
    kt_sizes sizes = *m->sizes;
    sizes.op = op;
    sizes.base = base;
    const char *name = kt_json_text(model, "model", "?");
    kt_warm_call *c = add(list, op, name, kt_format("%s T=%" PRId64, name, tokens));
    int code = kt_sizes_call(&sizes, &c->call);
    json_decref(base);
    return code;
}

static int check_ops(const kt_warm_models *m) {
    for (size_t i = 0; i < m->ops.n; i++)
        if (!kt_op_find(m->ops.item[i])) return KT_USAGE;
    return KT_GOOD;
}

static bool wants(const kt_warm_models *m, const kt_op *op, const json_t *model, json_t *skipped) {
    const char *why;
    bool named = kt_list_has(&m->ops, op->name);
    if (m->ops.n > 0 && !named) return false;
    json_t *base = kt_model_call(model, op, 1, &why);
    if (!base && (named || strcmp(why, "it is no operation of a layer") != 0))
        json_array_append_new(skipped, json_pack("{s:O, s:s, s:s}", "model", json_object_get(model, "model"), "op",
                                                 op->name, "why", why));
    json_decref(base);
    return base != NULL;
}

int kt_warm_list_models(kt_warm_list *list, const kt_warm_models *m) {
    json_t *file = NULL;
    const json_t *models, *model;
    KT_TRY(check_ops(m));
    int code = kt_models_read(&file, &models);
    for (size_t i = 0; code == KT_GOOD && i < m->names.n; i++) {
        bool all = strcmp(m->names.item[i], "all") == 0;
        size_t n = all ? json_array_size(models) : 1;
        for (size_t k = 0; code == KT_GOOD && k < n; k++) {
            model = json_array_get(models, k);
            if (!all) code = kt_models_find(models, m->names.item[i], &model);
            for (int o = 0; code == KT_GOOD && kt_op_at(o); o++) {
                if (!wants(m, kt_op_at(o), model, list->skipped)) continue;
                for (size_t t = 0; code == KT_GOOD && t < m->n_tokens; t++)
                    code = add_call(list, m, model, kt_op_at(o), m->tokens[t]);
            }
        }
    }
    json_decref(file);
    return code;
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

void kt_warm_args_fill(const kt_warm_call *c, int32_t device_type, int32_t device_id, kt_warm_args *out) {
    memset(out, 0, sizeof *out);
    for (int i = 0; i < c->op->n_args; i++) {
        const kt_tensor *t = &c->call.tensors.tensor[i];
        if (!t->present) continue;
        DLTensor *dl = &out->tensor[i];
        dl->device.device_type = (__typeof__(dl->device.device_type))device_type;
        dl->device.device_id = device_id;
        dl->dtype = (DLDataType){t->dtype->code, t->dtype->bits, 1};
        dl->ndim = t->rank;
        dl->shape = (int64_t *)(uintptr_t)t->shape;
        if (c->strided[i]) dl->strides = (int64_t *)(uintptr_t)c->strides[i];
        /* Nobody reads there: an address says how it is aligned, and no two tensors overlap. */
        if (c->align[i]) dl->data = (void *)(((uintptr_t)i + 1) << 48 | c->align[i]);
        out->arg[i] = dl;
    }
}
