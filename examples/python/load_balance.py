# PYTHONPATH=python python3 examples/python/load_balance.py [cpu|cuda]
"""A load-balancing loss whose gradient comes from Kiln, as a torch.autograd.Function; on the CPU Kiln's simulator runs it.
The program compares with torch's own autograd in float64."""
import sys

import kiln
import torch
from torch.autograd.function import once_differentiable


class LoadBalance(torch.autograd.Function):
    """expert_mask f32 [B,E], a token's share of each expert -> the mask, tokens an expert got [E], loss []."""

    @staticmethod
    def forward(ctx, expert_mask, top_k):
        ctx.top_k = top_k
        return expert_mask.view_as(expert_mask), expert_mask.sum(0), expert_mask.sum() / (expert_mask.shape[0] * top_k)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_mask, grad_tokens, grad_loss):
        out = torch.empty(grad_mask.shape, device=grad_mask.device)
        training = torch.ones(1, dtype=torch.bool, device=grad_mask.device)
        kiln.context_for(out).load_balance_backward(
            grad_tokens_per_expert=grad_tokens.contiguous(), grad_expert_mask=grad_mask.contiguous(),
            grad_load_balance_loss=grad_loss.reshape(1), training=training, grad_expert_mask_out=out, top_k=ctx.top_k)
        return out, None


def main():
    device = sys.argv[1] if len(sys.argv) > 1 else "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    B, E, K = 50, 16, 4
    expert_mask = torch.rand(B, E, device=device, requires_grad=True)
    weights, counts = torch.randn(B, E, device=device), torch.randn(E, device=device)

    mask, tokens, loss = LoadBalance.apply(expert_mask, K)
    ((mask * weights).sum() + (tokens * counts).sum() + 3 * loss).backward()

    exact = expert_mask.detach().double().requires_grad_()
    ((exact * weights).sum() + (exact.sum(0) * counts).sum() + 3 * exact.sum() / (B * K)).backward()
    error = ((expert_mask.grad - exact.grad).norm() / exact.grad.norm()).item()
    print(f"expert_mask: relative error {error:.1e}")
    assert error < 1e-6
    print(f"OK: load_balance on {device}")


if __name__ == "__main__":
    main()
