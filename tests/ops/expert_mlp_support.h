/* What the tests of expert_mlp_backward share: its arguments, contexts, running one problem. */
#ifndef KN_TESTS_EXPERT_MLP_SUPPORT_H
#define KN_TESTS_EXPERT_MLP_SUPPORT_H

#include "support/problem_gen.h"
#include "support/problem_run.h"
#include "support/suite.h"

#include <stdio.h>
#include <string.h>

enum {
    GRAD_OUTPUT,
    TOKEN_INDICES,
    SELECTED_TOKENS,
    W1_OUTPUT,
    GATE_OUTPUT,
    UP_OUTPUT,
    GATED_OUTPUT,
    EXPERT_OUTPUT,
    SELECTED_WEIGHTS,
    W1,
    W2,
    W3,
    OUT_HIDDEN,
    OUT_ROUTING,
    OUT_W1,
    OUT_W2,
    OUT_W3,
    N_ARGS
};

static inline uint64_t bit(int arg) {
    return (uint64_t)1 << arg;
}
#define ALL_OUTPUTS (bit(OUT_HIDDEN) | bit(OUT_ROUTING) | bit(OUT_W1) | bit(OUT_W2) | bit(OUT_W3))
#define SAVED (bit(GATE_OUTPUT) | bit(GATED_OUTPUT) | bit(EXPERT_OUTPUT))

static inline kiln_context *open_context(int32_t shapes, int32_t path) {
    kiln_context_options o = {.struct_size = sizeof o, .cache_dir = "off", .shapes = shapes, .path = path};
    kiln_context *ctx;
    ck_assert_ok(kiln_context_create(NULL, &o, &ctx));
    return ctx;
}

/* A problem of B, T, H, F with all saved tensors and all outputs. */
static inline kn_gen_config config_of(int64_t b, int64_t t, int64_t h, int64_t f) {
    kn_gen_config c = kn_gen_defaults("expert_mlp_backward");
    c.batch = b;
    c.tokens = t;
    c.hidden = h;
    c.inner = f;
    c.absent = 0;
    return c;
}

static inline void say(const kn_gen_config *c, char *out, size_t cap) {
    const kiln_expert_mlp_backward_options *o = &c->options.expert_mlp;
    snprintf(out, cap,
             "B=%lld T=%lld H=%lld F=%lld %s -> %s ids %s gap=%d absent=%llx acc=%llx repeated=%d act=%g,%g,%g skip=%d "
             "seed=%llu",
             (long long)c->batch, (long long)c->tokens, (long long)c->hidden, (long long)c->inner,
             kn_dtype_name(c->dtype), kn_dtype_name(c->out_dtype), kn_dtype_name(c->id_dtype), c->gap,
             (unsigned long long)c->absent, (unsigned long long)o->common.accumulate, o->unique_indices == KILN_FALSE,
             o->activation.alpha, o->activation.limit, o->activation.offset, c->skip_percent,
             (unsigned long long)c->seed);
}

static inline kn_gen *make(const kn_gen_config *c) {
    kn_gen *g;
    ck_assert_ok(kn_gen_make(c, &g));
    return g;
}

/* Run on `ctx` and check every output, and the memory between its rows. */
static inline void run_and_check(kn_gen *g, kiln_context *ctx, const char *what) {
    char text[300];
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

static inline void same_bits(const kn_gen *a, const kn_gen *b) {
    char text[300];
    say(&a->config, text, sizeof text);
    for (int i = OUT_HIDDEN; i < N_ARGS; i++) {
        if (!a->args[i]) continue;
        const kn_tensor *t = &a->call.tensor[i], *u = &b->call.tensor[i];
        ck_assert_uint_eq(t->bytes, u->bytes);
        ck_assert_msg(t->bytes == 0 || memcmp(t->data, u->data, t->bytes) == 0, "%s: other bits in %s", text,
                      a->op.args[i].name);
    }
}

#endif
