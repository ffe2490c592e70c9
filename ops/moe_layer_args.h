/* ops/moe_layer_args: the tensors of moe_layer_backward, in the order of its arguments: for its planner, its reference
 * and its tests. Names without a prefix: for .c files alone. */
#ifndef KN_OPS_MOE_LAYER_ARGS_H
#define KN_OPS_MOE_LAYER_ARGS_H

enum {
    GRAD_OUTPUT,
    HIDDEN,
    ROUTER_WEIGHT,
    CORRECTION_BIAS,
    ROUTER_LOGITS,
    SCORES,
    TOPK_INDICES,
    TOPK_WEIGHTS,
    SCORE_MASK,
    GATE_WEIGHT,
    UP_WEIGHT,
    DOWN_WEIGHT,
    GATE_OUTPUT,
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
