"""What the package does with tensors, options, streams and failures. Runs without numpy; parts that need it say so."""
import array
import ctypes
import os
import subprocess
import sys
import threading
import unittest

import kiln
from kiln import _tensor

try:
    import numpy as np
except ImportError:
    if os.environ.get("CI") == "true":
        raise
    np = None

SIM = kiln.Context("sim")
HOST = (_tensor.CPU, 0)


def floats(*shape, value=0.0):
    """A Python buffer of f32."""
    count = 1
    for n in shape:
        count *= n
    return memoryview(array.array("f", [value] * count)).cast("B").cast("f", list(shape))


def load_balance(context=SIM, **changes):
    """A small call on buffers: 1 + 2 + 8 / (4 * 2) = 4 everywhere."""
    arguments = dict(grad_tokens_per_expert=floats(8, value=1), grad_expert_mask=floats(4, 8, value=2),
                     grad_load_balance_loss=floats(1, value=8), training=bytearray([1]),
                     grad_expert_mask_out=floats(4, 8), top_k=2)
    arguments.update(changes)
    context.load_balance_backward(**arguments)
    return arguments["grad_expert_mask_out"]


class FakeTensor:
    """A tensor that offers one protocol alone."""

    def __init__(self, **attributes):
        vars(self).update(attributes)


class Index:
    """A whole number that is no int, as numpy's are."""

    def __init__(self, value):
        self.value = value

    def __index__(self):
        return self.value


