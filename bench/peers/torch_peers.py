#!/usr/bin/env python3
"""What a PyTorch user gets for the five operations on this GPU: eager, compiled, composed of cuBLAS products; each also
replayed from a CUDA graph. Needs PyTorch with CUDA. Where the Python package `kiln` can be imported, Kiln is timed in the
same run by the same clock.

    torch_peers.py [-o FILE] [--jobs N] [--graphs] [PART,PART...]
    parts: ceilings load_balance router expert_mlp moe_layer routed_experts routed_bf16

With --jobs N, N other processes first compile what torch.compile will be asked for, each a share of the cases, and this one
finds the results in PyTorch's cache; it alone takes times, when they are done. --graphs leaves out calls without a graph.
The cases are those of bench/cases/seeds.json. A time is the median over calls of the span from the first kernel's start to
the last kernel's end (PyTorch's profiler, that is CUPTI), with the L2 written over before every call; events_us is the same
by CUDA events around the call. FILE holds one JSON object in the form that bench/report reads.
"""
import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import time

os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # a case has one or two kernels
import torch  # noqa: E402
import torch._dynamo  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch.profiler import ProfilerActivity, profile  # noqa: E402

try:
    import kiln
except ImportError:
    kiln = None

torch._dynamo.config.recompile_limit = 64
torch.manual_seed(0)
DEV = "cuda"
L2_OVERWRITE = torch.empty(256 << 20, dtype=torch.int8, device=DEV)
HERE = os.path.dirname(os.path.abspath(__file__))
ROWS, CEILINGS = [], {}
WAYS = ["+graph", ""]  # from a graph; call by call
PENDING = []           # what a case has reported and measure() will time
SHARE = None           # (i, n): only compile, cases i, i + n, ...


# ---- timing ---------------------------------------------------------------------------------------------------------

def events_us(fn, n):
    pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(n)]
    for start, stop in pairs:
        L2_OVERWRITE.zero_()
        start.record()
        fn()
        stop.record()
    torch.cuda.synchronize()
    return statistics.median(a.elapsed_time(b) * 1e3 for a, b in pairs)


def spans_us(runs):
    """Median span and number of kernels a call, of each (fn, n). One profile takes all: beginning one costs more than calls.
    A sleep kernel marks the calls; the write to the L2 follows it."""
    with profile(activities=[ProfilerActivity.CUDA]) as p:
        for fn, n in runs:
            for _ in range(n):
                torch.cuda._sleep(20000)
                L2_OVERWRITE.zero_()
                fn()
                torch.cuda.synchronize()
    kernels = sorted((e.start_ns(), e.start_ns() + e.duration_ns(), e.name())
                     for e in p.profiler.kineto_results.events() if str(e.device_type()).endswith("CUDA"))
    calls = []
    for start, end, name in kernels:
        if "spin" in name:
            calls.append([])
        elif calls:
            calls[-1].append((start, end))
    if len(calls) != sum(n for _, n in runs):
        raise RuntimeError(f"the profile has {len(calls)} of {sum(n for _, n in runs)} calls")
    results = []
    for _, n in runs:
        mine, calls = [c[1:] for c in calls[:n] if len(c) > 1], calls[n:]
        results.append((statistics.median((max(end for _, end in c) - c[0][0]) / 1e3 for c in mine),
                        statistics.median(len(c) for c in mine)))
    return results


def add_row(**row):
    print(json.dumps(row), flush=True)
    ROWS.append(row)


def captured(fn):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            fn()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        fn()
    return graph


def report(group, name, peer, fn, n=20, warm_up=5):
    """To be timed by measure(): from a graph, then call by call."""
    PENDING.append((group, name, peer, fn, n, warm_up))


def measure():
    """Time what was reported. What a peer cannot do is a row with the reason."""
    runs, rows = [], []
    for group, name, peer, fn, n, warm_up in PENDING:
        if SHARE:
            if "compile" in peer:
                fn()
            continue
        for way in WAYS:
            row = dict(group=group, name=name, peer=peer + way)
            try:
                run = captured(fn).replay if way else fn
                for _ in range(warm_up):
                    run()
                torch.cuda.synchronize()
                row["events_us"] = round(events_us(run, n), 2)
            except Exception as e:  # noqa: BLE001: a peer that fails must not end the others
                add_row(**row, error=repr(e)[:200])
                continue
            runs.append((run, n))
            rows.append(row)
    for row, (us, kernels) in zip(rows, spans_us(runs) if runs else []):
        add_row(**row, us=round(us, 2), kernels=kernels)
    PENDING.clear()


