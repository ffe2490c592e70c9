"""The operations, one method each. Names, order, roles and defaults are those of kiln_abi.def (tests/python/test_table.py
holds the two together); what they mean in full: docs/ and include/kiln/kiln.h.

Letters: B, T tokens; H hidden size; I (F) intermediate size; E experts; L experts of this rank; K experts a token."""


class Operations:
    """Methods of Context. All take keyword arguments: tensors, then options, then what follows.

    A tensor is a numpy array, a torch tensor, anything with DLPack, the array interface or its CUDA cousin, or a Python
    buffer; see docs/python.md. The last axis is contiguous, row strides are free. Optional tensors may be left out.
    Outputs are the caller's tensors; one that is left out is not computed.

    accumulate: names of outputs that are added to; the others are overwritten.
    workspace: a tensor of workspace_size() bytes, aligned to 256; needed under CUDA graph capture. None: the context's.
    prepare_only: build and load the kernels, run nothing.
    stream: a CUstream as a number, or a stream of torch, cupy or cuda.core. None: torch's current stream if there are
    torch tensors, else the legacy default stream. Work is asynchronous on a GPU.

    An id of -1 in a tensor of expert ids means no expert; other ids outside the range are skipped and counted in
    Context.device_faults.

    Raises ShapeError, DtypeError, AlignError, DeviceError, OverlapError, WorkspaceError, all of them ArgumentError and
    ValueError, when the library refuses an argument; TypeError or ValueError when a value is no tensor or an option is
    not known; Error for everything else. The text names the argument, what was seen and what was wanted."""

    def load_balance_backward(self, *, grad_tokens_per_expert, grad_expert_mask, grad_load_balance_loss, topk_idx=None,
                              expert_mask=None, tokens_per_expert=None, training, grad_expert_mask_out=None,
                              top_k=0,
                              accumulate=(), workspace=None, prepare_only=False, stream=None):
        """Gradient of the expert mask of a load-balancing loss:
        out = grad_expert_mask + grad_tokens_per_expert + (training ? grad_load_balance_loss / (B K) : 0).

        grad_tokens_per_expert: f32 [E]. Gradient of the tokens an expert got.
        grad_expert_mask: f32 [B,E]. Gradient of the mask from where else it is used.
        grad_load_balance_loss: f32 [1]. Gradient of the loss.
        topk_idx: any [B,K], optional. Only K is used.
        expert_mask: any [B,E], optional. Not read.
        tokens_per_expert: any [E], optional. Not read.
        training: bool [1]. Whether the loss counts; read on the device.
        grad_expert_mask_out: f32 [B,E], out. May be grad_expert_mask.

        top_k: K, when topk_idx is None."""
        self._run("load_balance_backward", locals())

    def router_backward(self, *, hidden_states, gate_weight, router_logits=None, routing_probs, selected_experts,
                        routing_weights_sum=None, grad_routing_weights, grad_expert_mask=None, grad_router_logits=None,
                        aux_expert_coefficients=None, aux_row=None, z_loss_coefficient=None, token_mask=None,
                        grad_hidden_states=None, grad_gate_weight=None, grad_gate_bias=None, grad_logits=None,
                        score="softmax", normalise="sum", logits_gradient="before_softmax", round_dlogits="input",
                        eps=1e-20, scaling=1.0,
                        accumulate=(), workspace=None, prepare_only=False, stream=None):
        """From the gradient of a token's K routing weights to those of the router's input and weight: the scores'
        normalisation, top-k, softmax (or sigmoid, or square root of softplus) and both products.

        hidden_states: bf16,f16,f32 [T,H]. The router's input.
        gate_weight: =hidden_states [E,H]. The router's weight.
        router_logits: bf16,f16,f32 [T,E], optional. Read for the z-loss alone.
        routing_probs: f32 [T,E]. The saved scores.
        selected_experts: int [T,K]. Distinct in a row, or -1.
        routing_weights_sum: f32 [T,1], optional. Sum of the selected scores; recomputed when left out.
        grad_routing_weights: bf16,f16,f32 [T,K]. Gradient of the normalised weights.
        grad_expert_mask: bf16,f16,f32 [E,K,T], optional. Straight-through term; any strides.
        grad_router_logits: bf16,f16,f32 [T,E], optional. Added where logits_gradient says.
        aux_expert_coefficients: f32 [S,E], optional. Gradient of a balance loss, a row for all tokens or one a sequence.
        aux_row: i32 [T], optional. Each token's row of aux_expert_coefficients, when S > 1.
        z_loss_coefficient: f32 [1], optional. Adds 2 c lse(logits) softmax(logits).
        token_mask: bool [T], optional. Tokens with 0 contribute nothing.
        grad_hidden_states: bf16,f16,f32 [T,H], out. Gradient of hidden_states.
        grad_gate_weight: bf16,f16,f32 [E,H], out. Gradient of gate_weight.
        grad_gate_bias: f32 [E], out. Sum of the logits' gradients over the tokens.
        grad_logits: bf16,f16,f32 [T,E], out. The logits' gradient itself.

        score: softmax, sigmoid, sqrtsoftplus, softmax_selected: what routing_probs are.
        normalise: sum, none, sum_eps, sum_clamp: what the selected scores were divided by.
        logits_gradient: before_softmax, after_softmax (the true gradient of the logits).
        round_dlogits: input, f32: what the logits' gradient is rounded to before the products.
        eps: of sum_eps and sum_clamp. scaling: factor of the weights. 0 stands for the default."""
        self._run("router_backward", locals())

    def expert_mlp_backward(self, *, grad_output, token_indices, selected_tokens, w1_output, gate_output=None, up_output,
                            gated_output=None, expert_output=None, selected_weights, w1_weight, w2_weight, w3_weight,
                            grad_hidden_states=None, grad_routing_weights=None, grad_w1_weight=None, grad_w2_weight=None,
                            grad_w3_weight=None,
                            activation_alpha=1.0, activation_limit=0.0, activation_offset=0.0, activation_source=None,
                            unique_indices=True,
                            accumulate=(), workspace=None, prepare_only=False, stream=None):
        """One SwiGLU expert, w2 (silu(w1 x) * w3 x), on the T of B tokens that token_indices selects, its output weighted
        by selected_weights and added to the rows of those tokens.

        grad_output: bf16,f16 [B,H]. Gradient of the layer's output.
        token_indices: int [T]. Rows of the selected tokens.
        selected_tokens: =grad_output [T,H]. Their hidden states.
        w1_output: =grad_output [T,F]. selected_tokens w1^T.
        gate_output: =grad_output [T,F], optional. silu(w1_output).
        up_output: =grad_output [T,F]. selected_tokens w3^T.
        gated_output: =grad_output [T,F], optional. gate_output * up_output.
        expert_output: =grad_output [T,H], optional. gated_output w2^T.
        selected_weights: =grad_output [T]. Routing weights of the selected tokens.
        w1_weight: =grad_output [F,H]. The gate's weight.
        w2_weight: =grad_output [H,F]. The weight downwards.
        w3_weight: =grad_output [F,H]. The weight upwards.
        grad_hidden_states: bf16,f16,f32 [B,H], out. Zero in rows that were not selected.
        grad_routing_weights: bf16,f16,f32 [B], out. Zero in rows that were not selected.
        grad_w1_weight: bf16,f16,f32 [F,H], out. Gradient of w1_weight.
        grad_w2_weight: bf16,f16,f32 [H,F], out. Gradient of w2_weight.
        grad_w3_weight: bf16,f16,f32 [F,H], out. Gradient of w3_weight.

        activation_alpha, activation_limit, activation_offset: with g' = min(g, limit) and u' = clamp(u, -limit, limit)
        the activation is g' sigmoid(alpha g') (u' + offset); limit 0 is none, alpha 0 stands for 1.
        activation_source: one of your own as CUDA C,
        "__device__ void f(float g, float u, float dh, float *h, float *dg, float *du) {...}".
        unique_indices: False if token_indices may repeat; rows that repeat add up in their order."""
        self._run("expert_mlp_backward", locals())

    def moe_layer_backward(self, *, grad_output, hidden_states, router_weight, e_score_correction_bias=None,
                           router_logits=None, scores, topk_indices, topk_weights, score_mask=None,
                           shared_expert_gate_weight, shared_expert_up_weight, shared_expert_down_weight,
                           shared_gate_output, shared_up_output, shared_activated=None, grad_topk_weights=None,
                           grad_hidden_states=None, grad_router_weight=None, grad_shared_expert_gate_weight=None,
                           grad_shared_expert_up_weight=None, grad_shared_expert_down_weight=None,
                           routed_scaling_factor=1.0, norm_topk_prob=True, router_mode="benchmark",
                           accumulate=(), workspace=None, prepare_only=False, stream=None):
        """The shared expert and the sigmoid router of one layer: what both add to the gradient of its input, and the
        gradients of their weights.

        grad_output: bf16,f16 [T,H]. Gradient of the shared expert's output.
        hidden_states: =grad_output [T,H]. The layer's input.
        router_weight: =grad_output [E,H]. The router's weight.
        e_score_correction_bias: any [E], optional. Not read: it only moves the selection.
        router_logits: any [T,E], optional. Not read.
        scores: f32 [T,E]. Sigmoid of the logits.
        topk_indices: int [T,K]. The selected experts, or -1.
        topk_weights: f32 [T,K]. Their weights, scaled.
        score_mask: f32 [T,E], optional. 0 where group-limited routing had masked a score.
        shared_expert_gate_weight: =grad_output [I,H]. The gate's weight.
        shared_expert_up_weight: =grad_output [I,H]. The weight upwards.
        shared_expert_down_weight: =grad_output [H,I]. The weight downwards.
        shared_gate_output: =grad_output [T,I]. hidden_states gate^T.
        shared_up_output: =grad_output [T,I]. hidden_states up^T.
        shared_activated: =grad_output [T,I], optional. silu(shared_gate_output) * shared_up_output.
        grad_topk_weights: f32 [T,K], optional. When left out, the benchmark's stand-in: |grad_output|^2 / K of the token.
        grad_hidden_states: bf16,f16,f32 [T,H], out. Of the shared expert and the router together.
        grad_router_weight: bf16,f16,f32 [E,H], out. Gradient of router_weight.
        grad_shared_expert_gate_weight: bf16,f16,f32 [I,H], out. Gradient of the gate's weight.
        grad_shared_expert_up_weight: bf16,f16,f32 [I,H], out. Gradient of the weight upwards.
        grad_shared_expert_down_weight: bf16,f16,f32 [H,I], out. Gradient of the weight downwards.

        routed_scaling_factor: factor of the weights; 0 stands for 1.
        norm_topk_prob: whether the weights were divided by their sum.
        router_mode: benchmark, exact (the true gradient of the scaled, normalised weights)."""
        self._run("moe_layer_backward", locals())

    def routed_experts_backward(self, *, grad_output, hidden_states, topk_indices=None, expert_offsets=None, topk_weights,
                                gate_weights, up_weights, down_weights, saved_gate=None, saved_up=None,
                                grad_hidden_states=None, grad_topk_weights=None, grad_gate_weights=None,
                                grad_up_weights=None, grad_down_weights=None,
                                activation_alpha=1.0, activation_limit=0.0, activation_offset=0.0,
                                activation_source=None, math="balanced", weight_on="output", expert_lo=0, num_experts=0,
                                accumulate=(), workspace=None, prepare_only=False, stream=None):
        """All routed experts of one layer. Either topk_indices is given, or expert_offsets with rows already sorted by
        expert: then T counts rows, topk_weights is [T] and K = 1.

        grad_output: bf16,f16,f32 [T,H]. Gradient of the layer's output.
        hidden_states: =grad_output [T,H]. The layer's input.
        topk_indices: int [T,K], optional. Each token's experts; -1 for none; other ranks' experts are skipped.
        expert_offsets: int [L+1], optional. Rows [offsets[e], offsets[e+1]) are expert e's.
        topk_weights: f32 [T,K]. Their weights.
        gate_weights: =grad_output [L,I,H]. The gates' weights; any strides of experts and rows.
        up_weights: =grad_output [L,I,H]. The weights upwards; likewise.
        down_weights: =grad_output [L,H,I]. The weights downwards; likewise.
        saved_gate: =grad_output [T,K,I], optional. hidden_states gate^T of each slot; recomputed when left out.
        saved_up: =grad_output [T,K,I], optional. hidden_states up^T of each slot; recomputed when left out.
        grad_hidden_states: bf16,f16,f32 [T,H], out. Summed over a token's slots in their order.
        grad_topk_weights: f32 [T,K], out. 0 for slots without an expert here.
        grad_gate_weights: bf16,f16,f32 [L,I,H], out. Zero for experts without tokens.
        grad_up_weights: bf16,f16,f32 [L,I,H], out. Zero for experts without tokens.
        grad_down_weights: bf16,f16,f32 [L,H,I], out. Zero for experts without tokens.

        activation_alpha, activation_limit, activation_offset, activation_source: as in expert_mlp_backward.
        math: balanced, accurate, fast: how f32 products are formed (docs/numerics.md).
        weight_on: output, input: where topk_weights multiply.
        expert_lo: the weights hold experts [expert_lo, expert_lo + L) (expert parallelism).
        num_experts: E of the whole layer; 0 = expert_lo + L."""
        self._run("routed_experts_backward", locals())

    def gemm(self, *, a, b, d=None,
             math="balanced",
             accumulate=(), workspace=None, prepare_only=False, stream=None):
        """d = a b, accumulated in f32. Either axis of a and b may be the contiguous one.

        a: bf16,f16,f32 [M,K]. Left factor.
        b: =a [K,N]. Right factor.
        d: bf16,f16,f32 [M,N], out. The product.

        math: balanced, accurate, fast: how f32 products are formed."""
        self._run("gemm", locals())

    def grouped_gemm(self, *, a, b, offsets, d=None,
                     math="balanced", ragged="m",
                     accumulate=(), workspace=None, prepare_only=False, stream=None):
        """Products of G groups of rows. ragged m: a [M,K] sorted by group, b [G,K,N], d [M,N]; ragged k: a [M,K] and
        b [K,N] sorted by group along K, d [G,M,N].

        a: bf16,f16,f32 [M,K]. Left factors.
        b: =a [?]. Right factors.
        offsets: int [G+1]. Group g is [offsets[g], offsets[g+1]); on the device.
        d: bf16,f16,f32 [?], out. The products.

        math: balanced, accurate, fast: how f32 products are formed.
        ragged: m, k: the axis that is split."""
        self._run("grouped_gemm", locals())
