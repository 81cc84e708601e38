"""Layer norm and a layer-normalized LSTM through the C interface and ctypes, without PyTorch and NumPy.

    python call_from_python.py [path of libplanish.so]

A binding for another language does the same: declare the structs, let the _init functions fill them, check each status.
"""

import ctypes
import math
import sys
from ctypes import POINTER, byref, c_double, c_int32, c_int64, c_size_t, c_uint32, c_void_p, sizeof

FLOAT = 1  # planish_type
NORM_LAYER = 0  # planish_norm
CELL_LN_LSTM = 6  # planish_cell


class ParallelFor(ctypes.Structure):
    _fields_ = [("function", c_void_p), ("context", c_void_p)]


class NormOptions(ctypes.Structure):
    _fields_ = [("struct_size", c_uint32), ("new_outputs", c_int32), ("eps", c_double), ("scale", c_double),
                ("slope", c_double), ("parallel_for", ParallelFor)]  # fmt: skip


class NormForwardArgs(ctypes.Structure):
    _fields_ = [("struct_size", c_uint32), ("type", c_int32), ("param_type", c_int32), ("rows", c_int64), ("cols", c_int64),
                *((name, c_void_p) for name in ("x", "gain", "bias", "y", "mean", "mean_lo", "rstd", "residual", "sum")),
                *((name, c_int64) for name in ("x_stride", "y_stride", "residual_stride", "sum_stride"))]  # fmt: skip


class NormBackwardArgs(ctypes.Structure):
    _fields_ = [("struct_size", c_uint32), ("type", c_int32), ("param_type", c_int32), ("rows", c_int64), ("cols", c_int64),
                *((name, c_void_p) for name in ("dy", "x", "gain", "mean", "mean_lo", "rstd", "dx", "dgain", "dbias", "dsum")),
                *((name, c_int64) for name in ("dy_stride", "x_stride", "dx_stride", "dsum_stride"))]  # fmt: skip


class RnnParams(ctypes.Structure):
    _fields_ = [("struct_size", c_uint32),
                *((name, c_void_p) for name in (
                    "weight_ih", "weight_hh", "bias", "bias_hn", "ln_ih_weight", "ln_ih_bias", "ln_hh_weight", "ln_hh_bias",
                    "ln_weight", "ln_bias", "ln_c_weight", "ln_c_bias"))]  # fmt: skip


class RnnPackArgs(ctypes.Structure):
    _fields_ = [("struct_size", c_uint32), ("type", c_int32), ("backward", c_int32), ("inputs", c_int64), ("hidden", c_int64),
                ("params", POINTER(RnnParams)), ("parallel_for", ParallelFor)]  # fmt: skip


class RnnOptions(ctypes.Structure):
    _fields_ = [("struct_size", c_uint32), ("checkpoint", c_int32), ("eps", c_double), ("parallel_for", ParallelFor),
                ("packed", c_void_p)]  # fmt: skip


class RnnStepArgs(ctypes.Structure):
    _fields_ = [("struct_size", c_uint32), ("type", c_int32), ("batch", c_int64), ("inputs", c_int64), ("hidden", c_int64),
                ("x", c_void_p), ("params", POINTER(RnnParams)), ("h", c_void_p), ("c", c_void_p), ("h_next", c_void_p),
                ("c_next", c_void_p)]  # fmt: skip


class PlanishError(Exception):
    pass


class Planish:
    """The library, whose functions raise PlanishError with its message."""

    def __init__(self, path="libplanish.so"):
        self._library = ctypes.CDLL(path)
        for name in ("planish_version", "planish_target", "planish_error_message"):
            getattr(self._library, name).restype = ctypes.c_char_p
        self._library.planish_rnn_packed_free.restype = None
        self.version = self._library.planish_version().decode()
        self.target = self._library.planish_target().decode()

    def new(self, struct, **fields):
        """Returns a struct of the C interface with its defaults and the given fields."""
        value = struct()
        name = "planish" + "".join("_" + c.lower() if c.isupper() else c for c in struct.__name__)
        self.call(name + "_init", byref(value), c_size_t(sizeof(value)))
        for field, given in fields.items():
            setattr(value, field, ctypes.cast(given, c_void_p) if isinstance(given, ctypes.Array) else given)
        return value

    def call(self, name, *arguments):
        if getattr(self._library, name)(*arguments) != 0:
            raise PlanishError(self._library.planish_error_message().decode())

    def free_packed(self, packed):
        self._library.planish_rnn_packed_free(packed)


