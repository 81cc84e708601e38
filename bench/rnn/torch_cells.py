"""LN-LSTM composed in Python from PyTorch's operators: as TorchScript, and with a cell compiled by
torch.compile. Also the sLSTM of the package xlstm, whose backend for CPUs is composed, too.

Reads rnn_bench's cases from standard input and prints a line of JSON for each, as described in
rnn_bench.cc. All other contestants are rnn_bench's own, in C++, in this process.

In the LN-LSTM the GEMM of the inputs, its norm and its bias are computed for all steps at once.
Inputs are split by unbind, because x[t] in every step makes backward quadratic in T. Only the step
is compiled, because compiling the loop over T takes minutes."""

import ctypes
import json
import pathlib
import sys
import warnings

import numpy as np
import torch
from torch.func import functional_call
from torch.nn.functional import layer_norm, linear

sys.path.append(str(pathlib.Path(__file__).parent.parent / "base"))
from turns import Library, measure, seconds_of  # noqa: E402

EPS = 1e-5
BEGIN_TYPES = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p)
PARAMETERS = ("weight_ih", "weight_hh", "bias", "ln_ih_weight", "ln_ih_bias", "ln_hh_weight", "ln_hh_bias",
              "ln_c_weight", "ln_c_bias")  # fmt: skip
PARAMETERS_OF = {"ln-lstm": PARAMETERS, "slstm": PARAMETERS[:3]}
# The order of rnn_bench_begin's addresses.
ARRAYS = ("x", "dy", "h", "c", "y", "dx", *PARAMETERS, *(f"d{name}" for name in PARAMETERS))


