"""A status of the library as an exception with the library's sentence."""

from . import _abi


class Error(RuntimeError):
    """A call of the library failed. `status` is its KILN_E_* code, `name` the code's name, the text its sentence."""

    def __init__(self, status, name, sentence):
        super().__init__(f"{name}: {sentence}")
        self.status, self.name, self.sentence = status, name, sentence


class ArgumentError(Error, ValueError):
    """Something about the arguments: the caller's mistake (KILN_E_ARG, and the classes derived from this one)."""


class ShapeError(ArgumentError):
    """A tensor's rank or shape does not fit the others (KILN_E_SHAPE)."""


class DtypeError(ArgumentError):
    """A tensor's element type is not supported there (KILN_E_DTYPE)."""


class AlignError(ArgumentError):
    """A pointer or stride is not a multiple of its element (KILN_E_ALIGN)."""


class DeviceError(ArgumentError):
    """A tensor lives on another device than the context (KILN_E_DEVICE)."""


class OverlapError(ArgumentError):
    """An output shares memory with another tensor that it may not share with (KILN_E_OVERLAP)."""


class WorkspaceError(ArgumentError):
    """The caller's workspace is missing or too small (KILN_E_WORKSPACE)."""


class UnavailableError(Error):
    """A driver, library, function or device is not there (KILN_E_UNAVAILABLE)."""


class NotCachedError(Error):
    """KILN_ON_MISS=error and a kernel is in no cache layer; the sentence has the line to add (KILN_E_NOT_CACHED)."""


class CaptureError(Error):
    """Not possible while the stream is being captured (KILN_E_CAPTURE)."""


class UnsupportedError(Error):
    """A legal request that this device or version cannot serve (KILN_E_UNSUPPORTED)."""


class SimulatorError(Error):
    """The simulator found a fault in a kernel (KILN_E_SIM)."""


# Statuses with a class of their own; the others are an Error.
_classes = {"KILN_E_ARG": ArgumentError, "KILN_E_SHAPE": ShapeError, "KILN_E_DTYPE": DtypeError,
            "KILN_E_ALIGN": AlignError, "KILN_E_DEVICE": DeviceError, "KILN_E_OVERLAP": OverlapError,
            "KILN_E_WORKSPACE": WorkspaceError, "KILN_E_UNAVAILABLE": UnavailableError,
            "KILN_E_NOT_CACHED": NotCachedError, "KILN_E_CAPTURE": CaptureError,
            "KILN_E_UNSUPPORTED": UnsupportedError, "KILN_E_SIM": SimulatorError}


def check(status):
    """Raise what `status` stands for, if it is no success."""
    if status:
        name = _abi.library.kiln_status_name(status).decode()
        raise _classes.get(name, Error)(status, name, _abi.library.kiln_error_message().decode())
