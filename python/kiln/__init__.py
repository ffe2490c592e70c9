"""Kiln: backward passes of mixture-of-experts layers, generated for the shapes they see.

    import kiln, numpy as np
    ctx = kiln.Context("sim")                      # "auto": the GPU if there is one, else the simulator
    out = np.empty((4, 8), np.float32)
    ctx.load_balance_backward(grad_tokens_per_expert=np.zeros(8, np.float32),
                              grad_expert_mask=np.zeros((4, 8), np.float32),
                              grad_load_balance_loss=np.full(1, 2, np.float32),
                              training=np.ones(1, bool), grad_expert_mask_out=out, top_k=2)

Every operation of the library is a method of Context: help(kiln.Context.router_backward). Tensors are numpy arrays, torch
tensors, or whatever else has DLPack, an array interface or a buffer. Failures raise kiln.Error with the library's sentence.
Needs nothing but Python and libkiln.so. More: docs/python.md.
"""

from ._context import Context, context_for, environment, version
from ._errors import (AlignError, ArgumentError, CaptureError, DeviceError, DtypeError, Error, NotCachedError,
                      OverlapError, ShapeError, SimulatorError, UnavailableError, UnsupportedError, WorkspaceError)
from ._tensor import Spec, bfloat16

__version__ = version()
__all__ = ["AlignError", "ArgumentError", "CaptureError", "Context", "DeviceError", "DtypeError", "Error",
           "NotCachedError", "OverlapError", "ShapeError", "SimulatorError", "Spec", "UnavailableError",
           "UnsupportedError", "WorkspaceError", "bfloat16", "context_for", "environment", "version"]
for _name in __all__:  # one name for a thing, in messages too
    if isinstance(globals()[_name], type):
        globals()[_name].__module__ = __name__
