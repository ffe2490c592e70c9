/* ops/router, inside: what the planner's files share. */
#ifndef KN_OPS_ROUTER_INTERNAL_H
#define KN_OPS_ROUTER_INTERNAL_H

#include "ops/router.h"

/* The tensors, in the order of the arguments. */
enum {
    KN_ROUTER_HIDDEN,
    KN_ROUTER_GATE_WEIGHT,
    KN_ROUTER_LOGITS,
    KN_ROUTER_PROBS,
    KN_ROUTER_SELECTED,
    KN_ROUTER_WEIGHTS_SUM,
    KN_ROUTER_GRAD_WEIGHTS,
    KN_ROUTER_GRAD_MASK,
    KN_ROUTER_GRAD_LOGITS,
    KN_ROUTER_AUX,
    KN_ROUTER_AUX_ROW,
    KN_ROUTER_Z_LOSS,
    KN_ROUTER_TOKEN_MASK,
    KN_ROUTER_OUT_HIDDEN,
    KN_ROUTER_OUT_GATE_WEIGHT,
    KN_ROUTER_OUT_GATE_BIAS,
    KN_ROUTER_OUT_LOGITS
};

/* kn_problem.option[]; the last two as the bits of floats. */
enum {
    KN_ROUTER_SCORE,
    KN_ROUTER_NORMALISE,
    KN_ROUTER_AFTER_SOFTMAX,
    KN_ROUTER_ROUND_F32,
    KN_ROUTER_EPS,
    KN_ROUTER_SCALING
};

static inline bool kn_router_has(const kn_problem *p, int arg) {
    return p->dtype[arg] != KN_DTYPE_NONE;
}
static inline bool kn_router_accumulates(const kn_problem *p, int arg) {
    return p->accumulate >> (arg - KN_ROUTER_OUT_HIDDEN) & 1;
}

/* Threads that share a token (LANES of lib/router_token.ptxi): a function of E alone. */
int64_t kn_router_lanes(int64_t experts);
/* The parameters and the arguments of lib/router_token.ptxi. */
void kn_router_token_params(const kn_problem *p, kn_params *params);
void kn_router_bind_token(const kn_problem *p, kn_launch_spec *l);

#endif
