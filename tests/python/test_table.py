"""The package against kiln_abi.def, kiln.h and the snapshot of the C layout: nothing of the interface is missing or differs."""
import ctypes
import inspect
import os
import re
import unittest

import kiln
from kiln import _abi, _context, _errors, _operations, _tensor

SOURCE = os.environ["KN_SOURCE_DIR"]
COMMON = ["accumulate", "workspace", "prepare_only", "stream"]


def read(path):
    with open(os.path.join(SOURCE, path)) as file:
        return file.read()


def method_of(op):
    return getattr(_operations.Operations, op.name)


class Table(unittest.TestCase):
    def test_every_operation_is_a_method_and_no_other(self):
        named = re.findall(r"^KILN_OP\((\w+),", read("include/kiln/kiln_abi.def"), re.M)
        methods = [n for n in vars(_operations.Operations) if not n.startswith("_")]
        self.assertGreaterEqual(len(named), 7)
        self.assertEqual(named, methods)
        self.assertEqual(named, list(_abi.operations))

    def test_rows_are_read_whole(self):
        text = read("include/kiln/kiln_abi.def")
        for macro, read_rows in (("ARG", "args"), ("OPTION", "options")):
            self.assertEqual(len(re.findall(rf"^KILN_{macro}\(", text, re.M)),
                             sum(len(getattr(op, read_rows)) for op in _abi.operations.values()))
        self.assertEqual(len(re.findall(r"^KILN_FUNCTION\(", text, re.M)), len(_abi.functions))
        mask = _abi.operations["router_backward"].args[7]
        self.assertEqual((mask.name, mask.role, mask.dtypes, mask.shape, mask.layout),
                         ("grad_expert_mask", "optional", "bf16,f16,f32", "E,K,T", "any"))
        score = _abi.operations["router_backward"].options[0]
        self.assertEqual((score.name, score.default, score.choices),
                         ("score", "softmax", ["softmax", "sigmoid", "sqrtsoftplus", "softmax_selected"]))

    def test_signatures(self):
        for op in _abi.operations.values():
            with self.subTest(op.name):
                parameters = list(inspect.signature(method_of(op)).parameters.values())[1:]
                self.assertEqual([p.name for p in parameters], [a.name for a in op.args] + [o.name for o in op.options] + COMMON)
                for p, row in zip(parameters, op.args + op.options):
                    self.assertEqual(p.kind, p.KEYWORD_ONLY, p.name)
                    if isinstance(row, _abi.Arg):
                        self.assertEqual(p.default, p.empty if row.role == "in" else None, p.name)
                    else:
                        self.assertEqual(p.default, row.default, p.name)
                        self.assertIs(type(p.default), type(row.default), p.name)

    def test_docstrings(self):
        for op in _abi.operations.values():
            doc = method_of(op).__doc__
            for a in op.args:
                role = "" if a.role == "in" else f", {a.role}"
                line = rf"^ *{a.name}: {re.escape(a.dtypes)} \[{re.escape(a.shape)}\]{role}\. [A-Z0-9]\w*.*\.$"
                self.assertRegex(doc, re.compile(line, re.M | re.I), op.name)
            for o in op.options:
                self.assertRegex(doc, rf"\b{o.name}\b", op.name)
                if o.choices and not o.is_bool:
                    self.assertIn(f"{o.name}: {', '.join(o.choices)}", doc, op.name)

    def test_layout_is_that_of_c(self):
        sizes, fields = {}, {}
        for words in map(str.split, read("tests/abi/layout.txt").splitlines()):
            if len(words) == 2:
                sizes[words[0]] = int(words[1])
            else:
                fields[words[0]] = (int(words[1]), int(words[2]))
        compared = 0

        def compare(name, struct, names):
            nonlocal compared
            self.assertEqual(ctypes.sizeof(struct), sizes[name], name)
            for python, c in names:
                field = getattr(struct, python)
                self.assertEqual((field.offset, field.size), fields[f"{name}.{c}"], f"{name}.{c}")
                compared += 1

        for op in _abi.operations.values():
            compare(f"kiln_{op.name}_options", op.options_type, [("common", "common")] + [(o.name, o.field) for o in op.options])
        for name, struct in (("kiln_common_options", _abi.CommonOptions), ("kiln_context_options", _abi.ContextOptions)):
            names = [n for n, *_ in struct._fields_]
            self.assertEqual(names, [f.split(".", 1)[1] for f in fields if f.startswith(name + ".")])
            compare(name, struct, [(n, n) for n in names])
        self.assertGreater(compared, 40)
        self.assertEqual(ctypes.sizeof(_tensor.DLTensor), 48)

    def test_statuses(self):
        header = dict((n, int(v)) for n, v in re.findall(r"^#define (KILN_E_\w+) (\d+)", read("include/kiln/kiln.h"), re.M))
        self.assertGreater(len(header), 20)
        self.assertLessEqual(set(_errors._classes), set(header))
        for name, status in header.items():
            with self.assertRaises(_errors._classes.get(name, kiln.Error)) as caught:
                _errors.check(status)
            self.assertEqual((caught.exception.status, caught.exception.name), (status, name))
            self.assertIs(type(caught.exception), _errors._classes.get(name, kiln.Error))
            if name in _errors._classes:
                self.assertIn(f"({name}", type(caught.exception).__doc__)
        _errors.check(0)

    def test_versions(self):
        self.assertIn(f"#define KILN_ABI_VERSION {_abi.ABI_VERSION}\n", read("include/kiln/kiln.h"))
        self.assertIn(f"project(kiln VERSION {kiln.__version__} ", read("CMakeLists.txt"))
        self.assertEqual(_context._PREPARE_ONLY, int(re.search(r"KILN_PREPARE_ONLY (\d)u", read("include/kiln/kiln.h")).group(1)))
        self.assertEqual(_context._PLAN_BUILD, int(re.search(r"KILN_PLAN_BUILD (\d)u", read("include/kiln/kiln_tools.h")).group(1)))


if __name__ == "__main__":
    unittest.main()
