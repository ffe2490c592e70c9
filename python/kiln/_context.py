"""Context: one device, its kernels and plans; the operations are its methods."""

import ctypes
import json
import threading

from . import _abi
from ._abi import library
from ._errors import check
from ._operations import Operations
from ._tensor import CUDA, DLTensor, as_dltensor, stream_of, torch_of

_PREPARE_ONLY = 1
_PLAN_BUILD = 1
_contexts, _contexts_lock = {}, threading.Lock()


def version():
    """Version of the library, "0.1.0"."""
    return library.kiln_version().decode()


def environment():
    """Every KILN_ variable with its meaning and the libraries that were found, as a dict."""
    return _json(lambda buf, cap, needed: library.kiln_env_json(buf, cap, needed))


def context_for(tensor):
    """The context for a torch tensor's device, made when first asked for and kept: the simulator for one on the CPU."""
    if not torch_of(tensor):
        raise TypeError(f"context_for takes a torch tensor, not {type(tensor).__name__}")
    device = "sim" if tensor.device.type == "cpu" else f"cuda:{tensor.device.index or 0}"
    with _contexts_lock:
        if device not in _contexts:
            _contexts[device] = Context(device)
        return _contexts[device]


def _json(call):
    """What a function of the library writes as JSON. The text may be longer the next time: times stand in it."""
    capacity, needed = 1 << 16, ctypes.c_uint64()
    while True:
        text = ctypes.create_string_buffer(capacity)
        status = call(text, capacity, ctypes.byref(needed))
        if needed.value <= capacity:
            check(status)
            return json.loads(text.value)
        capacity = 2 * needed.value


def _choice(name, value, choices):
    if value is None:
        return 0
    if value not in choices:
        raise ValueError(f"{name} is {value!r}; wanted None or one of {', '.join(choices)}")
    return choices.index(value) + 1


def _text(value):
    return None if value is None else str(value).encode()


class _Call:
    """The arguments of one call as the library takes them. Holds what they borrow."""

    def __init__(self, op, device, arguments):
        accumulate, workspace = arguments.pop("accumulate", ()), arguments.pop("workspace", None)
        prepare_only, stream = arguments.pop("prepare_only", False), arguments.pop("stream", None)
        self.op, self.options = op, op.options_type()
        common = self.options.common
        common.struct_size = ctypes.sizeof(self.options)
        common.flags = _PREPARE_ONLY if prepare_only else 0
        for name in (accumulate,) if isinstance(accumulate, str) else accumulate:
            if name not in op.outputs:
                raise ValueError(f"accumulate names {name!r}; the outputs are {', '.join(op.outputs)}")
            common.accumulate |= 1 << op.outputs.index(name)
        for option in op.options:
            given = arguments.pop(option.name, option.default)
            if given != option.default:  # a zeroed struct holds the defaults
                setattr(self.options, option.name, option.value(given))
        self.stream = stream_of(stream, arguments.values(), device)
        self.alive, self.tensors = [], []
        for arg in op.args:
            value = arguments.pop(arg.name, None)
            self.tensors.append(None if value is None else
                                ctypes.byref(self._borrow(arg.name, value, device, arg.role == "out")))
        if arguments:
            raise TypeError(f"{op.name} has no argument {', '.join(sorted(arguments))}")
        if workspace is not None:
            tensor = self._borrow("workspace", workspace, device, True)
            common.workspace, common.workspace_bytes = tensor.data, tensor.bits // 8
            for d in range(tensor.ndim):
                common.workspace_bytes *= tensor.shape[d]

    def _borrow(self, name, value, device, writes):
        try:
            tensor, keep = as_dltensor(value, device, self.stream, writes)
        except (TypeError, ValueError) as e:
            raise type(e)(f"{name}: {type(value).__name__} cannot be used: {e}") from None
        self.alive += [tensor, keep, value]
        return tensor

    def array(self):
        """The tensors as an array of DLTensor pointers, for functions that take any operation."""
        pointers = (ctypes.POINTER(DLTensor) * len(self.tensors))()
        for i, tensor in enumerate(self.tensors):
            if tensor is not None:
                pointers[i] = ctypes.cast(tensor, ctypes.POINTER(DLTensor))
        return pointers


