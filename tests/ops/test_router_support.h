/* What the tests of router_backward share: its arguments, contexts, running one problem. */
#ifndef KN_TESTS_ROUTER_SUPPORT_H
#define KN_TESTS_ROUTER_SUPPORT_H

#include "support/problem_gen.h"
#include "support/problem_run.h"
#include "support/suite.h"

#include <stdio.h>
#include <string.h>

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

static inline uint64_t bit(int arg) {
    return (uint64_t)1 << arg;
}
#define LOSSES (bit(AUX) | bit(AUX_ROW) | bit(Z_LOSS) | bit(ROUTER_LOGITS))
#define OPTIONAL (LOSSES | bit(WEIGHTS_SUM) | bit(GRAD_MASK) | bit(GRAD_LOGITS) | bit(TOKEN_MASK))
#define OUTPUTS (bit(OUT_HIDDEN) | bit(OUT_WEIGHT) | bit(OUT_BIAS) | bit(OUT_LOGITS))

static inline kiln_context *open_context(int32_t shapes, int32_t path) {
    kiln_context_options o = {.struct_size = sizeof o, .cache_dir = "off", .shapes = shapes, .path = path};
    kiln_context *ctx;
    ck_assert_ok(kiln_context_create(NULL, &o, &ctx));
    return ctx;
}

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

static inline void say(const kn_gen_config *c, char *out, size_t cap) {
    const kiln_router_backward_options *o = &c->options.router;
    snprintf(out, cap,
             "T=%lld H=%lld E=%lld K=%lld S=%lld %s, %s -> %s ids %s gap=%d absent=%llx acc=%llx score=%d normalise=%d "
             "after=%d round=%d eps=%g scaling=%g skip=%d seed=%llu",
             (long long)c->tokens, (long long)c->hidden, (long long)c->experts, (long long)c->top_k,
             (long long)c->aux_rows, kn_dtype_name(c->dtype), kn_dtype_name(c->side_dtype), kn_dtype_name(c->out_dtype),
             kn_dtype_name(c->id_dtype), c->gap, (unsigned long long)c->absent,
             (unsigned long long)o->common.accumulate, o->score, o->normalise, o->logits_gradient, o->round_dlogits,
             o->eps, o->scaling, c->skip_percent, (unsigned long long)c->seed);
}

static inline kn_gen *make(const kn_gen_config *c) {
    kn_gen *g;
    ck_assert_ok(kn_gen_make(c, &g));
    return g;
}

/* Run on `ctx` and check every output, and the memory between its rows. */
static inline void run_and_check(kn_gen *g, kiln_context *ctx, const char *what) {
    char text[400];
    kn_status st = kn_gen_reference(g);
    if (st == KN_OK) st = kn_gen_run(g, ctx);
    if (st == KN_OK) st = kn_gen_check(g);
    say(&g->config, text, sizeof text);
    ck_assert_msg(st == KN_OK, "%s %s: %s", what, text, kn_error_message());
}

static inline void run_one(const kn_gen_config *c, kiln_context *ctx, const char *what) {
    kn_gen *g = make(c);
    run_and_check(g, ctx, what);
    kn_gen_free(g);
}

/* Row r of output `arg` of `a` and row s of that of `b` have the same bits. */
static inline void same_row(const kn_gen *a, int64_t r, const kn_gen *b, int64_t s, int arg) {
    const kn_tensor *t = &a->call.tensor[arg], *u = &b->call.tensor[arg];
    size_t size = kn_dtype_size(t->dtype);
    const char *x = (const char *)t->data + (size_t)(r * t->stride[0]) * size;
    const char *y = (const char *)u->data + (size_t)(s * u->stride[0]) * size;
    int64_t columns = t->ndim > 1 ? t->shape[1] : 1;
    char text[400];
    say(&a->config, text, sizeof text);
    ck_assert_msg(memcmp(x, y, size * (size_t)columns) == 0, "%s: other bits in row %lld of %s", text, (long long)r,
                  a->op.args[arg].name);
}

static inline void same_bits(const kn_gen *a, const kn_gen *b) {
    for (int i = OUT_HIDDEN; i < N_ARGS; i++) {
        for (int64_t r = 0; a->args[i] && r < a->call.tensor[i].shape[0]; r++) same_row(a, r, b, r, i);
    }
}

#endif