def floats(values):
    """Returns an array of C floats; an int is its length."""
    return (ctypes.c_float * values)() if isinstance(values, int) else (ctypes.c_float * len(values))(*values)


def layer_norm(planish):
    x, dy = floats([-1, 0, 1, 1, 2, 3]), floats([1, 0, 0, 0, 1, 0])
    gain, bias = floats([1, 2, 3]), floats([0, 0, 10])
    y, dx, dgain = floats(6), floats(6), floats(3)
    mean, mean_lo, rstd = floats(2), floats(2), floats(2)
    shape = {"type": FLOAT, "rows": 2, "cols": 3}
    statistics = {"mean": mean, "mean_lo": mean_lo, "rstd": rstd}
    options = planish.new(NormOptions, eps=1e-6)
    forward = planish.new(NormForwardArgs, **shape, x=x, gain=gain, bias=bias, y=y, **statistics)
    planish.call("planish_norm_forward", NORM_LAYER, byref(forward), byref(options))
    backward = planish.new(NormBackwardArgs, **shape, dy=dy, x=x, gain=gain, **statistics, dx=dx, dgain=dgain)
    planish.call("planish_norm_backward", NORM_LAYER, byref(backward), byref(options))

    # xhat of both rows is (-s, 0, s); the rows of dx sum to 0.
    s = 1 / math.sqrt(2 / 3 + 1e-6)
    expected = [-s, 0, 3 * s + 10] * 2
    assert all(abs(a - b) < 1e-5 for a, b in zip(y, expected)), list(y)
    assert abs(dgain[0] + s) < 1e-5
    assert abs(sum(dx[:3])) < 1e-5
    return list(y)


def lstm_steps(planish, inputs=4, hidden=8, steps=5):
    """Returns the hidden states of an LN-LSTM, each step with the last output as its input."""
    weight_ih = floats([math.sin(1 + i) for i in range(4 * hidden * inputs)])
    weight_hh = floats([math.sin(2 * i) for i in range(4 * hidden * hidden)])
    params = planish.new(RnnParams, weight_ih=weight_ih, weight_hh=weight_hh)
    pack = planish.new(RnnPackArgs, type=FLOAT, inputs=inputs, hidden=hidden, params=ctypes.pointer(params))
    packed = c_void_p()
    planish.call("planish_rnn_pack", CELL_LN_LSTM, byref(pack), byref(packed))
    try:
        options = planish.new(RnnOptions, packed=packed)
        x, h, c = floats([1] + [0] * (inputs - 1)), floats(hidden), floats(hidden)
        step = planish.new(RnnStepArgs, type=FLOAT, batch=1, inputs=inputs, hidden=hidden, x=x, h=h, c=c, h_next=h, c_next=c)
        states = []
        for _ in range(steps):
            planish.call("planish_rnn_step", CELL_LN_LSTM, byref(step), byref(options))
            x[:] = h[:inputs]
            states.append(list(h))
        return states
    finally:
        planish.free_packed(packed)


def main():
    planish = Planish(*sys.argv[1:2])
    print(f"Planish {planish.version}, SIMD target {planish.target}")
    print("y =", " ".join(f"{value:.3f}" for value in layer_norm(planish)))
    for t, h in enumerate(lstm_steps(planish)):
        print(f"h[0] after step {t + 1} = {h[0]:.4f}")
    try:
        planish.call("planish_norm_forward", NORM_LAYER, byref(planish.new(NormForwardArgs, type=FLOAT, rows=-1)), None)
    except PlanishError as error:
        print(error)


if __name__ == "__main__":
    main()