class Context(Operations):
    """A device with its kernels and plans. May be used from several threads at once.

    device: "auto" (the GPU if there is one, else the simulator), "cuda:N", "sim" (= "sim:sm_90a"), "sim:sm_80", "null"
    (launches return at once), "offline:h200" (builds machine code for a machine that is not there); None takes
    KILN_DEVICE. Tensors must live on that device: numpy arrays and CPU tensors on the simulator.

    on_miss: "build" or "error" when a kernel is in no cache layer; None as KILN_ON_MISS says.
    shapes: "auto", "exact", "generic": kernels for one token count or for any; None as KILN_SHAPES says.
    path: "auto" or "portable", the mma.sync kernels everywhere; None as KILN_PATH says.
    sm_limit: multiprocessors that a launch may fill, 0 = all. max_modules: loaded kernels kept, 0 = KILN_MAX_MODULES.
    cache_dir: folder of the kernel cache, "off" = none; cache_read_only: ':'-separated packs and folders;
    cache_max_bytes: bound of the cache; record: file that gets a line for every new problem; tuning: file of `kiln
    tune` to follow, "" = none. None or 0: as the variables KILN_CACHE_DIR, KILN_CACHE_RO, KILN_CACHE_MAX, KILN_RECORD and
    KILN_TUNING say.

    Raises UnavailableError where the device is not there, and ArgumentError for a device that has no such name."""

    def __init__(self, device="auto", *, on_miss=None, shapes=None, path=None, sm_limit=0, max_modules=0, cache_dir=None,
                 cache_read_only=None, cache_max_bytes=0, record=None, tuning=None):
        self._handle = ctypes.c_void_p()
        options = _abi.ContextOptions(ctypes.sizeof(_abi.ContextOptions), _choice("on_miss", on_miss, ["build", "error"]),
                                      _choice("shapes", shapes, ["auto", "exact", "generic"]),
                                      _choice("path", path, ["auto", "portable"]),
                                      _abi.whole("sm_limit", sm_limit, ctypes.c_int32),
                                      _abi.whole("max_modules", max_modules, ctypes.c_int32), _text(cache_dir),
                                      _text(cache_read_only),
                                      _abi.whole("cache_max_bytes", cache_max_bytes, ctypes.c_int64), _text(record),
                                      _text(tuning))
        check(library.kiln_context_create(_text(device), ctypes.byref(options), ctypes.byref(self._handle)))
        kind, number = ctypes.c_int32(), ctypes.c_int32()
        check(library.kiln_context_device(self._handle, ctypes.byref(kind), ctypes.byref(number)))
        self.device = (kind.value, number.value)
        """DLPack device type (1 CPU, 2 CUDA) and number that tensors must have."""

    def close(self):
        """Free the context. The caller makes sure that none of its work is still running (torch.cuda.synchronize())."""
        if self._handle:
            check(library.kiln_context_destroy(self._handle))
            self._handle = ctypes.c_void_p()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __repr__(self):
        where = f"cuda:{self.device[1]}" if self.device[0] == CUDA else "host memory"
        return f"<kiln.Context on {where}>" if self._handle else "<kiln.Context, closed>"

    @property
    def device_faults(self):
        """Ids outside their range, other than -1, that kernels have skipped since the last reset. Does not wait for the
        device."""
        count = ctypes.c_uint64()
        check(library.kiln_context_device_faults(self._handle, ctypes.byref(count)))
        return count.value

    def reset_device_faults(self):
        """Count from 0 again."""
        check(library.kiln_context_device_faults_reset(self._handle))

    def workspace_size(self, op, **arguments):
        """Bytes of workspace that operation `op` needs for these arguments; data is not looked at (see Spec)."""
        call, size = self._prepare(op, arguments), ctypes.c_uint64()
        check(library.kiln_workspace_size(self._handle, op.encode(), call.array(), len(call.tensors),
                                          ctypes.byref(call.options), ctypes.byref(size)))
        return size.value

    def plan(self, op, *, build=False, **arguments):
        """The plan of operation `op` for these arguments as a dict: kernels, registers, shared memory, launches, floor.
        Data is not looked at (see Spec). build: build and load the kernels, too."""
        call = self._prepare(op, arguments)
        return _json(lambda buf, cap, needed: library.kiln_plan_json(
            self._handle, op.encode(), call.array(), len(call.tensors), ctypes.byref(call.options),
            _PLAN_BUILD if build else 0, buf, cap, needed))

    def _prepare(self, op, arguments):
        if op not in _abi.operations:
            raise ValueError(f"op is {op!r}; wanted one of {', '.join(_abi.operations)}")
        return _Call(_abi.operations[op], self.device, arguments)

    def _run(self, op, arguments):
        """What every method of Operations does. arguments: its locals, self among them."""
        del arguments["self"]
        call = _Call(_abi.operations[op], self.device, arguments)
        check(call.op.function(self._handle, *call.tensors, ctypes.byref(call.options), ctypes.c_void_p(call.stream)))
