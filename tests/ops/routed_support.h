/* What the tests of routed_experts_backward share: argument numbers and problems. */
#ifndef KN_TESTS_OPS_ROUTED_SUPPORT_H
#define KN_TESTS_OPS_ROUTED_SUPPORT_H

#include "kiln/kiln_tools.h"
#include "support/problem_case.h"

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

#endif
