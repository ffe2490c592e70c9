/* ops/registry: the operations as a table, made from include/kiln/kiln_abi.def (arguments, options) and ops/ops.def
 * (planner, reference). kn_op_find and kn_op_at of jit/program.h are implemented here. */
#ifndef KN_OPS_REGISTRY_H
#define KN_OPS_REGISTRY_H

#include "jit/program.h"

enum { KN_OPTIONS_CAP = 256 }; /* bytes of the largest option struct */

/* kn_op.index by name: KN_OP_ID_load_balance_backward and so on, in the order of ops.def. */
typedef enum kn_op_id {
#define KN_OP_ROW(op, prefix, token_axes, aliases) KN_OP_ID_##op,
#include "ops/ops.def"
#undef KN_OP_ROW
    KN_OP_COUNT
} kn_op_id;

/* One axis of an argument's shape: a letter (its size plus `add`), or a number. */
typedef struct kn_axis_rule {
    char letter; /* 0: a number */
    int64_t add; /* "L+1": 1; the number itself without a letter */
} kn_axis_rule;

/* An argument's row of the table, parsed. */
typedef struct kn_arg_rule {
    uint32_t dtypes; /* bit mask by kn_dtype */
    int8_t same_as;  /* '=name': index of that argument, else -1 */
    int8_t ndim;     /* -1: free ("?") */
    int8_t layout; /* KN_LAYOUT_ROWS: last axis contiguous; KN_LAYOUT_COLS: one of the last two; KN_LAYOUT_ANY: free */
    kn_axis_rule axis[5];
} kn_arg_rule;

/** "f32, bf16" for a mask of dtypes. */
void kn_dtypes_write(uint32_t mask, char *out, size_t cap);

#endif
