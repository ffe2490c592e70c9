/* kiln ops: the operations, from the interface table. */
#include "abi/library.h"
#include "commands.h"
#include "common/report.h"

#include <stdio.h>
#include <string.h>

static const char *const role_names[] = {"in", "in?", "out"};

static json_t *op_json(const kt_op *op) {
    json_t *args = json_array(), *options = json_array();
    for (int i = 0; i < op->n_args; i++) {
        const kt_arg *a = &op->args[i];
        json_array_append_new(args, json_pack("{s:s, s:s, s:b, s:s, s:s, s:s}", "name", a->name, "role",
                                              a->role == KT_OUT ? "out" : "in", "optional", a->role != KT_IN, "dtypes",
                                              a->dtypes, "shape", a->shape, "layout", a->layout));
    }
    static const char *const types[] = {"i32", "i64", "f64", "str"};
    for (int i = 0; i < op->n_fields; i++) {
        const kt_field *f = &op->fields[i];
        json_array_append_new(options, json_pack("{s:s, s:s, s:s, s:s}", "name", f->name, "type", types[f->type],
                                                 "default", f->dflt, "choices", f->choices));
    }
    return json_pack("{s:s, s:i, s:o, s:o}", "name", op->name, "problem", op->problem, "args", args, "options",
                     options);
}

static void print_op(const kt_op *op) {
    printf("%s", op->name);
    if (op->problem) printf("  (benchmark problem %03d)", op->problem);
    printf("\n");
    kt_table t = kt_table_begin(5, (const char *const[]){"", "argument", "types", "shape", "strides"});
    for (int i = 0; i < op->n_args; i++) {
        const kt_arg *a = &op->args[i];
        kt_table_cell(&t, "%s", role_names[a->role]);
        kt_table_cell(&t, "%s", a->name);
        if (a->dtypes[0] == '=')
            kt_table_cell(&t, "as %s", a->dtypes + 1);
        else
            kt_table_cell(&t, "%s", a->dtypes);
        kt_table_cell(&t, "[%s]", a->shape);
        kt_table_cell(&t, "%s", a->layout);
    }
    kt_table_end(&t, 2);
    for (int i = 0; i < op->n_fields; i++) {
        const kt_field *f = &op->fields[i];
        const char *dflt = f->dflt;
        int first = (int)strcspn(f->choices, ",");
        printf("  option %s", f->name);
        if (*f->choices)
            printf(": %s; default %.*s", f->choices, first, f->choices);
        else if (*dflt)
            printf(": default %s", dflt);
        printf("\n");
    }
    printf("\n");
}

int kt_cmd_ops(const kt_command *self, int argc, char **argv) {
    const char *path = NULL;
    bool json = false;
    const kt_option options[] = {KT_OPTION_JSON(&json), KT_OPTION_LIBRARY(&path), KT_OPTIONS_END};
    kt_list names = {0};
    kt_library *lib = NULL;
    int code;
    KT_TRY_OUT(code, kt_args_parse(self, options, argc, argv, &names));
    for (size_t i = 0; i < names.n; i++)
        if (!kt_op_find(names.item[i])) KT_TRY_OUT(code, KT_USAGE);
    KT_TRY_OUT(code, kt_library_open(path, &lib));
    json_t *all = json_array();
    for (int i = 0; kt_op_at(i); i++) {
        const kt_op *op = kt_op_at(i);
        if (!kt_library_has_op(lib, op) || (names.n && !kt_list_has(&names, op->name))) continue;
        if (json)
            json_array_append_new(all, op_json(op));
        else
            print_op(op);
    }
    if (json)
        code = kt_print_json(all);
    else
        json_decref(all);
out:
    kt_list_free(&names);
    kt_library_close(lib);
    return code;
}
