/* What the tests of routed_experts_backward share: argument numbers, contexts, one run with its check. */
#ifndef KN_TESTS_OPS_ROUTED_SUPPORT_H
#define KN_TESTS_OPS_ROUTED_SUPPORT_H

#include "kiln/kiln_tools.h"
#include "support/problem_gen.h"
#include "support/problem_run.h"
#include "support/suite.h"

#include <stdio.h>
#include <string.h>

enum {
    GRAD_OUTPUT,
    HIDDEN,
    IDS,
    OFFSETS,
    WEIGHTS,
    GATE,
    UP,
    DOWN,
    SAVED_GATE,
    SAVED_UP,
    OUT_HIDDEN,
    OUT_WEIGHTS,
    OUT_GATE,
    OUT_UP,
    OUT_DOWN,
    N_ARGS
};

static inline uint64_t bit(int arg) {
    return (uint64_t)1 << arg;
}

/* Few tokens, no saved values, all outputs. */
static inline kn_gen_config routed_config(int64_t tokens, int64_t hidden, int64_t inner, int64_t experts,
                                          int64_t top_k) {
    kn_gen_config c = kn_gen_defaults("routed_experts_backward");
    c.tokens = tokens;
    c.hidden = hidden;
    c.inner = inner;
    c.experts = c.local_experts = experts;
    c.top_k = top_k;
    return c;
}

static inline kiln_context *open_context(int32_t shapes, int32_t path) {
    kiln_context_options o = {.struct_size = sizeof o, .cache_dir = "off", .shapes = shapes, .path = path};
    kiln_context *ctx;
    ck_assert_ok(kiln_context_create(NULL, &o, &ctx));
    return ctx;
}

static inline void describe_config(const kn_gen_config *c, char *text, size_t cap) {
    const kiln_routed_experts_backward_options *o = &c->options.routed;
    snprintf(text, cap,
             "T=%lld H=%lld I=%lld E=%lld L=%lld K=%lld %s -> %s ids=%s gap=%d skip=%d skew=%d sorted=%d absent=%llx "
             "acc=%llx math=%d weight_on=%d lo=%lld limit=%g seed=%llu",
             (long long)c->tokens, (long long)c->hidden, (long long)c->inner, (long long)c->experts,
             (long long)c->local_experts, (long long)c->top_k, kn_dtype_name(c->dtype), kn_dtype_name(c->out_dtype),
             kn_dtype_name(c->id_dtype), c->gap, c->skip_percent, c->skew, c->sorted, (unsigned long long)c->absent,
             (unsigned long long)o->common.accumulate, o->math, o->weight_on, (long long)o->expert_lo,
             o->activation.limit, (unsigned long long)c->seed);
}

/* Run g and compare it with the reference. */
static inline void run_and_check(kn_gen *g, kiln_context *ctx, const char *what) {
    char text[512];
    describe_config(&g->config, text, sizeof text);
    ck_assert_ok(kn_gen_reference(g));
    kn_status st = kn_gen_run(g, ctx);
    if (st == KN_OK) st = kn_gen_check(g);
    ck_assert_msg(st == KN_OK, "%s: %s: %s", what, text, kn_error_message());
}

static inline void run_config(const kn_gen_config *c, kiln_context *ctx, const char *what) {
    kn_gen *g;
    ck_assert_ok(kn_gen_make(c, &g));
    run_and_check(g, ctx, what);
    kn_gen_free(g);
}

/* All outputs of two problems of one shape must agree to the bit, the memory between their rows too. */
static inline void same_outputs(const kn_gen *a, const kn_gen *b) {
    for (int i = OUT_HIDDEN; i < N_ARGS; i++) {
        if (!a->args[i]) continue;
        ck_assert_msg(memcmp(a->call.tensor[i].data, b->call.tensor[i].data, a->call.tensor[i].bytes) == 0,
                      "%s differs", a->op.args[i].name);
    }
}

#endif
