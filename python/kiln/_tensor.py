"""Tensors of other libraries as DLPack's DLTensor. Memory is borrowed for the duration of a call, never copied."""

import ctypes
import functools
import sys

CPU, CUDA = 1, 2

# DLPack type code and bits by the names that kiln_abi.def uses.
_dtypes = {"f32": (2, 32), "bf16": (4, 16), "f16": (2, 16), "f64": (2, 64), "i32": (0, 32), "i64": (0, 64), "i8": (0, 8),
           "u8": (1, 8), "bool": (6, 8)}
_kinds = {"i": 0, "u": 1, "f": 2, "b": 6}  # of numpy's type strings
_formats = {"e": (2, 16), "f": (2, 32), "d": (2, 64), "?": (6, 8), **{c: (0, None) for c in "bhilq"},
            **{c: (1, None) for c in "BHILQ"}}  # of Python's buffers; None: as wide as the buffer's items


class DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class bfloat16:
    """A numpy array (or other array of 16-bit elements) whose bits are bfloat16: numpy has no such type of its own."""

    def __init__(self, bits):
        if bits.dtype.itemsize != 2:
            raise TypeError(f"bfloat16 wants an array of 16-bit elements, not of {bits.dtype}")
        self.bits = bits
        self.__array_interface__ = bits.__array_interface__


class Spec:
    """Shape and element type without data, on the context's device: for prepare_only, workspace_size and plan.
    dtype: f32, bf16, f16, i32, i64, bool, u8."""

    def __init__(self, shape, dtype):
        if dtype not in _dtypes:
            raise TypeError(f"dtype is {dtype!r}; wanted one of {', '.join(_dtypes)}")
        self.shape, self.dtype = tuple(shape), dtype


@functools.lru_cache(maxsize=4096)
def _longs(numbers):
    """As a C array: kept, since a training loop comes with the same shapes again and again, and the library only reads."""
    return (ctypes.c_int64 * len(numbers))(*numbers)


def _make(data, device, shape, strides, dtype):
    """strides None: a compact tensor."""
    return DLTensor(data or None, device[0], device[1], len(shape), dtype[0], dtype[1], 1, _longs(shape),
                    None if strides is None else _longs(strides), 0)


def _in_elements(strides, item):
    if strides is None:
        return None
    if any(s % item for s in strides):
        raise TypeError(f"strides of {tuple(strides)} bytes are not whole elements of {item}")
    return tuple(s // item for s in strides)


def _from_interface(interface, device, writes, is_bf16):
    """numpy's array interface, or its CUDA cousin."""
    order, kind, item = interface["typestr"][0], interface["typestr"][1], int(interface["typestr"][2:])
    if order == (">" if sys.byteorder == "little" else "<"):
        raise TypeError("its bytes are in the other order than this machine's")
    if not is_bf16 and kind not in _kinds:
        raise TypeError(f"its element type is {interface['typestr']}")
    if interface.get("mask") is not None:
        raise TypeError("it is a masked array")
    address, read_only = interface["data"]
    if writes and read_only:
        raise ValueError("it is read-only")
    dtype = _dtypes["bf16"] if is_bf16 else (_kinds[kind], 8 * item)
    return _make(address, device, interface["shape"], _in_elements(interface.get("strides"), item), dtype)


def _from_buffer(value, writes):
    """Python's own buffers: array.array, bytearray, memoryview."""
    view = memoryview(value)
    if view.format not in _formats:
        raise TypeError(f"its element format is {view.format!r}")
    if view.readonly:
        raise (ValueError if writes else TypeError)("it is read-only")
    code, bits = _formats[view.format]
    flat = view if view.contiguous else None
    if flat is None:
        raise TypeError("it is not contiguous")
    address = ctypes.addressof(ctypes.c_char.from_buffer(view)) if view.nbytes else 0
    return _make(address, (CPU, 0), view.shape, None, (code, bits or 8 * view.itemsize)), view


_torch_dtypes = {}


def _from_torch(value, torch, device):
    if not _torch_dtypes:
        _torch_dtypes.update({torch.float32: (2, 32), torch.bfloat16: (4, 16), torch.float16: (2, 16),
                              torch.float64: (2, 64), torch.int32: (0, 32), torch.int64: (0, 64), torch.int8: (0, 8),
                              torch.int16: (0, 16), torch.uint8: (1, 8), torch.bool: (6, 8)})
    if value.dtype not in _torch_dtypes:
        raise TypeError(f"its element type is {value.dtype}")
    place, dtype = value.device, _torch_dtypes[value.dtype]
    if place.type == "meta":  # a shape without data
        return _make(0, device, value.shape, value.stride(), dtype)
    if place.type not in ("cpu", "cuda"):
        raise TypeError(f"it lives on {place}")
    return _make(value.data_ptr(), (CUDA, place.index or 0) if place.type == "cuda" else (CPU, 0), value.shape,
                 value.stride(), dtype)


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def _from_dlpack(value, stream):
    if value.__dlpack_device__()[0] == CUDA:
        capsule = value.__dlpack__(stream=stream or 1)  # 1: the legacy default stream, to which NULL stands for us
    else:
        capsule = value.__dlpack__()
    managed = ctypes.cast(_pointer(capsule, b"dltensor"), ctypes.POINTER(_Managed)).contents
    return managed.tensor, capsule  # the capsule frees itself, when it is let go


def torch_of(value):
    """The module torch, if `value` is one of its tensors. Does not import it: who has a tensor has imported it."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and isinstance(value, torch.Tensor) else None


def as_dltensor(value, device, stream=None, writes=False):
    """(DLTensor, what must stay alive beside `value`). device: (type, number) of the context; stream: on which the
    tensor will be used; writes: it is an output. TypeError or ValueError says what is wrong with it."""
    if isinstance(value, Spec):
        return _make(0, device, value.shape, None, _dtypes[value.dtype]), None
    torch = torch_of(value)
    if torch:
        return _from_torch(value, torch, device), None
    if hasattr(value, "__array_interface__"):
        is_bf16 = isinstance(value, bfloat16) or getattr(getattr(value, "dtype", None), "name", "") == "bfloat16"
        interface = value.__array_interface__
        return _from_interface(interface, (CPU, 0), writes, is_bf16), interface
    if hasattr(value, "__dlpack__"):
        return _from_dlpack(value, stream)
    if hasattr(value, "__cuda_array_interface__"):  # says nothing of which device: it is taken for the context's
        return _from_interface(value.__cuda_array_interface__, device, writes, False), None
    try:
        return _from_buffer(value, writes)
    except BufferError as e:
        raise TypeError(str(e)) from None


def stream_of(stream, values, device):
    """The CUstream to use, as a number or None: the caller's; else torch's current one, if there are torch tensors;
    else the one that a CUDA array says it was made on; else the legacy default stream."""
    if stream is not None:
        for name in ("cuda_stream", "ptr", "handle"):  # torch, cupy, cuda.core
            if hasattr(stream, name):
                return int(getattr(stream, name))
        return int(stream)
    if device[0] != CUDA:
        return None
    for value in values:
        torch = torch_of(value)
        if torch:
            return torch.cuda.current_stream(device[1]).cuda_stream
    for value in values:
        if not hasattr(value, "__dlpack__") and hasattr(value, "__cuda_array_interface__"):
            made_on = value.__cuda_array_interface__.get("stream")
            if made_on is not None:
                return int(made_on)
    return None
