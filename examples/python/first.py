# PYTHONPATH=python KILN_LIBRARY=build/release/libkiln.so python3 examples/python/first.py
"""The smallest whole program: one backward pass on numpy arrays, on the simulator."""
import kiln
import numpy as np

B, E, K = 4, 8, 2
rng = np.random.default_rng(0)
tokens, mask = rng.normal(size=E).astype(np.float32), rng.normal(size=(B, E)).astype(np.float32)
out = np.empty((B, E), np.float32)
with kiln.Context("sim") as ctx:
    ctx.load_balance_backward(grad_tokens_per_expert=tokens, grad_expert_mask=mask,
                              grad_load_balance_loss=np.full(1, 2, np.float32), training=np.ones(1, bool),
                              grad_expert_mask_out=out, top_k=K)
exact = mask.astype(np.float64) + tokens + 2 / (B * K)
assert np.abs(out - exact).max() < 1e-5, out - exact
print("kiln", kiln.version(), "gave the right", out.shape)
