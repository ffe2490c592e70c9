/* The operations' entry points: each gathers its tensors and takes the common path. An operation that has no row in
 * ops.def has no entry point. */
#include "kiln/kiln.h"
#include "ops/api_call.h"

#define RUN(op, ...)                                                                                                   \
    const DLTensor *const args[] = {__VA_ARGS__};                                                                      \
    return kn_api_run(ctx, KN_OP_ID_##op, args, (int32_t)(sizeof args / sizeof *args), options, stream)

int32_t kiln_load_balance_backward(kiln_context *ctx, const DLTensor *grad_tokens_per_expert,
                                   const DLTensor *grad_expert_mask, const DLTensor *grad_load_balance_loss,
                                   const DLTensor *topk_idx, const DLTensor *expert_mask,
                                   const DLTensor *tokens_per_expert, const DLTensor *training,
                                   const DLTensor *grad_expert_mask_out,
                                   const kiln_load_balance_backward_options *options, void *stream) {
    RUN(load_balance_backward, grad_tokens_per_expert, grad_expert_mask, grad_load_balance_loss, topk_idx, expert_mask,
        tokens_per_expert, training, grad_expert_mask_out);
}

int32_t kiln_gemm(kiln_context *ctx, const DLTensor *a, const DLTensor *b, const DLTensor *d,
                  const kiln_gemm_options *options, void *stream) {
    RUN(gemm, a, b, d);
}

int32_t kiln_grouped_gemm(kiln_context *ctx, const DLTensor *a, const DLTensor *b, const DLTensor *offsets,
                          const DLTensor *d, const kiln_grouped_gemm_options *options, void *stream) {
    RUN(grouped_gemm, a, b, offsets, d);
}

int32_t kiln_expert_mlp_backward(kiln_context *ctx, const DLTensor *grad_output, const DLTensor *token_indices,
                                 const DLTensor *selected_tokens, const DLTensor *w1_output,
                                 const DLTensor *gate_output, const DLTensor *up_output, const DLTensor *gated_output,
                                 const DLTensor *expert_output, const DLTensor *selected_weights,
                                 const DLTensor *w1_weight, const DLTensor *w2_weight, const DLTensor *w3_weight,
                                 const DLTensor *grad_hidden_states, const DLTensor *grad_routing_weights,
                                 const DLTensor *grad_w1_weight, const DLTensor *grad_w2_weight,
                                 const DLTensor *grad_w3_weight, const kiln_expert_mlp_backward_options *options,
                                 void *stream) {
    RUN(expert_mlp_backward, grad_output, token_indices, selected_tokens, w1_output, gate_output, up_output,
        gated_output, expert_output, selected_weights, w1_weight, w2_weight, w3_weight, grad_hidden_states,
        grad_routing_weights, grad_w1_weight, grad_w2_weight, grad_w3_weight);
}

int32_t kiln_moe_layer_backward(kiln_context *ctx, const DLTensor *grad_output, const DLTensor *hidden_states,
                                const DLTensor *router_weight, const DLTensor *e_score_correction_bias,
                                const DLTensor *router_logits, const DLTensor *scores, const DLTensor *topk_indices,
                                const DLTensor *topk_weights, const DLTensor *score_mask,
                                const DLTensor *shared_expert_gate_weight, const DLTensor *shared_expert_up_weight,
                                const DLTensor *shared_expert_down_weight, const DLTensor *shared_gate_output,
                                const DLTensor *shared_up_output, const DLTensor *shared_activated,
                                const DLTensor *grad_topk_weights, const DLTensor *grad_hidden_states,
                                const DLTensor *grad_router_weight, const DLTensor *grad_shared_expert_gate_weight,
                                const DLTensor *grad_shared_expert_up_weight,
                                const DLTensor *grad_shared_expert_down_weight,
                                const kiln_moe_layer_backward_options *options, void *stream) {
    RUN(moe_layer_backward, grad_output, hidden_states, router_weight, e_score_correction_bias, router_logits, scores,
        topk_indices, topk_weights, score_mask, shared_expert_gate_weight, shared_expert_up_weight,
        shared_expert_down_weight, shared_gate_output, shared_up_output, shared_activated, grad_topk_weights,
        grad_hidden_states, grad_router_weight, grad_shared_expert_gate_weight, grad_shared_expert_up_weight,
        grad_shared_expert_down_weight);
}

int32_t kiln_routed_experts_backward(kiln_context *ctx, const DLTensor *grad_output, const DLTensor *hidden_states,
                                     const DLTensor *topk_indices, const DLTensor *expert_offsets,
                                     const DLTensor *topk_weights, const DLTensor *gate_weights,
                                     const DLTensor *up_weights, const DLTensor *down_weights,
                                     const DLTensor *saved_gate, const DLTensor *saved_up,
                                     const DLTensor *grad_hidden_states, const DLTensor *grad_topk_weights,
                                     const DLTensor *grad_gate_weights, const DLTensor *grad_up_weights,
                                     const DLTensor *grad_down_weights,
                                     const kiln_routed_experts_backward_options *options, void *stream) {
    RUN(routed_experts_backward, grad_output, hidden_states, topk_indices, expert_offsets, topk_weights, gate_weights,
        up_weights, down_weights, saved_gate, saved_up, grad_hidden_states, grad_topk_weights, grad_gate_weights,
        grad_up_weights, grad_down_weights);
}

int32_t kiln_router_backward(kiln_context *ctx, const DLTensor *hidden_states, const DLTensor *gate_weight,
                             const DLTensor *router_logits, const DLTensor *routing_probs,
                             const DLTensor *selected_experts, const DLTensor *routing_weights_sum,
                             const DLTensor *grad_routing_weights, const DLTensor *grad_expert_mask,
                             const DLTensor *grad_router_logits, const DLTensor *aux_expert_coefficients,
                             const DLTensor *aux_row, const DLTensor *z_loss_coefficient, const DLTensor *token_mask,
                             const DLTensor *grad_hidden_states, const DLTensor *grad_gate_weight,
                             const DLTensor *grad_gate_bias, const DLTensor *grad_logits,
                             const kiln_router_backward_options *options, void *stream) {
    RUN(router_backward, hidden_states, gate_weight, router_logits, routing_probs, selected_experts,
        routing_weights_sum, grad_routing_weights, grad_expert_mask, grad_router_logits, aux_expert_coefficients,
        aux_row, z_loss_coefficient, token_mask, grad_hidden_states, grad_gate_weight, grad_gate_bias, grad_logits);
}
