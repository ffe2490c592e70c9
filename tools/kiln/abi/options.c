/* Options of an operation: see options.h. */
#include "abi/options.h"

#include "kiln/kiln.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const kt_field *find(const kt_op *op, const char *name) {
    for (int i = 0; i < op->n_fields; i++)
        if (strcmp(op->fields[i].name, name) == 0) return &op->fields[i];
    return NULL;
}

static int unknown(const kt_op *op, const char *name) {
    char known[1024] = "accumulate";
    for (int i = 0; i < op->n_fields; i++) {
        if (strlen(known) + strlen(op->fields[i].name) + 3 > sizeof known) break;
        strcat(strcat(known, ", "), op->fields[i].name);
    }
    return kt_fail(KT_USAGE, "%s has no option \"%s\"; it has %s", op->name, name, known);
}

static int wrong(const kt_field *f, const json_t *value, const char *wanted) {
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    int code = kt_fail(KT_USAGE, "option %s of %s is %s; wanted %s", f->name, f->op, text ? text : "?", wanted);
    free(text);
    return code;
}

/* A word among the choices, or true / false (or their numbers 1 / 0) where those are the choices, or a plain number. */
static int whole_value(const kt_field *f, const json_t *value, int64_t *out) {
    int index;
    bool truth = strcmp(f->choices, "true,false") == 0;
    if (truth && json_is_boolean(value))
        *out = json_is_true(value) ? KILN_TRUE : KILN_FALSE;
    else if (truth && json_is_integer(value) && (json_integer_value(value) == 0 || json_integer_value(value) == 1))
        *out = json_integer_value(value) == 1 ? KILN_TRUE : KILN_FALSE;
    else if (*f->choices && json_is_string(value) && kt_choice(f->choices, json_string_value(value), &index))
        *out = index;
    else if (!*f->choices && json_is_integer(value))
        *out = json_integer_value(value);
    else
        return wrong(f, value, *f->choices ? f->choices : "a whole number");
    if (f->type == KT_FIELD_I32 && (*out < INT32_MIN || *out > INT32_MAX))
        return wrong(f, value, "a whole number of 32 bits");
    return KT_GOOD;
}

static int set_field(const kt_field *f, const json_t *value, void *options) {
    char *at = (char *)options + f->offset;
    int64_t whole = 0;
    switch (f->type) {
    case KT_FIELD_I32:
        KT_TRY(whole_value(f, value, &whole));
        memcpy(at, &(int32_t){(int32_t)whole}, sizeof(int32_t));
        return KT_GOOD;
    case KT_FIELD_I64:
        KT_TRY(whole_value(f, value, &whole));
        memcpy(at, &whole, sizeof whole);
        return KT_GOOD;
    case KT_FIELD_F64:
        if (!json_is_number(value)) return wrong(f, value, "a number");
        memcpy(at, &(double){json_number_value(value)}, sizeof(double));
        return KT_GOOD;
    case KT_FIELD_STR:
        if (json_is_null(value)) return KT_GOOD;
        if (!json_is_string(value)) return wrong(f, value, "a string");
        memcpy(at, &(const char *){json_string_value(value)}, sizeof(const char *));
        return KT_GOOD;
    }
    return KT_GOOD;
}

static int set_accumulate(const kt_op *op, const json_t *names, uint64_t *mask) {
    if (!json_is_array(names)) return kt_fail(KT_USAGE, "option accumulate of %s must be a list of outputs", op->name);
    for (size_t i = 0; i < json_array_size(names); i++) {
        const char *name = json_string_value(json_array_get(names, i));
        int output = 0, found = -1;
        for (int a = 0; a < op->n_args; a++) {
            if (op->args[a].role != KT_OUT) continue;
            if (name && strcmp(op->args[a].name, name) == 0) found = output;
            output++;
        }
        if (found < 0)
            return kt_fail(KT_USAGE, "option accumulate: %s has no output \"%s\"", op->name, name ? name : "");
        *mask |= (uint64_t)1 << found;
    }
    return KT_GOOD;
}

/* `prefix` is "" or the name of the nested object with its dot. */
static int set_all(const kt_op *op, const char *prefix, json_t *object, void *options) {
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value) {
        char *name = kt_format("%s%s", prefix, key);
        const kt_field *field = find(op, name);
        int code;
        if (field) {
            code = set_field(field, value, options);
        } else if (!*prefix && json_is_object(value)) {
            char *nested = kt_format("%s.", key);
            code = set_all(op, nested, value, options);
            free(nested);
        } else if (strcmp(name, "accumulate") == 0) {
            code = set_accumulate(op, value, &((kiln_common_options *)options)->accumulate);
        } else {
            code = unknown(op, name);
        }
        free(name);
        KT_TRY(code);
    }
    return KT_GOOD;
}

int kt_options_fill(const kt_op *op, json_t *object, void *options) {
    memset(options, 0, op->options_size);
    ((kiln_common_options *)options)->struct_size = (uint32_t)op->options_size;
    if (!object) return KT_GOOD;
    if (!json_is_object(object)) return kt_fail(KT_USAGE, "the options of %s must be a JSON object", op->name);
    return set_all(op, "", object, options);
}

int kt_options_add(const kt_op *op, json_t *object, const char *assignment) {
    const char *equals = strchr(assignment, '=');
    if (!equals || equals == assignment)
        return kt_fail(KT_USAGE, "\"%s\" is not an option; wanted name=value", assignment);
    char *name = kt_copy(assignment);
    name[equals - assignment] = '\0';
    json_t *value = json_loads(equals + 1, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL);
    if (!value) value = json_string(equals + 1);
    int code = KT_GOOD;
    if (!find(op, name) && strcmp(name, "accumulate") != 0)
        code = unknown(op, name);
    else if (!value)
        code = kt_fail(KT_USAGE, "option %s is not valid UTF-8", name);
    else if (strcmp(name, "accumulate") == 0 && json_is_string(value)) {
        json_t *list = json_object_get(object, name);
        if (!json_is_array(list)) {
            list = json_array();
            json_object_set_new(object, name, list);
        }
        json_array_append(list, value);
    } else {
        json_object_set(object, name, value);
    }
    json_decref(value);
    free(name);
    return code;
}
