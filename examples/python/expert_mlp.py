# PYTHONPATH=python python3 examples/python/expert_mlp.py [cpu|cuda]
"""One SwiGLU expert on some of a batch's tokens, its gradients from Kiln, as a torch.autograd.Function; on the CPU Kiln's
simulator runs it. The program compares with torch's own autograd in float64."""
import sys

import kiln
import torch
import torch.nn.functional as F
from torch.autograd.function import once_differentiable


class ExpertMLP(torch.autograd.Function):
    """hidden [B,H], routing weights [B], distinct rows [T], w1 and w3 [F,H], w2 [H,F], all bf16 or f16 -> output [B,H]:
    routing weight * w2 (silu(w1 x) * w3 x) in the rows that are listed, 0 in the others."""

    @staticmethod
    def forward(ctx, hidden, routing, rows, w1, w2, w3):
        x, chosen = hidden[rows], routing[rows]
        w1_output, up = x @ w1.T, x @ w3.T
        gate = F.silu(w1_output)
        gated = gate * up
        expert_output = gated @ w2.T
        ctx.save_for_backward(rows, x, w1_output, gate, up, gated, expert_output, chosen, w1, w2, w3)
        return torch.zeros_like(hidden).index_copy_(0, rows, expert_output * chosen[:, None])

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        rows, x, w1_output, gate, up, gated, expert_output, chosen, w1, w2, w3 = ctx.saved_tensors
        grad_output = grad_output.contiguous()
        grad_hidden, grad_w1, grad_w2, grad_w3 = (torch.empty_like(t) for t in (grad_output, w1, w2, w3))
        grad_routing = torch.empty_like(grad_output[:, 0], memory_format=torch.contiguous_format)
        kiln.context_for(x).expert_mlp_backward(
            grad_output=grad_output, token_indices=rows, selected_tokens=x, w1_output=w1_output, gate_output=gate,
            up_output=up, gated_output=gated, expert_output=expert_output, selected_weights=chosen, w1_weight=w1,
            w2_weight=w2, w3_weight=w3, grad_hidden_states=grad_hidden, grad_routing_weights=grad_routing,
            grad_w1_weight=grad_w1, grad_w2_weight=grad_w2, grad_w3_weight=grad_w3)
        return grad_hidden, grad_routing, None, grad_w1, grad_w2, grad_w3


def main():
    device = sys.argv[1] if len(sys.argv) > 1 else "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    B, H, I = 48, 128, 64
    rows = torch.randperm(B, device=device)[:20]

    def leaf(*shape, scale=1.0):
        return (scale * torch.randn(*shape, device=device)).to(torch.bfloat16).requires_grad_()

    names = ("hidden", "routing", "w1", "w2", "w3")
    mine = leaf(B, H), leaf(B), leaf(I, H, scale=H**-0.5), leaf(H, I, scale=I**-0.5), leaf(I, H, scale=H**-0.5)
    wanted = torch.randn(B, H, device=device).to(torch.bfloat16)
    hidden, routing, w1, w2, w3 = mine
    (ExpertMLP.apply(hidden, routing, rows, w1, w2, w3) * wanted).sum().backward()

    exact = [t.detach().double().requires_grad_() for t in mine]
    hidden, routing, w1, w2, w3 = exact
    y = (F.silu(hidden[rows] @ w1.T) * (hidden[rows] @ w3.T)) @ w2.T * routing[rows, None]
    (torch.zeros_like(hidden).index_copy(0, rows, y) * wanted).sum().backward()
    for name, a, b in zip(names, mine, exact):
        error = ((a.grad - b.grad).norm() / b.grad.norm()).item()
        print(f"{name}: relative error {error:.1e}")
        assert error < 1e-2
    print(f"OK: expert_mlp on {device}")


if __name__ == "__main__":
    main()
