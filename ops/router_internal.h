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

/* One plan in the making. */
typedef struct kn_router {
    const kn_problem *p;
    const kn_device_facts *facts;
    const kn_target *target;
    kn_program_builder *builder;
    int64_t tokens, experts, hidden; /* T, E, H */
    bool fused;                      /* both products by the fused kernel */
    bool hidden_out, weight_out, bias_out, logits_out;
    bool fine;        /* dz stays fp32 into the products */
    kn_dtype dz;      /* type of dz in workspace; KN_DTYPE_NONE: nothing needs it */
    int64_t dz_ld;    /* elements from row to row */
    int64_t dz_at;    /* workspace */
    bool rest;        /* what two bf16 parts of an fp32 dz leave over is a third part of the products */
    bool whole;       /* dz before it is rounded is wanted beside it */
    bool parts;       /* the dlogits kernel leaves partial sums of grad_gate_bias */
    int64_t parts_at; /* workspace: [E, parts] */
    int64_t rest_at;  /* workspace, as dz: either of these */
    int64_t rows_at;  /* workspace: hidden_states without masked rows, if there is a mask */
    int64_t rows_ld;
} kn_router;

static inline int64_t kn_router_ceil_div(int64_t a, int64_t b) {
    return a / b + (a % b != 0);
}
/* Whether kernels may start while the one before drains. */
static inline bool kn_router_dependent(const kn_router *r) {
    return r->target->cc >= 90;
}

/* Whether hidden_states must be copied without the masked tokens' rows. */
static inline bool kn_router_masks_rows(const kn_router *r) {
    return r->weight_out && kn_router_has(r->p, KN_ROUTER_TOKEN_MASK);
}

/* Threads that share a token (LANES of lib/router_token.ptxi): a function of E alone. */
int64_t kn_router_lanes(int64_t experts);
/* The parameters and the arguments of lib/router_token.ptxi. */
void kn_router_token_params(const kn_problem *p, kn_params *params);
void kn_router_bind_token(const kn_problem *p, kn_launch_spec *l);

/* The parameters of grad_logits beside them. */
void kn_router_logits_params(const kn_router *r, kn_params *params);

/* Threads of a block of router_dlogits. Before the fused kernel many: the fewer multiprocessors its blocks take, the
 * more are left for the next launch, which begins meanwhile. Else few where that spreads few tokens over more of them.
 */
static inline int64_t kn_router_dlogits_threads(const kn_router *r) {
    if (r->fused) return 512;
    return r->tokens <= 4096 && r->experts <= 1024 ? 64 : 256;
}

/* Partial sums of grad_gate_bias that the dlogits kernel leaves of each expert: one a block. */
static inline int64_t kn_router_bias_parts(const kn_router *r) {
    return kn_router_ceil_div(r->tokens, kn_router_dlogits_threads(r) / kn_router_lanes(r->experts));
}

/* Whether the fused kernel can make both products, and its launch. */
bool kn_router_fused_fits(const kn_router *r);
void kn_router_emit_fused(const kn_router *r);
/* The products and sums over tokens, from dz in workspace. */
void kn_router_emit_dh(const kn_router *r);
void kn_router_emit_dw(const kn_router *r);
void kn_router_emit_bias(const kn_router *r);

#endif
