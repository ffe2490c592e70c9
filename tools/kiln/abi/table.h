/* The interface table kiln_abi.def as data: operations, their arguments and options, and all functions. */
#ifndef KILN_TOOL_TABLE_H
#define KILN_TOOL_TABLE_H

#include "common/tool.h"

typedef enum kt_role { KT_IN, KT_OPTIONAL, KT_OUT } kt_role;

typedef struct kt_arg {
    const char *op, *name;
    kt_role role;
    const char *dtypes, *shape, *layout; /* as kiln_abi.def documents them */
} kt_arg;

typedef enum kt_field_type { KT_FIELD_I32, KT_FIELD_I64, KT_FIELD_F64, KT_FIELD_STR } kt_field_type;

/* One option: a field of the operation's option struct. */
typedef struct kt_field {
    const char *op, *name;
    kt_field_type type;
    const char *dflt, *choices;
    size_t offset;
} kt_field;

typedef struct kt_op {
    const char *name;
    int problem; /* number of the public benchmark problem, 0 if none */
    size_t options_size;
    const kt_arg *args; /* inputs, then outputs: the order of the call */
    int n_args;
    const kt_field *fields;
    int n_fields;
} kt_op;

typedef struct kt_function {
    const char *name, *arguments; /* one letter an argument */
    char result;                  /* 'i' or 's' */
} kt_function;

enum { KT_MAX_ARGS = 24 };

const kt_op *kt_op_at(int i); /* NULL past the end */
/** NULL and a sentence that lists the operations if there is no such one. */
const kt_op *kt_op_find(const char *name);
const kt_arg *kt_op_arg(const kt_op *op, const char *name); /* NULL if it has none of that name */
/** Does a shape of the operation have this letter? */
bool kt_op_has_axis(const kt_op *op, char letter);
/** The letter of "T=4096" in *letter and its size; a usage error if that is not an axis of the operation with a size.
 */
int kt_op_read_axis(const kt_op *op, const char *word, char *letter, int64_t *size);

extern const kt_function kt_functions[];
extern const size_t kt_n_functions;

#endif
