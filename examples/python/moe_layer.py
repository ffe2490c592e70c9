# PYTHONPATH=python python3 examples/python/moe_layer.py [cpu|cuda]
"""The shared expert and the sigmoid router of a mixture-of-experts layer, their gradients from one call of Kiln, as a
torch.autograd.Function; on the CPU Kiln's simulator runs it. The program compares with torch's own autograd in float64."""
import sys

import kiln
import torch
import torch.nn.functional as F
from torch.autograd.function import once_differentiable


class MoeLayer(torch.autograd.Function):
    """hidden [T,H], router weight [E,H], selection bias f32 [E], gate and up [I,H], down [H,I], all bf16 or f16 but the bias
    -> output of the shared expert [T,H]; weights f32 [T,K] and experts [T,K] for the routed experts."""

    @staticmethod
    def forward(ctx, hidden, router, bias, gate, up, down, top_k, scale):
        scores = (hidden.float() @ router.float().T).sigmoid()
        experts = (scores + bias).topk(top_k).indices
        top = scores.gather(-1, experts)
        weights = scale * top / (top.sum(-1, keepdim=True) + 1e-20)
        gate_output, up_output = hidden @ gate.T, hidden @ up.T
        activated = F.silu(gate_output) * up_output
        ctx.save_for_backward(hidden, router, scores, experts, weights, gate, up, down, gate_output, up_output, activated)
        ctx.scale = scale
        ctx.mark_non_differentiable(experts)
        return activated @ down.T, weights, experts

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output, grad_weights, _):
        hidden, router, scores, experts, weights, gate, up, down, gate_output, up_output, activated = ctx.saved_tensors
        grads = [torch.empty_like(t) for t in (hidden, router, gate, up, down)]
        kiln.context_for(hidden).moe_layer_backward(
            grad_output=grad_output.contiguous(), hidden_states=hidden, router_weight=router, scores=scores,
            topk_indices=experts, topk_weights=weights, shared_expert_gate_weight=gate, shared_expert_up_weight=up,
            shared_expert_down_weight=down, shared_gate_output=gate_output, shared_up_output=up_output,
            shared_activated=activated, grad_topk_weights=grad_weights.contiguous(), grad_hidden_states=grads[0],
            grad_router_weight=grads[1], grad_shared_expert_gate_weight=grads[2], grad_shared_expert_up_weight=grads[3],
            grad_shared_expert_down_weight=grads[4], routed_scaling_factor=ctx.scale, router_mode="exact")
        return grads[0], grads[1], None, grads[2], grads[3], grads[4], None, None


def main():
    device = sys.argv[1] if len(sys.argv) > 1 else "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    T, H, I, E, K, scale = 40, 128, 64, 16, 4, 2.5

    def leaf(*shape, width=1):
        return (torch.randn(*shape, device=device) / width**0.5).to(torch.bfloat16).requires_grad_()

    names = ("hidden", "router", "gate", "up", "down")
    mine = leaf(T, H), leaf(E, H, width=H), leaf(I, H, width=H), leaf(I, H, width=H), leaf(H, I, width=I)
    bias = torch.randn(E, device=device) / 10
    for_output, for_weights = (torch.randn(T, n, device=device) for n in (H, K))  # the loss
    hidden, router, gate, up, down = mine
    output, weights, experts = MoeLayer.apply(hidden, router, bias, gate, up, down, K, scale)
    ((output * for_output).sum() + (weights * for_weights).sum()).backward()

    exact = [t.detach().double().requires_grad_() for t in mine]
    hidden, router, gate, up, down = exact
    output = (F.silu(hidden @ gate.T) * (hidden @ up.T)) @ down.T
    top = (hidden @ router.T).sigmoid().gather(-1, experts)
    weights = scale * top / (top.sum(-1, keepdim=True) + 1e-20)
    ((output * for_output).sum() + (weights * for_weights).sum()).backward()
    for name, a, b in zip(names, mine, exact):
        error = ((a.grad - b.grad).norm() / b.grad.norm()).item()
        print(f"{name}: relative error {error:.1e}")
        assert error < 1e-2
    print(f"OK: moe_layer on {device}")


if __name__ == "__main__":
    main()
