/* The table of operations: see registry.h. Parsed once, at the first look-up; the rows are the library's own, so a row
 * that does not parse is a bug and stops the program. */
#include "ops/registry.h"

#include "base/thread.h"
#include "kiln/kiln.h"
#include "ops/expert_mlp.h"
#include "ops/load_balance.h"
#include "ops/moe_layer.h"
#include "ops/op_gemm.h"
#include "ops/routed.h"
#include "ops/router.h"

#include <stdlib.h>
#include <string.h>

/* All operations of the interface, those that this library lacks among them: the numbers that sort the rows below. */
enum {
#define KILN_OP(op, problem) TABLE_##op,
#include "kiln/kiln_abi.def"
};

enum { ROLE_in = 'i', ROLE_optional = 'o', ROLE_out = 'w' };
enum { TYPE_i32 = 'i', TYPE_i64 = 'I', TYPE_f64 = 'd', TYPE_str = 's' };

static const struct {
    int op;
    const char *name;
    int problem;
} op_rows[] = {
#define KILN_OP(op, problem) {TABLE_##op, #op, problem},
#include "kiln/kiln_abi.def"
};

static const kn_arg_info arg_infos[] = {
#define KILN_ARG(op, name, role, dtypes, shape, layout) {#name, dtypes, shape, layout, ROLE_##role},
#include "kiln/kiln_abi.def"
};
static const int arg_ops[] = {
#define KILN_ARG(op, name, role, dtypes, shape, layout) TABLE_##op,
#include "kiln/kiln_abi.def"
};

