"""Overhead of a call from Python over the core's work in it: seconds, as a line of JSON.

The core is called from C++ with outputs given (norm_bench's contestant planish:layer); the
operator and PyTorch's operator are called from Python as their modules do. They alternate on one
thread."""

import ctypes
import json
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).parent.parent / "base"))
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from turns import Library, measure, seconds_of  # noqa: E402

import planish  # noqa: E402

BEGIN_TYPES = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int, ctypes.c_void_p)
ARRAYS = 9


def main():
    library = Library(sys.argv[1], "norm_bench", BEGIN_TYPES)
    torch.set_num_threads(1)
    results = []
    for rows, cols in ((8, 8), (32, 64), (32, 1024)):
        library.call("begin", b"forward", b"float", rows, cols, 1, (ctypes.c_void_p * ARRAYS)())
        library.call("add", b"planish:layer")
        x, weight, bias = torch.randn(rows, cols), torch.ones(cols), torch.zeros(cols)
        shape = (cols,)
        ours, theirs = planish.functional.layer_norm, F.layer_norm
        calls = {
            "planish": lambda: ours(x, shape, weight, bias, 1e-5),  # noqa: B023
            "eager": lambda: theirs(x, shape, weight, bias, 1e-5),  # noqa: B023
        }

        def block(who, n):
            if who == "core":
                return library.seconds("planish:layer", n)
            with torch.no_grad():
                return seconds_of(calls[who], n)  # noqa: B023

        seconds = measure(block, ["core", *calls], 15, 0.01)
        results.append({"shape": f"{rows}x{cols}", "seconds": {who: min(s) for who, s in seconds.items()}})
    print(json.dumps(results))


if __name__ == "__main__":
    main()