class Calls(unittest.TestCase):
    def test_buffers(self):
        self.assertEqual(load_balance().tolist(), [[4.0] * 8] * 4)

    def test_options_and_accumulate(self):
        self.assertEqual(load_balance(training=bytearray([0])).tolist(), [[3.0] * 8] * 4)
        self.assertEqual(load_balance(top_k=4).tolist(), [[3.5] * 8] * 4)
        for names in (["grad_expert_mask_out"], "grad_expert_mask_out"):
            out = floats(4, 8, value=10)
            self.assertEqual(load_balance(grad_expert_mask_out=out, accumulate=names).tolist(), [[14.0] * 8] * 4)
        with self.assertRaisesRegex(ValueError, "accumulate names 'mask'; the outputs are grad_expert_mask_out"):
            load_balance(accumulate=["mask"])

    def test_every_bit_of_accumulate(self):
        """Each output of a call with two: the other one is overwritten."""
        T, H, E, K = 4, 8, 4, 1
        probs, selected = floats(T, E, value=0.25), memoryview(array.array("i", [0, 1, 2, 3])).cast("B").cast("i", [T, K])

        def run(**more):
            outs = dict(grad_hidden_states=floats(T, H, value=100), grad_gate_bias=floats(E, value=100))
            SIM.router_backward(hidden_states=floats(T, H, value=1), gate_weight=floats(E, H, value=1), routing_probs=probs,
                                selected_experts=selected, grad_routing_weights=floats(T, K, value=1), normalise="none",
                                **outs, **more)
            return [o.tolist() for o in outs.values()]

        hidden, bias = run()
        added = run(accumulate=["grad_gate_bias"])
        self.assertEqual(added[0], hidden)
        self.assertEqual(added[1], [b + 100 for b in bias])
        added = run(accumulate=["grad_hidden_states"])
        self.assertEqual(added[0], [[x + 100 for x in row] for row in hidden])
        self.assertEqual(added[1], bias)

    def test_choices(self):
        with self.assertRaisesRegex(ValueError, "math is 'exact'; wanted one of balanced, accurate, fast"):
            SIM.gemm(a=floats(4, 4), b=floats(4, 4), d=floats(4, 4), math="exact")
        with self.assertRaisesRegex(ValueError, "shapes is 'some'; wanted None or one of auto, exact, generic"):
            kiln.Context("sim", shapes="some")
        a, b, fast, accurate = floats(2, 2, value=1 + 2**-12), floats(2, 2, value=1), floats(2, 2), floats(2, 2)
        SIM.gemm(a=a, b=b, d=fast, math="fast")
        SIM.gemm(a=a, b=b, d=accurate, math="accurate")
        self.assertEqual((fast.tolist()[0][0], accurate.tolist()[0][0]), (2.0, 2 + 2**-11))

    def test_numbers(self):
        """A number that does not fit its field must not be cut to one that does."""
        self.assertEqual(load_balance(top_k=Index(4)).tolist(), [[3.5] * 8] * 4)
        for value in (2.5, "2", [2]):
            with self.assertRaisesRegex(TypeError, "top_k is .*; wanted a whole number"):
                load_balance(top_k=value)
        for value in (2**32 + 2, 2**31, -2**31 - 1):
            with self.assertRaisesRegex(ValueError, f"top_k is {value}; wanted a whole number of 32 bits"):
                load_balance(top_k=value)
        call = dict(a=floats(2, 2), b=floats(2, 2), d=floats(2, 2))
        with self.assertRaisesRegex(TypeError, "scaling is '2'; wanted a number"):
            SIM.workspace_size("router_backward", scaling="2", **call)
        with self.assertRaisesRegex(ValueError, "sm_limit is 4294967296; wanted a whole number of 32 bits"):
            kiln.Context("sim", sm_limit=2**32)
        with self.assertRaisesRegex(TypeError, "cache_max_bytes is '1G'; wanted a whole number"):
            kiln.Context("sim", cache_max_bytes="1G")
        with self.assertRaisesRegex(TypeError, "activation_source is 1; wanted a text"):
            SIM.workspace_size("expert_mlp_backward", activation_source=1, **call)

    def test_unknown_and_missing_arguments(self):
        with self.assertRaisesRegex(TypeError, "unexpected keyword argument 'topk'"):
            load_balance(topk=2)
        with self.assertRaisesRegex(TypeError, "missing 1 required keyword-only argument: 'b'"):
            SIM.gemm(a=floats(2, 2))
        with self.assertRaisesRegex(TypeError, "gemm has no argument c"):
            SIM.workspace_size("gemm", a=floats(2, 2), b=floats(2, 2), d=floats(2, 2), c=1)
        with self.assertRaisesRegex(ValueError, "op is 'gem'; wanted one of load_balance_backward"):
            SIM.plan("gem")

    def test_workspace_and_shapes_without_data(self):
        spec = kiln.Spec
        shapes = dict(grad_output=spec((8, 64), "bf16"), hidden_states=spec((8, 64), "bf16"), topk_indices=spec((8, 2), "i32"),
                      topk_weights=spec((8, 2), "f32"), gate_weights=spec((4, 32, 64), "bf16"),
                      up_weights=spec((4, 32, 64), "bf16"), down_weights=spec((4, 64, 32), "bf16"),
                      grad_hidden_states=spec((8, 64), "f32"))
        size = SIM.workspace_size("routed_experts_backward", **shapes)
        self.assertGreater(size, 0)
        plan = SIM.plan("routed_experts_backward", **shapes)
        self.assertEqual((plan["op"], plan["workspace_bytes"]), ("routed_experts_backward", size))
        self.assertGreater(len(plan["kernels"]), 3)
        with self.assertRaises(kiln.WorkspaceError):
            SIM.routed_experts_backward(**shapes, prepare_only=True, workspace=bytearray(16))
        SIM.routed_experts_backward(**shapes, prepare_only=True)
        with self.assertRaisesRegex(TypeError, "dtype is 'float32'; wanted one of f32, bf16"):
            spec((1,), "float32")

    def test_threads(self):
        outs = []
        threads = [threading.Thread(target=lambda: outs.append(load_balance().tolist())) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(outs, [[[4.0] * 8] * 4] * 4)


class Failures(unittest.TestCase):
    def test_sentences(self):
        with self.assertRaisesRegex(kiln.ShapeError, r"^KILN_E_SHAPE: gemm: b: axis 0 \(K\) is 4; a has K = 8$") as caught:
            SIM.gemm(a=floats(4, 8), b=floats(4, 8), d=floats(4, 8))
        self.assertIsInstance(caught.exception, ValueError)
        self.assertIsInstance(caught.exception, kiln.ArgumentError)
        self.assertEqual((caught.exception.status, caught.exception.name), (2, "KILN_E_SHAPE"))
        with self.assertRaisesRegex(kiln.DtypeError, "grad_load_balance_loss"):
            load_balance(grad_load_balance_loss=array.array("d", [8]))
        with self.assertRaises(kiln.OverlapError):
            a = floats(8, 8)
            SIM.gemm(a=a, b=floats(8, 8), d=a)
        with self.assertRaisesRegex(kiln.ArgumentError, "tpu"):
            kiln.Context("tpu")

    def test_what_is_no_tensor(self):
        for value, why in ((3, "int cannot be used"), ([1.0], "list cannot be used"), ("x", "str cannot be used"),
                           (b"12345678", "bytes cannot be used: it is read-only"),
                           (memoryview(bytearray(64))[::2], "memoryview cannot be used: it is not contiguous"),
                           (FakeTensor(__array_interface__=dict(shape=(8,), typestr=">f4", data=(64, False))), "other order"),
                           (FakeTensor(__array_interface__=dict(shape=(8,), typestr="<c8", data=(64, False))), "<c8"),
                           (FakeTensor(__array_interface__=dict(shape=(8,), typestr="<f4", data=(64, False), strides=(6,))),
                            "strides of .6,. bytes")):
            with self.assertRaisesRegex(TypeError, "^grad_tokens_per_expert: .*" + why):
                load_balance(grad_tokens_per_expert=value)
        frozen = FakeTensor(__array_interface__=dict(shape=(4, 8), typestr="<f4", data=(64, True)))
        with self.assertRaisesRegex(ValueError, "^grad_expert_mask_out: FakeTensor cannot be used: it is read-only"):
            load_balance(grad_expert_mask_out=frozen)
        with self.assertRaisesRegex(ValueError, "^grad_expert_mask_out: bytes cannot be used: it is read-only"):
            load_balance(grad_expert_mask_out=bytes(128))

    def test_closed_contexts(self):
        with kiln.Context("sim") as context:
            self.assertEqual(context.device, HOST)
            load_balance(context)
        context.close()  # a second time is no error
        with self.assertRaises(kiln.Error) as caught:
            load_balance(context)
        self.assertEqual(caught.exception.name, "KILN_E_HANDLE")
        self.assertEqual(repr(context), "<kiln.Context, closed>")

    def test_faults_are_counted(self):
        with kiln.Context("sim") as context:
            selected = memoryview(array.array("i", [0, 1, -1, 99])).cast("B").cast("i", [4, 1])
            out = floats(4, 8)
            context.router_backward(hidden_states=floats(4, 8, value=1), gate_weight=floats(4, 8, value=1),
                                    routing_probs=floats(4, 4, value=0.25), selected_experts=selected, normalise="none",
                                    grad_routing_weights=floats(4, 1, value=1), grad_hidden_states=out)
            self.assertEqual(context.device_faults, 1)
            context.reset_device_faults()
            self.assertEqual(context.device_faults, 0)


class Tensors(unittest.TestCase):
    def seen(self, value, stream=None, writes=False, device=HOST):
        tensor, keep = _tensor.as_dltensor(value, device, stream, writes)
        self.keep = keep
        strides = tensor.strides[:tensor.ndim] if tensor.strides else None
        return ((tensor.data, (tensor.device_type, tensor.device_id), tensor.shape[:tensor.ndim], strides),
                (tensor.code, tensor.bits, tensor.lanes))

    def test_cuda_array_interface(self):
        cai = dict(shape=(4, 8), typestr="<f2", data=(4096, False), strides=(32, 2), version=3, stream=77)
        self.assertEqual(self.seen(FakeTensor(__cuda_array_interface__=cai), device=(2, 1)),
                         ((4096, (2, 1), [4, 8], [16, 1]), (2, 16, 1)))
        compact = dict(cai, strides=None, typestr="|b1")
        self.assertEqual(self.seen(FakeTensor(__cuda_array_interface__=compact), device=(2, 0)),
                         ((4096, (2, 0), [4, 8], None), (6, 8, 1)))
        empty = dict(cai, shape=(0, 8), data=(0, False))
        self.assertEqual(self.seen(FakeTensor(__cuda_array_interface__=empty), device=(2, 0))[0][0], None)

    def test_dlpack(self):
        freed = []
        deleter_type = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
        shape, strides = (ctypes.c_int64 * 2)(4, 8), (ctypes.c_int64 * 2)(16, 1)
        managed = _tensor._Managed(_tensor.DLTensor(4096, 2, 3, 2, 4, 16, 1, shape, strides, 64), None, None)
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, deleter_type]
        destructor = deleter_type(lambda _: freed.append(True))
        asked = []

        def dlpack(stream=None):
            asked.append(stream)
            return new(ctypes.addressof(managed), b"dltensor", destructor)

        tensor = FakeTensor(__dlpack__=dlpack, __dlpack_device__=lambda: (2, 3))
        self.assertEqual(self.seen(tensor), ((4096, (2, 3), [4, 8], [16, 1]), (4, 16, 1)))
        self.seen(tensor, stream=99)
        self.assertEqual(asked, [1, 99])
        del self.keep
        self.assertEqual(len(freed), 2)
        view, keep = _tensor.as_dltensor(tensor, (2, 3))
        self.assertEqual(view.byte_offset, 64)
        self.assertEqual(len(freed), 2)  # alive as long as the capsule is

    def test_streams(self):
        made_on = FakeTensor(__cuda_array_interface__=dict(stream=77))
        self.assertEqual(_tensor.stream_of(None, [made_on], (2, 0)), 77)
        self.assertEqual(_tensor.stream_of(5, [made_on], (2, 0)), 5)
        self.assertEqual(_tensor.stream_of(None, [None, 3, FakeTensor(__cuda_array_interface__={})], (2, 0)), None)
        self.assertEqual(_tensor.stream_of(None, [made_on], HOST), None)
        for name in ("cuda_stream", "ptr", "handle"):
            self.assertEqual(_tensor.stream_of(FakeTensor(**{name: 6}), [], (2, 0)), 6)

    @unittest.skipIf(np is None, "needs numpy")
    def test_numpy(self):
        a = np.zeros((6, 10), np.float32)
        self.assertEqual(self.seen(a[1::2, 2:]), ((a.ctypes.data + 48, HOST, [3, 8], [20, 1]), (2, 32, 1)))
        self.assertEqual(self.seen(a.T)[0][3], [1, 10])
        for dtype, seen in ((np.float16, (2, 16)), (np.int32, (0, 32)), (np.int64, (0, 64)), (np.bool_, (6, 8)), (np.uint8, (1, 8))):
            self.assertEqual(self.seen(np.zeros(3, dtype))[1], (*seen, 1))
        self.assertEqual(self.seen(kiln.bfloat16(np.zeros((2, 3), np.uint16)))[1], (4, 16, 1))
        with self.assertRaisesRegex(TypeError, "16-bit elements, not of float32"):
            kiln.bfloat16(a)
        a.flags.writeable = False
        self.seen(a)
        with self.assertRaisesRegex(ValueError, "read-only"):
            self.seen(a, writes=True)
        one, half = np.full((8, 8), 0x3F80, np.uint16), np.full((8, 8), 0x3F00, np.uint16)
        out = np.zeros((8, 8), np.float32)
        SIM.gemm(a=kiln.bfloat16(one), b=kiln.bfloat16(half), d=out)
        self.assertTrue((out == 4).all())


class Imports(unittest.TestCase):
    def test_nothing_but_python_is_imported(self):
        code = "import sys, kiln; print(sorted({m.split('.')[0] for m in sys.modules} - set(sys.stdlib_module_names)))"
        env = dict(os.environ, PYTHONSAFEPATH="1")
        out = subprocess.run([sys.executable, "-S", "-c", code], env=env, capture_output=True, text=True, check=True)
        self.assertEqual(set(eval(out.stdout)) - {"__main__"}, {"kiln"})

    def test_a_missing_library_is_named(self):
        env = dict(os.environ, KILN_LIBRARY="/nowhere/libkiln.so")
        out = subprocess.run([sys.executable, "-c", "import kiln"], env=env, capture_output=True, text=True)
        self.assertNotEqual(out.returncode, 0)
        self.assertIn("OSError: /nowhere/libkiln.so", out.stderr)


if __name__ == "__main__":
    unittest.main()
