/* The interface table as data: see table.h. */
#include "abi/table.h"

#include "common/args.h"

#include "kiln/kiln.h"

#include <string.h>

/* Names of kiln_abi.def's columns. */
enum { role_in = KT_IN, role_optional = KT_OPTIONAL, role_out = KT_OUT };
enum { type_i32 = KT_FIELD_I32, type_i64 = KT_FIELD_I64, type_f64 = KT_FIELD_F64, type_str = KT_FIELD_STR };
enum { result_i = 'i', result_s = 's' };

static const kt_arg args[] = {
#define KILN_ARG(op, name, role, dtypes, shape, layout) {#op, #name, (kt_role)role_##role, dtypes, shape, layout},
#include "kiln/kiln_abi.def"
#undef KILN_ARG
};

static const kt_field fields[] = {
#define KILN_OPTION(op, field, type, dflt, choices)                                                                    \
    {#op, #field, (kt_field_type)type_##type, dflt, choices, offsetof(kiln_##op##_options, field)},
#include "kiln/kiln_abi.def"
#undef KILN_OPTION
};

static kt_op ops[] = {
#define KILN_OP(op, problem) {#op, problem, sizeof(kiln_##op##_options), NULL, 0, NULL, 0},
#include "kiln/kiln_abi.def"
#undef KILN_OP
};

const kt_function kt_functions[] = {
#define KILN_FUNCTION(name, result, arguments) {#name, arguments, result_##result},
#include "kiln/kiln_abi.def"
#undef KILN_FUNCTION
};
const size_t kt_n_functions = sizeof kt_functions / sizeof *kt_functions;

enum {
    N_OPS = sizeof ops / sizeof *ops,
    N_ARGS = sizeof args / sizeof *args,
    N_FIELDS = sizeof fields / sizeof *fields
};

/* The rows of one operation stand together: point the operation at the first and count them. */
static void link_rows(kt_op *op) {
    for (int i = 0; i < N_ARGS; i++) {
        if (strcmp(args[i].op, op->name) != 0) continue;
        if (!op->args) op->args = &args[i];
        op->n_args++;
    }
    for (int i = 0; i < N_FIELDS; i++) {
        if (strcmp(fields[i].op, op->name) != 0) continue;
        if (!op->fields) op->fields = &fields[i];
        op->n_fields++;
    }
}

const kt_op *kt_op_at(int i) {
    if (i < 0 || i >= N_OPS) return NULL;
    if (!ops[i].args) link_rows(&ops[i]);
    return &ops[i];
}

const kt_op *kt_op_find(const char *name) {
    char known[1024] = "";
    for (int i = 0; i < N_OPS; i++) {
        if (strcmp(ops[i].name, name) == 0) return kt_op_at(i);
        size_t n = strlen(known);
        if (n + strlen(ops[i].name) + 3 < sizeof known) {
            strcat(known, i ? ", " : "");
            strcat(known, ops[i].name);
        }
    }
    kt_fail(KT_USAGE, "\"%s\" is not an operation; there are %s", name, known);
    return NULL;
}

const kt_arg *kt_op_arg(const kt_op *op, const char *name) {
    for (int i = 0; i < op->n_args; i++)
        if (strcmp(op->args[i].name, name) == 0) return &op->args[i];
    return NULL;
}

bool kt_op_has_axis(const kt_op *op, char letter) {
    if (letter < 'A' || letter > 'Z') return false;
    for (int i = 0; i < op->n_args; i++) {
        /* grouped_gemm's "?" depend on an option: [G,K,N] or [K,N], [M,N] or [G,M,N]. */
        const char *shape = strcmp(op->args[i].shape, "?") == 0 ? "G,K,M,N" : op->args[i].shape;
        if (strchr(shape, letter)) return true;
    }
    return false;
}

int kt_op_read_axis(const kt_op *op, const char *word, char *letter, int64_t *size) {
    if (!kt_op_has_axis(op, word[0]) || word[1] != '=')
        return kt_fail(KT_USAGE, "\"%s\" is not an axis of %s; wanted AXIS=SIZE with a letter of its shapes", word,
                       op->name);
    char what[] = "axis ?";
    what[5] = *letter = word[0];
    return kt_parse_number(word + 2, 0, INT64_MAX, what, size);
}
