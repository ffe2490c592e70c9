# PYTHONPATH=python python3 examples/python/routed_experts.py [cpu|cuda]
"""All routed experts of a mixture-of-experts layer, their gradients from one call of Kiln, as a torch.autograd.Function; on
the CPU Kiln's simulator runs it. The program compares with torch's own autograd in float64."""
import sys

import kiln
import torch
import torch.nn.functional as F
from torch.autograd.function import once_differentiable


def experts_forward(hidden, weights, experts, gate, up, down):
    """The sum over a token's slots of weight * down (silu(gate x) * up x), expert by expert."""
    output = torch.zeros_like(hidden)
    for e in range(gate.shape[0]):
        token, slot = (experts == e).nonzero(as_tuple=True)
        x = hidden[token]
        y = (F.silu(x @ gate[e].T) * (x @ up[e].T)) @ down[e].T
        output = output.index_add(0, token, y * weights[token, slot, None].to(y.dtype))
    return output


class RoutedExperts(torch.autograd.Function):
    """hidden [T,H], weights f32 [T,K], experts [T,K], gate and up [E,I,H], down [E,H,I] -> output [T,H]. f32 or bf16. Saves
    nothing but its inputs: Kiln forms gate x and up x again. math: for f32, "balanced", "accurate" or "fast"."""

    @staticmethod
    def forward(ctx, hidden, weights, experts, gate, up, down, math="balanced"):
        ctx.math = math
        ctx.save_for_backward(hidden, weights, experts, gate, up, down)
        return experts_forward(hidden, weights, experts, gate, up, down)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        hidden, weights, experts, gate, up, down = ctx.saved_tensors
        grads = [torch.empty_like(t) for t in (hidden, weights, gate, up, down)]
        kiln.context_for(hidden).routed_experts_backward(
            grad_output=grad_output.contiguous(), hidden_states=hidden, topk_indices=experts, topk_weights=weights,
            gate_weights=gate, up_weights=up, down_weights=down, grad_hidden_states=grads[0],
            grad_topk_weights=grads[1], grad_gate_weights=grads[2], grad_up_weights=grads[3],
            grad_down_weights=grads[4], math=ctx.math)
        return grads[0], grads[1], None, grads[2], grads[3], grads[4], None


def check(device, dtype, math, bound):
    T, H, I, E, K = 24, 128, 64, 8, 2
    names = ("hidden", "weights", "gate", "up", "down")

    def leaf(*shape, width=1, dtype=dtype):
        return (torch.randn(*shape, device=device) / width**0.5).to(dtype).requires_grad_()

    mine = (leaf(T, H), leaf(T, K, dtype=torch.float32), leaf(E, I, H, width=H), leaf(E, I, H, width=H),
            leaf(E, H, I, width=I))
    experts = torch.rand(T, E, device=device).topk(K).indices
    wanted = torch.randn(T, H, device=device).to(dtype)
    hidden, weights, gate, up, down = mine
    (RoutedExperts.apply(hidden, weights, experts, gate, up, down, math) * wanted).sum().backward()

    exact = [t.detach().double().requires_grad_() for t in mine]
    hidden, weights, gate, up, down = exact
    (experts_forward(hidden, weights, experts, gate, up, down) * wanted).sum().backward()
    for name, a, b in zip(names, mine, exact):
        error = ((a.grad - b.grad).norm() / b.grad.norm()).item()
        print(f"{dtype}, {math}, {name}: relative error {error:.1e}")
        assert error < bound


def main():
    device = sys.argv[1] if len(sys.argv) > 1 else "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    check(device, torch.float32, "balanced", 1e-2)
    check(device, torch.float32, "accurate", 2e-5)
    check(device, torch.bfloat16, "balanced", 1e-2)
    print(f"OK: routed_experts on {device}")


if __name__ == "__main__":
    main()
