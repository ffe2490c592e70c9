/* What the tests of expert_mlp_backward share: its arguments and its problems. */
#ifndef KN_TESTS_EXPERT_MLP_SUPPORT_H
#define KN_TESTS_EXPERT_MLP_SUPPORT_H

#include "support/problem_case.h"

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

#define ALL_OUTPUTS (bit(OUT_HIDDEN) | bit(OUT_ROUTING) | bit(OUT_W1) | bit(OUT_W2) | bit(OUT_W3))
#define SAVED (bit(GATE_OUTPUT) | bit(GATED_OUTPUT) | bit(EXPERT_OUTPUT))

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

#endif