def report_kiln(op, name, **arguments):
    """Kiln on the same tensors; the outputs among the arguments are new ones."""
    if kiln is None or SHARE:
        return
    ctx = kiln.context_for(next(t for t in arguments.values() if torch.is_tensor(t)))
    # A captured call brings its workspace.
    workspace = torch.empty(max(ctx.workspace_size(op, **arguments), 1), dtype=torch.uint8, device=DEV)
    call = getattr(ctx, op)
    report(op, name, "kiln", lambda: call(**arguments, workspace=workspace))


# ---- cases ----------------------------------------------------------------------------------------------------------

def cases_of(op):
    """(name as `kiln bench` writes it, sizes) of every case. What is reported of one is timed before the next."""
    with open(os.path.join(HERE, "..", "cases", "seeds.json")) as f:
        group = next(g for g in json.load(f)["groups"] if g["op"] == op)
    cases = group["cases"][SHARE[0]::SHARE[1]] if SHARE else group["cases"]
    for row in cases:
        yield " ".join(f"{k}={v}" for k, v in row.items()), {**group["axes"], **row}
        measure()


def normal(*shape, scale=1.0, dtype=torch.bfloat16):
    return (torch.randn(*shape, device=DEV) * scale).to(dtype)


def dsilu(x):
    s = torch.sigmoid(x)
    return s * (1 + x * (1 - s))


def dynamic_false(fn):
    return torch.compile(fn, dynamic=False)


# ---- the operations -------------------------------------------------------------------------------------------------

def ceilings():
    n = 1 << 32
    a = torch.empty(n, dtype=torch.int8, device=DEV)
    b = torch.empty_like(a)
    a.random_(0, 100)
    CEILINGS["copy_bytes_per_s"] = 2e6 * n / spans_us([(lambda: b.copy_(a), 10)])[0][0]
    CEILINGS["write_bytes_per_s"] = 1e6 * n / spans_us([(lambda: b.zero_(), 10)])[0][0]
    floats = a.view(torch.float32).normal_()
    CEILINGS["read_bytes_per_s"] = 1e6 * n / spans_us([(lambda: floats.sum(), 10)])[0][0]
    x, y = normal(8192, 8192), normal(8192, 8192)
    CEILINGS["bf16_8192_flops"] = 2e6 * 8192**3 / spans_us([(lambda: x @ y, 15)])[0][0]
    print(json.dumps(CEILINGS), flush=True)


def load_balance():
    def formula(gm, gt, gl, training, k):
        return gm + (gt + gl * training / (gm.shape[0] * k)).unsqueeze(0)
    compiled = dynamic_false(formula)
    for name, s in cases_of("load_balance_backward"):
        gm = torch.randn(s["B"], s["E"], device=DEV)
        gt, gl = torch.randn(s["E"], device=DEV), torch.randn(1, device=DEV)
        training = torch.tensor([True], device=DEV)
        report("load_balance_backward", name, "torch_eager", lambda: formula(gm, gt, gl, training, s["K"]))
        report("load_balance_backward", name, "torch_compile", lambda: compiled(gm, gt, gl, training, s["K"]))
        report_kiln("load_balance_backward", name, grad_tokens_per_expert=gt, grad_expert_mask=gm,
                    grad_load_balance_loss=gl, training=training, grad_expert_mask_out=torch.empty_like(gm), top_k=s["K"])


def router_dlogits(p, sel, total, gw, gm, gl):
    g, w = gw.float(), p.gather(1, sel)
    gun = (g - (g * w / total).sum(-1, keepdim=True)) / total
    slots, tokens = torch.arange(sel.shape[1], device=p.device), torch.arange(p.shape[0], device=p.device)
    straight = gm[sel, slots[None, :], tokens[:, None]].float()
    grad = torch.zeros_like(p).scatter_add_(1, sel, gun + straight) + gl.float()
    return (p * (grad - (grad * p).sum(1, keepdim=True))).to(torch.bfloat16)


def router():
    def formula(h, weight, *rest):
        d = router_dlogits(*rest)
        return d @ weight, d.t() @ h
    for name, s in cases_of("router_backward"):
        t, e, k, hidden = s["T"], s["E"], s["K"], s["H"]
        weight, h = normal(e, hidden, scale=.02), normal(t, hidden)
        p = torch.randn(t, e, device=DEV).softmax(1)
        w, sel = p.topk(k, -1)
        rest = (p, sel, w.sum(-1, keepdim=True), normal(t, k, scale=.1), normal(e, k, t, scale=.01),
                normal(t, e, scale=.1))
        report("router_backward", name, "torch_eager", lambda: formula(h, weight, *rest))
        compiled = dynamic_false(formula)
        report("router_backward", name, "torch_compile", lambda: compiled(h, weight, *rest))
        report_kiln("router_backward", name, hidden_states=h, gate_weight=weight, routing_probs=p, selected_experts=sel,
                    routing_weights_sum=rest[2], grad_routing_weights=rest[3], grad_expert_mask=rest[4],
                    grad_router_logits=rest[5], grad_hidden_states=torch.empty_like(h),
                    grad_gate_weight=torch.empty_like(weight))
        d = router_dlogits(*rest)
        report("router_backward", name, "cublas_products_alone", lambda: (d @ weight, d.t() @ h))


