# PYTHONPATH=python python3 examples/python/expert_parallel.py [ranks]
"""Expert parallelism: every rank holds some of the tokens and some of the experts. The backward pass gathers the tokens of
all ranks, runs Kiln on the rank's own experts, and sums the ranks' gradients of the tokens with the framework's collective:
NCCL where there are several GPUs, one a rank; else gloo, with Kiln's simulator in every process.
The program compares with the result of one rank that holds everything."""
import os
import sys
import tempfile

import kiln
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

T, H, I, E, K = 16, 128, 64, 8, 4  # T: tokens of one rank


def gather(mine):
    """The rows of all ranks, in the order of the ranks."""
    sent = mine.contiguous().view(torch.uint8)  # gloo knows no bfloat16
    parts = [torch.empty_like(sent) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, sent)
    return torch.cat(parts).view(mine.dtype)


def sum_to_owner(rows):
    """The sum over the ranks, of which this rank keeps the rows of its own tokens."""
    dist.all_reduce(rows)
    return rows.chunk(dist.get_world_size())[dist.get_rank()]


def experts_backward(grad_output, hidden, weights, experts, gate, up, down, first, count):
    """Gradients of tokens and routing weights, as far as they come from experts [first, first + len(gate)) of `count`, in
    f32; gradients of those experts' weights."""
    grad_hidden = torch.empty(hidden.shape, device=hidden.device)
    grad_weights, grad_gate, grad_up, grad_down = (torch.empty_like(t) for t in (weights, gate, up, down))
    kiln.context_for(hidden).routed_experts_backward(
        grad_output=grad_output, hidden_states=hidden, topk_indices=experts, topk_weights=weights, gate_weights=gate,
        up_weights=up, down_weights=down, grad_hidden_states=grad_hidden, grad_topk_weights=grad_weights,
        grad_gate_weights=grad_gate, grad_up_weights=grad_up, grad_down_weights=grad_down, expert_lo=first,
        num_experts=count)
    return grad_hidden, grad_weights, grad_gate, grad_up, grad_down


def parallel_backward(grad_output, hidden, weights, experts, gate, up, down, count):
    """The same on this rank's share of tokens and of experts. Slots of other ranks' experts are skipped and give zeros, so
    that sums over the ranks are whole."""
    first = dist.get_rank() * gate.shape[0]
    everywhere = [gather(t) for t in (grad_output, hidden, weights, experts)]
    grad_hidden, grad_weights, *grad_experts = experts_backward(*everywhere, gate, up, down, first, count)
    return sum_to_owner(grad_hidden), sum_to_owner(grad_weights), *grad_experts


def everything(ranks, device):
    """The whole problem, the same numbers in every process: tokens, then experts."""
    torch.manual_seed(0)
    tokens = (torch.randn(ranks * T, H), torch.randn(ranks * T, H), torch.rand(ranks * T, K),
              torch.rand(ranks * T, E).topk(K).indices)
    experts = (torch.randn(E, I, H) / H**0.5, torch.randn(E, I, H) / H**0.5, torch.randn(E, H, I) / I**0.5)
    to_bf16 = lambda t: t.to(device, torch.bfloat16)
    return ([to_bf16(tokens[0]), to_bf16(tokens[1]), tokens[2].to(device), tokens[3].to(device)],
            [to_bf16(t) for t in experts])


def one_rank(rank, ranks, on_gpu, where):
    device = f"cuda:{rank}" if on_gpu else "cpu"
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if on_gpu else "gloo", init_method=f"file://{where}", rank=rank, world_size=ranks)
    tokens, experts = everything(ranks, device)
    mine = lambda t: t.chunk(ranks)[rank].contiguous()
    got = parallel_backward(*map(mine, tokens), *map(mine, experts), count=E)

    whole = experts_backward(*tokens, *experts, first=0, count=E)
    for name, a, b in zip(("hidden", "weights", "gate", "up", "down"), got, map(mine, whole)):
        error = ((a.double() - b.double()).norm() / b.double().norm()).item()
        same = "the same bits" if torch.equal(a, b) else f"relative error {error:.1e}"
        print(f"rank {rank}, grad_{name} {list(a.shape)}: {same}", flush=True)
        # A token's gradient is summed over ranks, not over slots one by one: f32 rounds it differently.
        assert error < (1e-6 if a.dtype == torch.float32 else 4e-3), name
        assert b.norm() > 0, name
    dist.barrier(**({"device_ids": [rank]} if on_gpu else {}))
    dist.destroy_process_group()


def main():
    gpus = torch.cuda.device_count()
    ranks = int(sys.argv[1]) if len(sys.argv) > 1 else max(r for r in (2, 4, 8) if r <= max(2, gpus))
    if ranks < 1 or E % ranks:
        sys.exit(f"{E} experts cannot be split evenly among {ranks} ranks")
    on_gpu = gpus >= ranks
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(one_rank, (ranks, on_gpu, os.path.join(folder, "meeting_point")), nprocs=ranks)
    print(f"OK: expert_parallel on {ranks} ranks, {'nccl' if on_gpu else 'gloo and the simulator'}")


if __name__ == "__main__":
    main()
