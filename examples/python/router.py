# PYTHONPATH=python python3 examples/python/router.py [cpu|cuda]
"""A softmax or sigmoid top-k router whose gradients come from Kiln, as a torch.autograd.Function; on the CPU Kiln's
simulator runs it. The program compares with torch's own autograd in float64."""
import sys

import kiln
import torch
from torch.autograd.function import once_differentiable


class Router(torch.autograd.Function):
    """hidden [T,H], weight [E,H] -> routing weights f32 [T,K] that add up to 1, their experts [T,K], logits f32 [T,E]."""

    @staticmethod
    def forward(ctx, hidden, weight, top_k, score):
        logits = hidden.float() @ weight.float().T
        scores = logits.softmax(-1) if score == "softmax" else logits.sigmoid()
        top, experts = scores.topk(top_k)
        total = top.sum(-1, keepdim=True)
        ctx.save_for_backward(hidden, weight, scores, experts, total)
        ctx.score = score
        ctx.mark_non_differentiable(experts)
        return top / total, experts, logits

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_weights, _, grad_logits):
        hidden, weight, scores, experts, total = ctx.saved_tensors
        grad_hidden = torch.empty_like(hidden) if ctx.needs_input_grad[0] else None  # None is not computed
        grad_weight = torch.empty_like(weight) if ctx.needs_input_grad[1] else None
        kiln.context_for(hidden).router_backward(
            hidden_states=hidden, gate_weight=weight, routing_probs=scores, selected_experts=experts,
            routing_weights_sum=total, grad_routing_weights=grad_weights.contiguous(),
            grad_router_logits=grad_logits.contiguous(), logits_gradient="after_softmax", score=ctx.score,
            grad_hidden_states=grad_hidden, grad_gate_weight=grad_weight)
        return grad_hidden, grad_weight, None, None


def check(device, dtype, score, bound):
    T, H, E, K = 40, 128, 16, 4
    hidden = torch.randn(T, H, device=device).to(dtype).requires_grad_()
    weight = (torch.randn(E, H, device=device) / H**0.5).to(dtype).requires_grad_()
    wanted = torch.randn(T, K, device=device)  # the loss: any function of weights and logits

    weights, experts, logits = Router.apply(hidden, weight, K, score)
    ((weights * wanted).sum() + 1e-2 * (logits**2).sum()).backward()

    x, w = (t.detach().double().requires_grad_() for t in (hidden, weight))
    logits = x @ w.T
    top = (logits.softmax(-1) if score == "softmax" else logits.sigmoid()).gather(-1, experts)
    ((top / top.sum(-1, keepdim=True) * wanted).sum() + 1e-2 * (logits**2).sum()).backward()
    for name, got, exact in (("hidden", hidden.grad, x.grad), ("weight", weight.grad, w.grad)):
        error = ((got - exact).norm() / exact.norm()).item()
        print(f"{score}, {dtype}, {name}: relative error {error:.1e}")
        assert error < bound


def main():
    device = sys.argv[1] if len(sys.argv) > 1 else "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    for score in ("softmax", "sigmoid"):
        check(device, torch.float32, score, 1e-5)
        check(device, torch.bfloat16, score, 1e-2)
    print(f"OK: router on {device}")


if __name__ == "__main__":
    main()
