/* A call as one line of a warm list: what its tensors and options look like, never what they hold.
 *
 *     {"v":1,"op":"load_balance_backward","args":{"grad_expert_mask":{"dtype":"f32","shape":[130,100]},...},
 *      "options":{"top_k":3}}
 *
 * Choices stand there as their names, or as true and false. An argument's "strides" (elements) stand there if they are
 * not compact, its "align" if its address is a multiple of fewer than 128 bytes. Options that have their default are
 * left out. */
#include "ops/api_call.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The shortest decimal that reads back as `v`, in any locale; a string where JSON has no number. */
static void add_f64(kn_buf *out, double v) {
    char text[40];
    if (!isfinite(v)) {
        kn_buf_add(out, isnan(v) ? "\"nan\"" : v > 0 ? "\"inf\"" : "\"-inf\"");
        return;
    }
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v) break;
    }
    for (const char *c = text; *c; c++)
        kn_buf_add_char(out, (*c >= '0' && *c <= '9') || *c == '-' || *c == '+' || *c == 'e' ? *c : '.');
}

static bool is_compact(const kn_tensor *t) {
    int64_t inner = 1;
    for (int d = t->ndim - 1; d >= 0; d--) {
        if (t->shape[d] != 1 && t->stride[d] != inner) return false;
        inner *= t->shape[d];
    }
    return true;
}

static void add_list(kn_buf *out, const char *name, const int64_t *v, int n) {
    kn_buf_addf(out, ",\"%s\":[", name);
    for (int i = 0; i < n; i++) {
        if (i) kn_buf_add_char(out, ',');
        kn_buf_add_i64(out, v[i]);
    }
    kn_buf_add_char(out, ']');
}

static void add_args(kn_buf *out, const kn_call *call) {
    bool first = true;
    kn_buf_add(out, ",\"args\":{");
    for (int i = 0; i < call->n_tensors; i++) {
        const kn_tensor *t = &call->tensor[i];
        if (t->dtype == KN_DTYPE_NONE) continue;
        kn_buf_addf(out, "%s\"%s\":{\"dtype\":\"%s\"", first ? "" : ",", call->op->args[i].name,
                    kn_dtype_name(t->dtype));
        first = false;
        add_list(out, "shape", t->shape, t->ndim);
        if (t->bytes && !is_compact(t)) add_list(out, "strides", t->stride, t->ndim);
        uint64_t align = (uint64_t)1 << __builtin_ctzll((uintptr_t)t->data | 128);
        if (align < 128) kn_buf_addf(out, ",\"align\":%u", (unsigned)align);
        kn_buf_add_char(out, '}');
    }
    kn_buf_add_char(out, '}');
}

/* The name of choice `v`; what no name stands for was refused before. */
static void add_choice(kn_buf *out, const char *choices, int64_t v) {
    while (v-- > 0) choices = strchr(choices, ',') + 1;
    size_t n = strcspn(choices, ",");
    bool truth = strncmp(choices, "true", n) == 0 || strncmp(choices, "false", n) == 0;
    if (!truth) kn_buf_add_char(out, '"');
    kn_buf_add_n(out, choices, n);
    if (!truth) kn_buf_add_char(out, '"');
}

static void add_option(kn_buf *out, const kn_option_info *info, const unsigned char *field, bool *first) {
    int32_t i32 = 0;
    int64_t i64 = 0;
    double f64 = 0;
    const char *text = NULL;
    switch (info->type) {
    case 'i':
        memcpy(&i32, field, sizeof i32);
        i64 = i32;
        break;
    case 'I': memcpy(&i64, field, sizeof i64); break;
    case 'd': memcpy(&f64, field, sizeof f64); break;
    default: memcpy(&text, field, sizeof text);
    }
    if (i64 == 0 && f64 == 0 && !text) return;
    kn_buf_addf(out, "%s\"%s\":", *first ? "" : ",", info->name);
    *first = false;
    if (text)
        kn_buf_add_json(out, text);
    else if (info->type == 'd')
        add_f64(out, f64);
    else if (*info->choices)
        add_choice(out, info->choices, i64);
    else
        kn_buf_add_i64(out, i64);
}

kn_status kn_api_record_line(const kn_api_call *c, kn_buf *out) {
    const kn_op *op = c->call.op;
    bool first = true;
    kn_buf_addf(out, "{\"v\":1,\"op\":\"%s\"", op->name);
    add_args(out, &c->call);
    if (c->problem.accumulate) {
        kn_buf_add(out, ",\"accumulate\":");
        kn_buf_add_u64(out, c->problem.accumulate);
    }
    kn_buf_add(out, ",\"options\":{");
    for (int i = 0; i < op->n_options; i++)
        add_option(out, &op->option[i], c->options.bytes + op->option[i].offset, &first);
    kn_buf_add(out, "}}");
    return kn_buf_status(out);
}