def expert_mlp():
    def before(go, idx, eo, sw):
        g = go[idx].float()
        return (g * sw.float()[:, None]).bfloat16(), (g * eo.float()).sum(-1).bfloat16()

    def middle(dg, u, g, x):
        d = dg.float()
        return (d * u.float() * dsilu(x.float())).bfloat16(), (d * g.float()).bfloat16()

    def formula(go, idx, x, w1o, g, u, gated, eo, sw, w1, w2, w3, before_, middle_):
        d, dr = before_(go, idx, eo, sw)
        gw2, dg = d.t() @ gated, d @ w2
        d1, d3 = middle_(dg, u, g, w1o)
        gw3, gw1 = d3.t() @ x, d1.t() @ x
        dx = torch.addmm(d3 @ w3, d1, w1)
        gh, gr = torch.zeros_like(go), torch.zeros(go.shape[0], device=DEV, dtype=go.dtype)
        gh[idx], gr[idx] = dx, dr
        return gh, gr, gw1, gw2, gw3
    glue = dynamic_false(before), dynamic_false(middle)
    for name, s in cases_of("expert_mlp_backward"):
        b, t, hidden, inner = s["B"], s["T"], s["H"], s["F"]
        w1, w2, w3 = (normal(*shape, scale=.02) for shape in ((inner, hidden), (hidden, inner), (inner, hidden)))
        idx = torch.randperm(b, device=DEV)[:t].sort().values
        w1o, u = normal(t, inner), normal(t, inner)
        g = F.silu(w1o.float()).bfloat16()
        args = (normal(b, hidden), idx, normal(t, hidden), w1o, g, u, g * u, normal(t, hidden),
                torch.rand(t, device=DEV).bfloat16(), w1, w2, w3)
        report("expert_mlp_backward", name, "torch_eager", lambda: formula(*args, before, middle), n=10)
        report("expert_mlp_backward", name, "torch_compiled_glue", lambda: formula(*args, *glue), n=10)
        go, _, x, w1o, g, u, gated, eo, sw = args[:9]
        report_kiln("expert_mlp_backward", name, grad_output=go, token_indices=idx, selected_tokens=x, w1_output=w1o,
                    gate_output=g, up_output=u, gated_output=gated, expert_output=eo, selected_weights=sw, w1_weight=w1,
                    w2_weight=w2, w3_weight=w3, grad_hidden_states=torch.empty_like(go),
                    grad_routing_weights=torch.empty_like(go[:, 0]), grad_w1_weight=torch.empty_like(w1),
                    grad_w2_weight=torch.empty_like(w2), grad_w3_weight=torch.empty_like(w3))


