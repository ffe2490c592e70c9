/* What is tuned, as cases of `kiln bench`: see tune.h. */
#include "tune/tune.h"

#include "abi/options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *file_of(json_t *groups) {
    return json_pack("{s:o}", "groups", groups);
}

/* ---- the command line -------------------------------------------------------------------------------------------- */

static json_t *list_of(const kt_list *words) {
    json_t *list = json_array();
    for (size_t i = 0; i < words->n; i++) json_array_append_new(list, json_string(words->item[i]));
    return list;
}

static int read_axes(const kt_op *op, const kt_list *operands, json_t *row) {
    for (size_t i = 1; i < operands->n; i++) {
        char key[2] = "";
        int64_t size;
        KT_TRY(kt_op_read_axis(op, operands->item[i], key, &size));
        json_object_set_new(row, key, json_integer(size));
    }
    return KT_GOOD;
}

static int read_dtypes(const kt_op *op, const kt_list *words, json_t *dtypes) {
    KT_TRY(kt_dtype_words_check(words, op));
    for (int i = 0; i < op->n_args; i++) {
        const kt_dtype *dtype = NULL;
        KT_TRY(kt_dtype_words_choose(words, op, i, &dtype));
        if (dtype) json_object_set_new(dtypes, op->args[i].name, json_string(dtype->name));
    }
    return KT_GOOD;
}

int kt_tune_cases_of_call(const kt_tune_call *call, kt_bench_cases *out) {
    const kt_op *op = kt_op_find(call->operands->item[0]);
    if (!op) return KT_USAGE;
    json_t *row = json_object(), *dtypes = json_object(), *options = json_object();
    json_t *file = file_of(json_pack("[{s:s, s:o, s:o, s:o, s:o}]", "op", op->name, "dtypes", dtypes, "options",
                                     options, "transposed", list_of(call->transposed), "cases", json_pack("[o]", row)));
    int code = read_axes(op, call->operands, row);
    json_object_set_new(row, "transposed", list_of(call->transposed));
    if (code == KT_GOOD) code = read_dtypes(op, call->dtypes, dtypes);
    for (size_t i = 0; i < call->settings->n && code == KT_GOOD; i++)
        code = kt_options_add(op, options, call->settings->item[i]);
    if (code == KT_GOOD) return kt_bench_cases_take(file, "the command line", NULL, out);
    json_decref(file);
    return code;
}

/* ---- a recording ------------------------------------------------------------------------------------------------- */

/* Sizes by letter from the shape of one argument: "T,H" beside [64,4096]; "L+1" is one more than L. */
static void take_axes(const kt_arg *arg, const json_t *shape, json_t *row) {
    const char *s = arg->shape;
    for (size_t i = 0; i < json_array_size(shape) && *s; i++) {
        char key[2] = {*s, '\0'};
        json_int_t size = json_integer_value(json_array_get(shape, i));
        if (*s >= 'A' && *s <= 'Z')
            json_object_set_new(row, key, json_integer(s[1] == '+' ? size - (s[2] - '0') : size));
        s += strcspn(s, ",");
        s += *s == ',';
    }
}

static json_t *group_of(const kt_op *op, const json_t *line) {
    const json_t *args = json_object_get(line, "args");
    json_t *row = json_object(), *with = json_array(), *without = json_array(), *dtypes = json_object();
    json_t *transposed = json_array();
    for (int i = 0; i < op->n_args; i++) {
        const kt_arg *arg = &op->args[i];
        const json_t *seen = json_object_get(args, arg->name);
        if (!seen) {
            if (arg->role == KT_OUT) json_array_append_new(without, json_string(arg->name));
            continue;
        }
        if (arg->role == KT_OPTIONAL) json_array_append_new(with, json_string(arg->name));
        take_axes(arg, json_object_get(seen, "shape"), row);
        json_object_set(dtypes, arg->name, json_object_get(seen, "dtype"));
        const json_t *strides = json_object_get(seen, "strides");
        if (json_array_size(strides) == 2 && json_integer_value(json_array_get(strides, 0)) == 1)
            json_array_append_new(transposed, json_string(arg->name));
    }
    json_object_set_new(row, "transposed", transposed);
    json_t *options = json_object_get(line, "options");
    return json_pack("{s:s, s:o, s:o, s:o, s:O, s:[o]}", "op", op->name, "with", with, "without", without, "dtypes",
                     dtypes, "options", options, "cases", row);
}

static int add_line(const char *path, int number, const char *text, json_t *groups) {
    json_error_t error;
    json_t *line = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    const char *name = json_string_value(json_object_get(line, "op"));
    int code = KT_GOOD;
    if (!name || !json_is_object(json_object_get(line, "args")) || !json_is_object(json_object_get(line, "options"))) {
        code = kt_fail(KT_USAGE, "%s:%d is no line of a recording", path, number);
    } else {
        const kt_op *op = kt_op_find(name);
        if (op)
            json_array_append_new(groups, group_of(op, line));
        else
            code = kt_prefix(KT_USAGE, "%s:%d: ", path, number);
    }
    json_decref(line);
    return code;
}

int kt_tune_cases_of_record(const char *path, kt_bench_cases *out) {
    FILE *f = fopen(path, "r");
    if (!f) return kt_fail(KT_ENVIRONMENT, "%s: %s", path, strerror(errno));
    json_t *groups = json_array();
    char *text = NULL;
    size_t room = 0;
    int number = 0, code = KT_GOOD;
    while (code == KT_GOOD && getline(&text, &room, f) >= 0) {
        number++;
        if (text[strspn(text, " \t\r\n")]) code = add_line(path, number, text, groups);
    }
    free(text);
    fclose(f);
    if (code == KT_GOOD) return kt_bench_cases_take(file_of(groups), path, NULL, out);
    json_decref(groups);
    return code;
}
