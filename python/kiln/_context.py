"""Context: one device, its kernels and plans; the operations are its methods."""

import ctypes

from . import _abi
from ._tensor import as_dltensor


class Error(RuntimeError):
    """A call of the library failed. `status` is its code, the text its sentence."""

    def __init__(self, status):
        self.status = status
        name = _abi.library.kiln_status_name(status).decode()
        super().__init__(f"{name}: {_abi.library.kiln_error_message().decode()}")


def version():
    """Version of the library, "0.1.0"."""
    return _abi.library.kiln_version().decode()


def _check(status):
    if status:
        raise Error(status)


class Context:
    """A device: "auto", "cuda:N", "sim", "sim:sm_80", "null"; None takes KILN_DEVICE. May be used from several threads."""

    def __init__(self, device="auto"):
        self._handle = ctypes.c_void_p()
        _check(_abi.library.kiln_context_create(device.encode() if device else None, None, ctypes.byref(self._handle)))

    def close(self):
        """Free the context. Its work must have finished."""
        if self._handle:
            _check(_abi.library.kiln_context_destroy(self._handle))
            self._handle = ctypes.c_void_p()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    @property
    def device_faults(self):
        """Ids outside their range that kernels have skipped."""
        count = ctypes.c_uint64()
        _check(_abi.library.kiln_context_device_faults(self._handle, ctypes.byref(count)))
        return count.value

    def _run(self, op, tensors, accumulate, prepare_only, stream):
        options = op.options_struct()()
        options.struct_size = ctypes.sizeof(options)
        options.flags = 1 if prepare_only else 0
        outputs = [a.name for a in op.args if a.role == "out"]
        for name in accumulate:
            options.accumulate |= 1 << outputs.index(name)
        for option in op.options:
            if option.name in tensors:
                setattr(options, option.name, option.value(tensors.pop(option.name)))
        unknown = set(tensors) - {a.name for a in op.args}
        if unknown:
            raise TypeError(f"{op.name} has no argument {', '.join(sorted(unknown))}")
        alive, pointers = [], []
        for arg in op.args:
            value = tensors.get(arg.name)
            if value is None:
                pointers.append(None)
                continue
            tensor, keep = as_dltensor(value)
            alive += [tensor, keep]
            pointers.append(ctypes.byref(tensor))
        function = getattr(_abi.library, "kiln_" + op.name)
        _check(function(self._handle, *pointers, ctypes.byref(options), ctypes.c_void_p(stream)))


def _method(op):
    def run(self, *, accumulate=(), prepare_only=False, stream=None, **tensors):
        self._run(op, tensors, accumulate, prepare_only, stream)

    run.__name__, run.__doc__ = op.name, op.doc()
    return run


for _op in _abi.operations.values():
    if hasattr(_abi.library, "kiln_" + _op.name):
        setattr(Context, _op.name, _method(_op))
