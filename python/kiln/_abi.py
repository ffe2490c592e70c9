"""The library and its interface table: kiln_abi.def, parsed, and libkiln.so, opened with ctypes."""

import ctypes
import os
import re
from pathlib import Path

_here = Path(__file__).resolve().parent


def _find(names):
    for name in names:
        if name and Path(name).exists():
            return str(name)
    raise OSError("libkiln.so is not beside this package, and KILN_LIBRARY does not name it")


def _root_candidates(relative):
    """Beside the package (a wheel), or in the source tree."""
    return [_here / Path(relative).name, _here.parent.parent / relative]


class Arg:
    """One tensor of an operation: name, role (in, optional, out), dtypes and shape as in the table."""

    def __init__(self, name, role, dtypes, shape):
        self.name, self.role, self.dtypes, self.shape = name, role, dtypes, shape


class Option:
    """One field of an operation's options: name (a dot in it becomes _), ctypes type, default, names of its values."""

    types = {"i32": ctypes.c_int32, "i64": ctypes.c_int64, "f64": ctypes.c_double, "str": ctypes.c_char_p}

    def __init__(self, name, kind, default, choices):
        self.name, self.type, self.default = name.replace(".", "_"), self.types[kind], default
        self.choices = choices.split(",") if choices else None

    def value(self, given):
        if self.choices and isinstance(given, str):
            if given not in self.choices:
                raise ValueError(f"{self.name} is {given!r}; wanted one of {', '.join(self.choices)}")
            return self.choices.index(given)
        if self.choices == ["true", "false"]:
            return 0 if given else 1
        return given.encode() if isinstance(given, str) else given


class Operation:
    def __init__(self, name):
        self.name, self.args, self.options = name, [], []

    def options_struct(self):
        """ctypes struct of kiln_<op>_options: the common fields, then the table's, padded as C does."""
        fields = [("struct_size", ctypes.c_uint32), ("flags", ctypes.c_uint32), ("accumulate", ctypes.c_uint64),
                  ("workspace", ctypes.c_void_p), ("workspace_bytes", ctypes.c_uint64)]
        fields += [(o.name, o.type) for o in self.options]
        return type(self.name + "_options", (ctypes.Structure,), {"_fields_": fields})

    def doc(self):
        lines = [f"kiln_{self.name}", "", "Tensors:"]
        lines += [f"  {a.name}: {a.dtypes} [{a.shape}] ({a.role})" for a in self.args]
        if self.options:
            lines += ["Options:"]
            lines += [f"  {o.name} = {o.default or 'None'}" + (f"  ({', '.join(o.choices)})" if o.choices else "")
                      for o in self.options]
        return "\n".join(lines)


def _parse_table(text):
    operations = {}
    for macro, body in re.findall(r"^KILN_(OP|ARG|OPTION)\((.*)\)$", text, re.M):
        words = [w.strip().strip('"') for w in re.findall(r'"[^"]*"|[^,]+', body)]
        if macro == "OP":
            operations[words[0]] = Operation(words[0])
        elif macro == "ARG":
            operations[words[0]].args.append(Arg(*words[1:5]))
        else:
            operations[words[0]].options.append(Option(*words[1:5]))
    return operations


operations = _parse_table(Path(_find(_root_candidates("include/kiln/kiln_abi.def"))).read_text())
library = ctypes.CDLL(_find([os.environ.get("KILN_LIBRARY"), _here / "libkiln.so",
                             _here.parent.parent / "build/release/libkiln.so"]))
library.kiln_error_message.restype = ctypes.c_char_p
library.kiln_status_name.restype = ctypes.c_char_p
library.kiln_version.restype = ctypes.c_char_p
if library.kiln_abi_version() != 1:
    raise OSError(f"libkiln has interface version {library.kiln_abi_version()}; this package speaks version 1")
