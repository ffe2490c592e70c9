"""Kiln: backward passes of mixture-of-experts layers, generated for the shapes they see.

    import kiln, numpy as np
    ctx = kiln.Context("sim")                      # "auto": the GPU if there is one, else the simulator
    out = np.empty((4, 8), np.float32)
    ctx.load_balance_backward(grad_tokens_per_expert=np.zeros(8, np.float32),
                              grad_expert_mask=np.zeros((4, 8), np.float32),
                              grad_load_balance_loss=np.full(1, 2, np.float32),
                              training=np.ones(1, bool), grad_expert_mask_out=out, top_k=2)

Every operation of the library is a method of Context: tensors and options are keyword arguments, named as in
include/kiln/kiln_abi.def; a tensor is a numpy array, a torch tensor, or anything with __dlpack__ whose memory the context's
device can read; outputs are passed in; tensors that are left out are absent. `accumulate` is a list of outputs to add to,
`stream` a CUstream as an integer. Failures raise kiln.Error with the library's sentence.
"""

from ._context import Context, Error, version
from ._tensor import bfloat16

__all__ = ["Context", "Error", "bfloat16", "version"]