def cell(gates, h, c, weight_hh, ln_hh_weight, ln_hh_bias, ln_c_weight, ln_c_bias):
    """A step; `gates` is the inputs' part, with the bias."""
    gates = gates + layer_norm(linear(h, weight_hh), ln_hh_weight.shape, ln_hh_weight, ln_hh_bias, EPS)
    i, f, g, o = gates.chunk(4, 1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    h = torch.sigmoid(o) * torch.tanh(layer_norm(c, ln_c_weight.shape, ln_c_weight, ln_c_bias, EPS))
    return h, c


def of_inputs(x, weight_ih, bias, ln_ih_weight, ln_ih_bias):
    return layer_norm(linear(x, weight_ih), ln_ih_weight.shape, ln_ih_weight, ln_ih_bias, EPS) + bias


# TorchScript reads names and types from the source, so the layer is written out.
SCRIPT = """
def layer(x, h, c, weight_ih, weight_hh, bias, ln_ih_weight, ln_ih_bias, ln_hh_weight, ln_hh_bias,
          ln_c_weight, ln_c_bias):
    gates, hidden = [weight_hh.size(0)], [weight_hh.size(1)]
    inputs = torch.layer_norm(torch.matmul(x, weight_ih.t()), gates, ln_ih_weight, ln_ih_bias, 1e-5) + bias
    y = []
    for step in inputs.unbind(0):
        step = step + torch.layer_norm(torch.mm(h, weight_hh.t()), gates, ln_hh_weight, ln_hh_bias, 1e-5)
        i, f, g, o = step.chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(torch.layer_norm(c, hidden, ln_c_weight, ln_c_bias, 1e-5))
        y.append(h)
    return torch.stack(y)
"""


def script_layer(case):
    return torch.jit.CompilationUnit(SCRIPT).layer


def compiled_layer(case):
    torch._dynamo.reset()  # code is specific to a shape and a number of threads
    step = torch.compile(cell, dynamic=False)
    inputs = torch.compile(of_inputs, dynamic=False)

    def layer(x, h, c, weight_ih, weight_hh, bias, ln_ih_weight, ln_ih_bias, *rest):
        y = []
        for gates in inputs(x, weight_ih, bias, ln_ih_weight, ln_ih_bias).unbind(0):
            h, c = step(gates, h, c, weight_hh, *rest)
            y.append(h)
        return torch.stack(y)

    return layer


def xlstm_layer(case):
    from xlstm.blocks.slstm.cell import sLSTMCell, sLSTMCellConfig

    config = sLSTMCellConfig(hidden_size=case.hidden, num_heads=case.heads, backend="vanilla", dtype="float32",
                             input_shape="SBGNH", output_shape="SBH")  # fmt: skip
    cell = sLSTMCell(config)

    def layer(x, h, c, weight_ih, weight_hh, bias):
        kernel = weight_hh.unflatten(0, (4, case.heads, -1)).transpose(0, 1).flatten(1, 2)
        return functional_call(cell, {"_bias_": bias, "_recurrent_kernel_": kernel}, (linear(x, weight_ih),))[0]

    return layer


# Name: (cell, function that returns the layer of a case).
LAYERS = {"script": ("ln-lstm", script_layer), "compile": ("ln-lstm", compiled_layer), "xlstm": ("slstm", xlstm_layer)}


class Case:
    """One line of the input, and its arrays in numpy: `case.x`, `case.weight_ih` and so on."""

    def __init__(self, library, line):
        self.mode, self.shape, threads, names = line.split()
        self.threads, self.names = int(threads), names.split(",")
        sizes, _, heads = self.shape.partition("+h")
        t, b, i, h = map(int, sizes.split("x"))
        self.hidden, self.heads = h, int(heads or 1)
        pointers = (ctypes.c_void_p * len(ARRAYS))()
        library.call("begin", self.mode.encode(), self.shape.encode(), self.threads, pointers)
        shapes = {"x": (t, b, i), "h": (b, h), "c": (b, h), "y": (t, b, h), "weight_ih": (4 * h, i),
                  "weight_hh": (4 * h, h // self.heads), "ln_c_weight": (h,), "ln_c_bias": (h,)}  # fmt: skip
        for name, pointer in zip(ARRAYS, pointers):
            array = None
            if pointer:
                address = ctypes.cast(pointer, ctypes.POINTER(ctypes.c_float))
                array = np.ctypeslib.as_array(address, shapes.get(name.removeprefix("d"), (4 * h,)))
            setattr(self, name, array)


def make(case, kind, layer):
    """Returns (call, fetch): the work, and copying its results into the case's arrays."""
    torch.set_num_threads(case.threads)
    tensor = torch.from_numpy
    names = PARAMETERS_OF[kind]
    x, *parameters = (tensor(getattr(case, name)) for name in ("x", *names))
    if case.mode == "step":
        h, c = tensor(case.h), tensor(case.c)
    else:
        h = c = torch.zeros(x.shape[1], case.y.shape[2])
    results = {}
    if case.mode != "training":

        def call():
            with torch.no_grad():
                results["y"] = layer(x, h, c, *parameters)

        return call, lambda: np.copyto(case.y, results["y"].numpy())
    inputs = [tensor.requires_grad_() for tensor in (x, *parameters)]
    dy = tensor(case.dy)

    def call():
        y = layer(inputs[0], h, c, *inputs[1:])
        results["y"] = y
        results["gradients"] = torch.autograd.grad(y, inputs, dy)

    def fetch():
        np.copyto(case.y, results["y"].detach().numpy())
        for name, gradient in zip(("x", *names), results["gradients"]):
            np.copyto(getattr(case, f"d{name}"), gradient.numpy())

    return call, fetch


def run_case(library, line, blocks, seconds, max_seconds):
    case = Case(library, line)
    result = {"mode": case.mode, "shape": case.shape, "threads": case.threads}
    result |= {"seconds": {}, "absent": {}, "wrong": {}}
    names, calls = [], {}
    for name in case.names:
        who, _, kind = name.partition(":")
        if who not in LAYERS:
            library.call("add", name.encode())
            names.append(name)
            continue
        own, layer_of = LAYERS[who]
        if kind != own:
            result["absent"][name] = f"has only {own}"
            continue
        try:
            call, fetch = make(case, kind, layer_of(case))
            call()  # compiles; TorchScript in the first two calls
        except Exception as error:  # of any type, for example without a C++ compiler, or without xlstm
            result["absent"][name] = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
            continue
        library.call("poison", kind.encode())
        call()
        fetch()
        if text := library.wrong():
            result["wrong"][name] = text
            continue
        names.append(name)
        calls[name] = call

    def block_of(name, count):
        return seconds_of(calls[name], count) if name in calls else library.seconds(name, count)

    times = measure(block_of, names, blocks, seconds, max_seconds)
    result["seconds"] = {name: min(blocks) for name, blocks in times.items()}
    return result


def main():
    if len(sys.argv) != 5:
        sys.exit(f"usage: {sys.argv[0]} LIBRARY BLOCKS SECONDS MAX_SECONDS <CASES")
    blocks, seconds, max_seconds = int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])
    warnings.filterwarnings("ignore", category=DeprecationWarning)  # TorchScript's, in this process
    library = Library(sys.argv[1], "rnn_bench", BEGIN_TYPES)
    for line in sys.stdin:
        if line.strip():
            print(json.dumps(run_case(library, line, blocks, seconds, max_seconds)), flush=True)


if __name__ == "__main__":
    main()
