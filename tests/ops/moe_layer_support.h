/* What the tests of moe_layer_backward share: its arguments. */
#ifndef KN_TESTS_MOE_LAYER_SUPPORT_H
#define KN_TESTS_MOE_LAYER_SUPPORT_H

enum {
    GRAD_OUTPUT,
    HIDDEN,
    BIAS = 3,
    LOGITS,
    SCORES,
    TOPK_INDICES,
    TOPK_WEIGHTS,
    SCORE_MASK,
    GATE_OUTPUT = 12,
    UP_OUTPUT,
    ACTIVATED,
    GRAD_TOPK_WEIGHTS,
    OUT_HIDDEN,
    OUT_ROUTER,
    OUT_GATE,
    OUT_UP,
    OUT_DOWN
};

#endif
