"""readme_program.py README: run the README's Python program and check what it computed against float64."""
import re
import sys

import numpy as np

with open(sys.argv[1]) as file:
    programs = re.findall(r"^```python\n(.*?)^```$", file.read(), re.M | re.S)
assert len(programs) == 1, f"{len(programs)} Python programs in the README"
print(programs[0])
seen = {}
exec(compile(programs[0], "README.md", "exec"), seen)

x, w, s, g = (seen[name].astype(np.float64) for name in ("hidden", "weight", "probs", "grad_weights"))
chosen = np.take_along_axis(s, seen["experts"], 1)
total = chosen.sum(1, keepdims=True)
grad_scores = np.zeros_like(s)
np.put_along_axis(grad_scores, seen["experts"], (g - (g * chosen).sum(1, keepdims=True) / total) / total, 1)
grad_logits = s * (grad_scores - (grad_scores * s).sum(1, keepdims=True))
for name, exact in (("grad_hidden", grad_logits @ w), ("grad_weight", grad_logits.T @ x)):
    error = np.linalg.norm(seen[name] - exact) / np.linalg.norm(exact)
    print(f"{name}: relative error {error:.1e}")
    assert error < 1e-5
import kiln
print("OK with", kiln.__file__)