def moe_layer():
    def middle(da, g, u):
        d, gf = da.float(), g.float()
        return (d * u.float() * dsilu(gf)).bfloat16(), (d * F.silu(gf)).bfloat16()

    def route(go, scores, ids, tw):
        gw = (go.float()**2).sum(-1, keepdim=True).expand_as(tw) / tw.shape[1]
        total = tw.sum(-1, keepdim=True) + 1e-20
        grad = (gw - (gw * tw).sum(-1, keepdim=True) / total) / total
        return torch.zeros_like(scores).scatter_add_(1, ids, grad) * scores * (1 - scores)

    def formula(go, h, scores, ids, tw, g, u, a, rw, wg, wu, wd, middle_, route_):
        da, gwd = go @ wd, go.t() @ a
        dg, du = middle_(da, g, u)
        gwu, gwg = du.t() @ h, dg.t() @ h
        dl = route_(go, scores, ids, tw).bfloat16()
        gh = torch.addmm(torch.addmm(du @ wu, dg, wg), dl, rw)
        return gh, (dl.t() @ h).float(), gwg, gwu, gwd
    glue = dynamic_false(middle), dynamic_false(route)
    for name, s in cases_of("moe_layer_backward"):
        t, hidden, inner, e, k = s["T"], s["H"], s["I"], s["E"], s["K"]
        weights = (normal(e, hidden, scale=.02), normal(inner, hidden, scale=.02), normal(inner, hidden, scale=.02),
                   normal(hidden, inner, scale=.02))
        go, h = normal(t, hidden), normal(t, hidden)
        scores = torch.sigmoid(torch.randn(t, e, device=DEV))
        tw, ids = scores.topk(k, -1)
        g, u = normal(t, inner), normal(t, inner)
        args = (go, h, scores, ids, tw / tw.sum(-1, keepdim=True), g, u, F.silu(g) * u, *weights)
        report("moe_layer_backward", name, "torch_eager", lambda: formula(*args, middle, route), n=10)
        report("moe_layer_backward", name, "torch_compiled_glue", lambda: formula(*args, *glue), n=10)
        rw, wg, wu, wd = weights
        report_kiln("moe_layer_backward", name, grad_output=go, hidden_states=h, router_weight=rw, scores=scores,
                    topk_indices=ids, topk_weights=args[4], shared_expert_gate_weight=wg, shared_expert_up_weight=wu,
                    shared_expert_down_weight=wd, shared_gate_output=g, shared_up_output=u, shared_activated=args[7],
                    grad_hidden_states=torch.empty_like(h), grad_router_weight=torch.empty(e, hidden, device=DEV),
                    grad_shared_expert_gate_weight=torch.empty_like(wg),
                    grad_shared_expert_up_weight=torch.empty_like(wu),
                    grad_shared_expert_down_weight=torch.empty_like(wd))


def routed_experts_loop(go, h, ids, tw, wg, wu, wd, gg, gu, gd, counts):
    """Tokens sorted by expert, then expert after expert."""
    k = ids.shape[1]
    order = ids.flatten().argsort()
    tok = order // k
    x_all, g_all, w_all = h[tok], go[tok], tw.flatten()[order][:, None]
    dx, dw, at = torch.empty_like(x_all), torch.empty(tok.shape[0], device=DEV), 0
    for e, n in enumerate(counts):
        if n == 0:
            for out in (gg, gu, gd):
                out[e].zero_()
            continue
        rows = slice(at, at + n)
        x, g, w = x_all[rows], g_all[rows], w_all[rows]
        a, b = x @ wg[e].t(), x @ wu[e].t()
        s = torch.sigmoid(a)
        hidden, d0 = a * s * b, g @ wd[e]
        dw[rows] = (d0 * hidden).sum(-1)
        d = d0 * w
        torch.mm((g * w).t(), hidden, out=gd[e])
        da, db = d * b * (s * (1 + a * (1 - s))), d * a * s
        torch.mm(da.t(), x, out=gg[e])
        torch.mm(db.t(), x, out=gu[e])
        dx[rows] = torch.addmm(db @ wu[e], da, wg[e])
        at += n
    gtw = torch.empty_like(dw)
    gtw[order] = dw
    return torch.zeros_like(h).index_add_(0, tok, dx), gtw.view_as(tw)


def routed_experts():
    weights = None
    for name, s in cases_of("routed_experts_backward"):
        if s["T"] not in (2048, 4096, 6144):  # a call takes 50 to 200 ms
            continue
        t, hidden, inner, e, k = s["T"], s["H"], s["I"], s["L"], s["K"]
        if weights is None:
            shapes = ((e, inner, hidden), (e, inner, hidden), (e, hidden, inner))
            weights = [torch.empty(*x, device=DEV).normal_(0, .02) for x in shapes]
            weights += [torch.empty_like(x) for x in weights]
        go, h = normal(t, hidden, dtype=torch.float32), normal(t, hidden, dtype=torch.float32)
        ids = torch.rand(t, e, device=DEV).topk(k, -1).indices
        tw = torch.randn(t, k, device=DEV).softmax(-1)
        counts = torch.bincount(ids.flatten(), minlength=e).tolist()
        for tf32 in (True, False):
            torch.backends.cuda.matmul.allow_tf32 = tf32
            report("routed_experts_backward", name, "torch_loop_tf32" if tf32 else "torch_loop_fp32",
                   lambda: routed_experts_loop(go, h, ids, tw, *weights, counts), n=3, warm_up=1)
            measure()


