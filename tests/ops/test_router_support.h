/* What the tests of router_backward share: its arguments, its problems, rows of its outputs. */
#ifndef KN_TESTS_ROUTER_SUPPORT_H
#define KN_TESTS_ROUTER_SUPPORT_H

#include "support/problem_case.h"

enum {
    HIDDEN,
    GATE_WEIGHT,
    ROUTER_LOGITS,
    PROBS,
    SELECTED,
    WEIGHTS_SUM,
    GRAD_WEIGHTS,
    GRAD_MASK,
    GRAD_LOGITS,
    AUX,
    AUX_ROW,
    Z_LOSS,
    TOKEN_MASK,
    OUT_HIDDEN,
    OUT_WEIGHT,
    OUT_BIAS,
    OUT_LOGITS,
    N_ARGS
};

#define LOSSES (bit(AUX) | bit(AUX_ROW) | bit(Z_LOSS) | bit(ROUTER_LOGITS))
#define OPTIONAL (LOSSES | bit(WEIGHTS_SUM) | bit(GRAD_MASK) | bit(GRAD_LOGITS) | bit(TOKEN_MASK))
#define OUTPUTS (bit(OUT_HIDDEN) | bit(OUT_WEIGHT) | bit(OUT_BIAS) | bit(OUT_LOGITS))

/* What the benchmark passes, and all outputs. */
static inline kn_gen_config config_of(int64_t t, int64_t h, int64_t e, int64_t k) {
    kn_gen_config c = kn_gen_defaults("router_backward");
    c.tokens = t;
    c.hidden = h;
    c.experts = e;
    c.top_k = k;
    c.absent = bit(AUX) | bit(AUX_ROW) | bit(Z_LOSS) | bit(TOKEN_MASK);
    return c;
}

/* Row r of output `arg` of `a` and row s of that of `b` have the same bits. */
static inline void same_row(const kn_gen *a, int64_t r, const kn_gen *b, int64_t s, int arg) {
    const kn_tensor *t = &a->call.tensor[arg], *u = &b->call.tensor[arg];
    size_t size = kn_dtype_size(t->dtype);
    const char *x = (const char *)t->data + (size_t)(r * t->stride[0]) * size;
    const char *y = (const char *)u->data + (size_t)(s * u->stride[0]) * size;
    int64_t columns = t->ndim > 1 ? t->shape[1] : 1;
    char text[4096];
    if (memcmp(x, y, size * (size_t)columns) == 0) return;
    ck_abort_msg("other bits in row %lld of %s: %s", (long long)r, a->op.args[arg].name,
                 kn_case_text(a, text, sizeof text));
}

#endif