static const kn_option_info option_infos[] = {
#define KILN_OPTION(op, field, type, dflt, choices)                                                                    \
    {#field, dflt, choices, TYPE_##type, (uint32_t)offsetof(kiln_##op##_options, field)},
#include "kiln/kiln_abi.def"
};
static const int option_ops[] = {
#define KILN_OPTION(op, field, type, dflt, choices) TABLE_##op,
#include "kiln/kiln_abi.def"
};

enum { N_ARGS = sizeof arg_ops / sizeof *arg_ops, N_OPTIONS = sizeof option_ops / sizeof *option_ops };

static kn_arg_rule rules[N_ARGS];

static kn_op ops[] = {
#define KN_OP_ROW(op, prefix, axes, aliases)                                                                           \
    {.name = #op,                                                                                                      \
     .index = TABLE_##op,                                                                                              \
     .options_size = (uint32_t)sizeof(kiln_##op##_options),                                                            \
     .describe = kn_##prefix##_describe,                                                                               \
     .plan = kn_##prefix##_plan,                                                                                       \
     .reference = kn_##prefix##_reference,                                                                             \
     .token_axes = (axes),                                                                                             \
     .may_alias = (aliases)},
#include "ops/ops.def"
#undef KN_OP_ROW
};

static void must(bool ok) {
    if (!ok) abort();
}

/* The next name of a ','-separated list: its length; *text moves behind it. */
static size_t next_name(const char **text, const char **name) {
    *name = *text;
    size_t n = strcspn(*text, ",");
    *text += n + ((*text)[n] == ',');
    return n;
}

static uint32_t parse_dtypes(const char *text) {
    static const struct {
        const char *name;
        uint32_t mask;
    } names[] = {
        {"f32", 1u << KN_F32},
        {"bf16", 1u << KN_BF16},
        {"f16", 1u << KN_F16},
        {"int", 1u << KN_I32 | 1u << KN_I64},
        {"i32", 1u << KN_I32},
        {"bool", 1u << KN_BOOL | 1u << KN_U8},
        {"any", ((1u << KN_DTYPE_COUNT) - 1) & ~1u},
    };
    uint32_t mask = 0;
    while (*text) {
        const char *name;
        size_t n = next_name(&text, &name), i = 0;
        while (i < sizeof names / sizeof *names && (strlen(names[i].name) != n || memcmp(names[i].name, name, n) != 0))
            i++;
        must(i < sizeof names / sizeof *names);
        mask |= names[i].mask;
    }
    must(mask != 0);
    return mask;
}

static void parse_shape(const char *text, kn_arg_rule *rule) {
    if (strcmp(text, "?") == 0) {
        rule->ndim = -1;
        return;
    }
    while (*text) {
        const char *name;
        size_t n = next_name(&text, &name);
        must(rule->ndim < 5 && n > 0);
        kn_axis_rule *axis = &rule->axis[rule->ndim++];
        if (name[0] >= 'A' && name[0] <= 'Z') {
            axis->letter = name[0];
            must(n == 1 || (n == 3 && name[1] == '+' && name[2] >= '0' && name[2] <= '9'));
            axis->add = n == 3 ? name[2] - '0' : 0;
        } else {
            must(n == 1 && name[0] >= '0' && name[0] <= '9');
            axis->add = name[0] - '0';
        }
    }
}

static int parse_layout(const char *text) {
    if (strcmp(text, "rows") == 0) return KN_LAYOUT_ROWS;
    if (strcmp(text, "either") == 0) return KN_LAYOUT_COLS;
    must(strcmp(text, "any") == 0);
    return KN_LAYOUT_ANY;
}

static void parse_arg(const kn_op *op, int i) {
    const kn_arg_info *info = &op->args[i];
    kn_arg_rule *rule = &rules[info - arg_infos];
    rule->same_as = -1;
    if (info->dtypes[0] == '=') {
        for (int j = 0; j < i; j++)
            if (strcmp(op->args[j].name, info->dtypes + 1) == 0) rule->same_as = (int8_t)j;
        must(rule->same_as >= 0);
        rule->dtypes = op->rules[rule->same_as].dtypes;
    } else {
        rule->dtypes = parse_dtypes(info->dtypes);
    }
    parse_shape(info->shape, rule);
    rule->layout = (int8_t)parse_layout(info->layout);
}

static void fill_op(kn_op *op, int index) {
    int table = op->index; /* TABLE_ number until here */
    must(op->options_size <= KN_OPTIONS_CAP);
    op->index = index;
    op->problem_number = op_rows[table].problem;
    int first = 0;
    while (first < N_ARGS && arg_ops[first] != table) first++;
    while (first + op->n_args < N_ARGS && arg_ops[first + op->n_args] == table) op->n_args++;
    must(op->n_args > 0 && op->n_args <= KN_MAX_TENSORS);
    op->args = arg_infos + first;
    op->rules = rules + first;
    for (int i = 0; i < op->n_args; i++) {
        parse_arg(op, i);
        op->n_outputs += op->args[i].role == ROLE_out;
        must(op->n_outputs == 0 || op->args[i].role == ROLE_out);
    }
    first = 0;
    while (first < N_OPTIONS && option_ops[first] != table) first++;
    while (first + op->n_options < N_OPTIONS && option_ops[first + op->n_options] == table) op->n_options++;
    op->option = option_infos + first;
}

static void fill(void) {
    for (int i = 0; i < KN_OP_COUNT; i++) fill_op(&ops[i], i);
}

const kn_op *kn_op_at(int i) {
    static kn_once once = KN_ONCE_INIT;
    kn_call_once(&once, fill);
    return i >= 0 && i < KN_OP_COUNT ? &ops[i] : NULL;
}

const kn_op *kn_op_find(const char *name) {
    for (int i = 0; name && i < KN_OP_COUNT; i++)
        if (strcmp(kn_op_at(i)->name, name) == 0) return kn_op_at(i);
    return NULL;
}

void kn_dtypes_write(uint32_t mask, char *out, size_t cap) {
    size_t len = 0;
    out[0] = '\0';
    for (int t = 1; t < KN_DTYPE_COUNT; t++) {
        if (!(mask >> t & 1)) continue;
        const char *name = kn_dtype_name((kn_dtype)t);
        size_t n = strlen(name);
        if (len + n + 3 > cap) return;
        if (len) {
            memcpy(out + len, ", ", 2);
            len += 2;
        }
        memcpy(out + len, name, n + 1);
        len += n;
    }
}