def routed_experts_grouped(go, h, ids, tw, wg, wu, wd, offsets):
    """The same with torch's grouped products: one call for all experts."""
    k = ids.shape[1]
    order = ids.flatten().argsort()
    tok = order // k
    x, g, w = h[tok], go[tok], tw.flatten()[order][:, None]
    product = torch._grouped_mm
    a, b, d0 = product(x, wg.mT, offsets), product(x, wu.mT, offsets), product(g, wd, offsets)
    s = torch.sigmoid(a)
    hidden = a * s * b
    gtw = torch.empty(order.shape[0], device=DEV)
    gtw[order] = (d0.float() * hidden).sum(-1)
    d = d0 * w
    da, db = d * b * (s * (1 + a * (1 - s))), d * a * s
    gd = product((g * w).t(), hidden, offsets)
    gg, gu = product(da.t(), x, offsets), product(db.t(), x, offsets)
    dx = product(da, wg, offsets) + product(db, wu, offsets)
    return torch.zeros_like(h).index_add_(0, tok, dx), gtw.view_as(tw), gg, gu, gd


def routed_bf16():
    """The bf16 cases of bench/cases/experts.json: expert after expert by cuBLAS, and torch's grouped products."""
    with open(os.path.join(HERE, "..", "cases", "experts.json")) as f:
        groups = [g for g in json.load(f)["groups"] if g["dtypes"] == {"grad_output": "bf16"}]
    for group in groups:
        weights = None
        for row in group["cases"]:
            s, name = {**group["axes"], **row}, " ".join(f"{k}={v}" for k, v in row.items())
            t, hidden, inner, e, k = s["T"], s["H"], s["I"], s["L"], s["K"]
            if weights is None:
                shapes = ((e, inner, hidden), (e, inner, hidden), (e, hidden, inner))
                weights = [torch.empty(*x, device=DEV, dtype=torch.bfloat16).normal_(0, .02) for x in shapes]
                grads = [torch.empty_like(x) for x in weights]
            go, h = normal(t, hidden), normal(t, hidden)
            ids = torch.rand(t, e, device=DEV).topk(k, -1).indices
            tw = torch.randn(t, k, device=DEV).softmax(-1).bfloat16()
            counts = torch.bincount(ids.flatten(), minlength=e)
            offsets, counts = counts.cumsum(0).to(torch.int32), counts.tolist()
            report(group["group"], name, "torch_loop_bf16",
                   lambda: routed_experts_loop(go, h, ids, tw, *weights, *grads, counts), n=5, warm_up=2)
            report(group["group"], name, "torch_grouped_mm",
                   lambda: routed_experts_grouped(go, h, ids, tw, *weights, offsets), n=5, warm_up=2)
            measure()


# ---- main -----------------------------------------------------------------------------------------------------------

PARTS = dict(ceilings=ceilings, load_balance=load_balance, router=router, expert_mlp=expert_mlp, moe_layer=moe_layer,
             routed_experts=routed_experts, routed_bf16=routed_bf16)


def machine():
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    driver = subprocess.run(query, capture_output=True, text=True, check=True).stdout.split("\n")[0].strip()
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return dict(gpu=torch.cuda.get_device_name(0), driver=driver, date=date, timer="cupti", torch=torch.__version__,
                cuda=torch.version.cuda)


def compile_all(jobs, parts):
    """In other processes: what torch.compile makes stays in PyTorch's cache on disk."""
    command = [sys.executable, os.path.abspath(__file__), "--share"]
    running = [subprocess.Popen(command + [f"{i}/{jobs}", ",".join(parts)], stdout=subprocess.DEVNULL)
               for i in range(jobs)]
    if any([p.wait() for p in running]):
        sys.exit("torch_peers.py: a process that compiles has failed")


def main(argv):
    global SHARE
    parser = argparse.ArgumentParser()
    parser.add_argument("-o", dest="out")
    parser.add_argument("--jobs", type=int, default=0)
    parser.add_argument("--graphs", action="store_true")
    parser.add_argument("--share", help=argparse.SUPPRESS)
    parser.add_argument("parts", nargs="?", default=",".join(PARTS))
    given = parser.parse_args(argv)
    parts = given.parts.split(",")
    if given.share:
        SHARE = tuple(int(x) for x in given.share.split("/"))
    if given.graphs:
        WAYS.remove("")
    compiled = [p for p in parts if p in ("load_balance", "router", "expert_mlp", "moe_layer")]
    start = time.monotonic()
    if given.jobs and compiled:
        compile_all(given.jobs, compiled)
        print(f"compiled by {given.jobs} processes in {time.monotonic() - start:.0f} s", flush=True)
    head = machine()
    for part in parts:
        start = time.monotonic()
        PARTS[part]()
        print(f"{part}: {time.monotonic() - start:.0f} s", flush=True)
        if given.out:  # what is there is there
            with open(given.out, "w") as f:
                rows = ",\n".join("  " + json.dumps(r) for r in ROWS)
                head["ceilings"] = CEILINGS
                f.write(json.dumps(head)[:-1] + ',\n "peers": [\n' + rows + "\n]}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
