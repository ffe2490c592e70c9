"""The library and its interface table: libkiln.so, opened with ctypes, and kiln_abi.def, parsed."""

import ctypes
import operator
import os
import re
from pathlib import Path

ABI_VERSION = 1

_here = Path(__file__).resolve().parent
_tree = _here.parent.parent  # the source tree, when the package lies in one


def _open_library():
    """The library that KILN_LIBRARY names, or the one in the package (a wheel), of the source tree, of the system."""
    named = os.environ.get("KILN_LIBRARY")
    if named:
        return ctypes.CDLL(named)
    for path in (_here / "libkiln.so", _tree / "build/release/libkiln.so"):
        if path.exists():
            return ctypes.CDLL(str(path))
    try:
        return ctypes.CDLL("libkiln.so.0")
    except OSError as e:
        raise OSError(f"libkiln.so is not in {_here} (where a wheel has it), KILN_LIBRARY does not name it, and the system"
                      f" does not know libkiln.so.0 ({e})") from None


def _table_text():
    for path in (_here / "kiln_abi.def", _tree / "include/kiln/kiln_abi.def"):
        if path.exists():
            return path.read_text()
    raise OSError(f"kiln_abi.def is neither in {_here} nor in {_tree / 'include/kiln'}")


def whole(name, given, field):
    """`given` as an int that the ctypes integer `field` holds: ctypes would cut off what does not fit."""
    try:
        number = operator.index(given)
    except TypeError:
        raise TypeError(f"{name} is {given!r}; wanted a whole number") from None
    if field(number).value != number:
        raise ValueError(f"{name} is {number}; wanted a whole number of {8 * ctypes.sizeof(field)} bits")
    return number


def real(name, given):
    try:
        return ctypes.c_double(given).value
    except TypeError:
        raise TypeError(f"{name} is {given!r}; wanted a number") from None


class Arg:
    """One tensor of an operation: name, role (in, optional, out), dtypes, shape and layout as in the table."""

    def __init__(self, name, role, dtypes, shape, layout):
        self.name, self.role, self.dtypes, self.shape, self.layout = name, role, dtypes, shape, layout


class Option:
    """One field of an operation's options. A dot in the table's name is an underscore in Python: activation_alpha."""

    types = {"i32": ctypes.c_int32, "i64": ctypes.c_int64, "f64": ctypes.c_double, "str": ctypes.c_char_p}

    def __init__(self, name, kind, default, choices):
        self.field, self.name = name, name.replace(".", "_")
        self.kind, self.type = kind, self.types[kind]
        self.choices = choices.split(",") if choices else None
        self.is_bool = self.choices == ["true", "false"]
        if self.is_bool:
            self.default = default == "true"
        elif self.choices:
            self.default = self.choices[int(default)]
        elif kind == "str":
            self.default = default or None
        else:
            self.default = (float if kind == "f64" else int)(default)

    def value(self, given):
        """What the C struct holds for `given`."""
        if self.is_bool:
            return 0 if given else 1  # KILN_TRUE and KILN_FALSE
        if self.choices:
            if given not in self.choices:
                raise ValueError(f"{self.name} is {given!r}; wanted one of {', '.join(self.choices)}")
            return self.choices.index(given)
        if self.kind == "str":
            if given is not None and not isinstance(given, str):
                raise TypeError(f"{self.name} is {given!r}; wanted a text")
            return given.encode() if given is not None else None
        return real(self.name, given) if self.kind == "f64" else whole(self.name, given, self.type)


class CommonOptions(ctypes.Structure):
    """kiln_common_options."""
    _fields_ = [("struct_size", ctypes.c_uint32), ("flags", ctypes.c_uint32), ("accumulate", ctypes.c_uint64),
                ("workspace", ctypes.c_void_p), ("workspace_bytes", ctypes.c_uint64)]


class ContextOptions(ctypes.Structure):
    """kiln_context_options."""
    _fields_ = [("struct_size", ctypes.c_uint32), ("on_miss", ctypes.c_int32), ("shapes", ctypes.c_int32),
                ("path", ctypes.c_int32), ("sm_limit", ctypes.c_int32), ("max_modules", ctypes.c_int32),
                ("cache_dir", ctypes.c_char_p), ("cache_read_only", ctypes.c_char_p),
                ("cache_max_bytes", ctypes.c_int64), ("record", ctypes.c_char_p), ("tuning", ctypes.c_char_p)]


class Operation:
    """One operation of the table."""

    def __init__(self, name):
        self.name, self.args, self.options = name, [], []

    def finish(self):
        """Lay out kiln_<op>_options: the common fields, then the table's."""
        fields = [("common", CommonOptions)] + [(o.name, o.type) for o in self.options]
        self.options_type = type(f"kiln_{self.name}_options", (ctypes.Structure,), {"_fields_": fields})
        self.outputs = [a.name for a in self.args if a.role == "out"]
        self.function = getattr(library, "kiln_" + self.name)


def _parse_table(text):
    functions, operations = {}, {}
    for macro, body in re.findall(r"^KILN_(FUNCTION|OP|ARG|OPTION)\((.*)\)$", text, re.M):
        words = [w.strip('"') for w in re.findall(r'\s*("[^"]*"|[^,\s]+)', body)]
        if macro == "FUNCTION":
            functions[words[0]] = (words[1], words[2])
        elif macro == "OP":
            operations[words[0]] = Operation(words[0])
        elif macro == "ARG":
            operations[words[0]].args.append(Arg(*words[1:6]))
        else:
            operations[words[0]].options.append(Option(*words[1:5]))
    return functions, operations


library = _open_library()
if library.kiln_abi_version() != ABI_VERSION:
    raise OSError(f"{library._name} has interface version {library.kiln_abi_version()}; this package speaks {ABI_VERSION}")

functions, operations = _parse_table(_table_text())
_letters = {"i": ctypes.c_int32, "I": ctypes.c_int64, "u": ctypes.c_uint32, "U": ctypes.c_uint64, "d": ctypes.c_double,
            "s": ctypes.c_char_p, "p": ctypes.c_void_p}
for _name, (_result, _arguments) in functions.items():
    _function = getattr(library, _name)
    _function.restype, _function.argtypes = _letters[_result], [_letters[a] for a in _arguments]
for _operation in operations.values():
    _operation.finish()
