"""Tensors of other libraries as DLPack's DLTensor. Memory is borrowed for the duration of a call, never copied."""

import ctypes


class DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class bfloat16:
    """A numpy array of uint16 whose bits are bfloat16: numpy has no such type."""

    def __init__(self, bits):
        if bits.dtype.itemsize != 2:
            raise TypeError(f"bfloat16 wants an array of 16-bit elements, not {bits.dtype}")
        self.bits = bits


_codes = {"i": 0, "u": 1, "f": 2, "b": 6}


def _make(data, device, shape, strides, code, bits):
    n = len(shape)
    t = DLTensor(data or None, device[0], device[1], n, code, bits, 1, (ctypes.c_int64 * n)(*shape),
                 (ctypes.c_int64 * n)(*strides), 0)
    return t


def _from_numpy(array, bf16=False):
    item = array.dtype.itemsize
    if any(s % item for s in array.strides):
        raise TypeError("a numpy array's strides must be whole elements")
    code = 4 if bf16 else _codes[array.dtype.kind]
    return _make(array.ctypes.data, (1, 0), array.shape, [s // item for s in array.strides], code, 8 * item)


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def as_dltensor(value):
    """(DLTensor, what must stay alive). Raises TypeError for what is no tensor."""
    if isinstance(value, bfloat16):
        return _from_numpy(value.bits, True), value
    if hasattr(value, "__array_interface__"):
        return _from_numpy(value), value
    if hasattr(value, "__dlpack__"):
        if getattr(value, "requires_grad", False):
            value = value.detach()
        if str(getattr(value, "dtype", "")) == "torch.bool":  # DLPack 0.6 has no bool
            return _make(value.data_ptr(), value.__dlpack_device__(), value.shape, value.stride(), 6, 8), value
        capsule = value.__dlpack__()
        managed = ctypes.cast(_pointer(capsule, b"dltensor"), ctypes.POINTER(_Managed)).contents
        return managed.tensor, capsule
    raise TypeError(f"{type(value).__name__} is no tensor: wanted a numpy array or an object with __dlpack__")
