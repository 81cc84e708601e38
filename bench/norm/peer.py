"""Shared parts of the peers in Python: norm_bench's protocol, with its limits and Planish in the
process.

A peer reads cases from standard input and prints a line of JSON for each, as described in
norm_bench.cc. Contestants without a colon, and planish:..., are norm_bench's own, in C++, so that
the peer is compared with the same copy."""

import ctypes
import json
import pathlib
import sys

import numpy as np

sys.path.append(str(pathlib.Path(__file__).parent.parent / "base"))
from turns import Absent, Library, measure, seconds_of  # noqa: E402

__all__ = ["Absent", "main"]

BEGIN_TYPES = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int,
               ctypes.c_void_p)  # fmt: skip
ARRAYS = ("x", "dy", "gain", "bias", "mean", "rstd", "out", "dgain", "dbias")


class Case:
    """One line of the input, and its arrays in numpy: `case.x`, `case.gain` and so on."""

    def __init__(self, library, line):
        direction, dtype, shape, threads, names = line.split()
        rows, cols = shape.split("x")
        self.direction, self.type, self.names = direction, dtype, names.split(",")
        self.rows, self.cols, self.threads = int(rows), int(cols), int(threads)
        if dtype not in ("float", "double"):
            raise ValueError(f"[peer] type must be float or double, got {dtype}")
        pointers = (ctypes.c_void_p * len(ARRAYS))()
        arguments = (direction.encode(), dtype.encode(), self.rows, self.cols, self.threads)
        library.call("begin", *arguments, pointers)
        element = ctypes.c_float if dtype == "float" else ctypes.c_double
        for name, pointer in zip(ARRAYS, pointers):
            shape = (self.rows, self.cols)
            if name in ("gain", "bias", "dgain", "dbias"):
                shape = (self.cols,)
            elif name in ("mean", "rstd"):
                shape = (self.rows,)
            array = None
            if pointer:
                address = ctypes.cast(pointer, ctypes.POINTER(element))
                array = np.ctypeslib.as_array(address, shape)
            setattr(self, name, array)


def run_case(library, line, peer, make, repetitions, block):
    case = Case(library, line)
    result = {key: getattr(case, key) for key in ("direction", "type", "rows", "cols", "threads")}
    result |= {"spatial": 1, "seconds": {}, "absent": {}, "wrong": {}}
    names, call = [], None
    for name in case.names:
        if name.partition(":")[0] != peer:
            library.call("add", name.encode())
            names.append(name)
            continue
        try:
            call = make(case, name.partition(":")[2])
        except Absent as reason:
            result["absent"][name] = str(reason)
            continue
        library.call("poison", name.partition(":")[2].encode())
        call()
        if text := library.wrong():
            result["wrong"][name] = text
            continue
        names.append(name)

    def block_of(name, calls):
        own = name.partition(":")[0] == peer
        return seconds_of(call, calls) if own else library.seconds(name, calls)

    result["seconds"] = measure(block_of, names, repetitions, block)
    return result


def main(peer, make):
    """Runs the protocol. `make(case, method)` returns the peer's call, which writes into the
    case's arrays."""
    if len(sys.argv) != 4:
        sys.exit(f"usage: {sys.argv[0]} LIBRARY REPETITIONS SECONDS <CASES")
    library = Library(sys.argv[1], "norm_bench", BEGIN_TYPES)
    for line in sys.stdin:
        if line.strip():
            result = run_case(library, line, peer, make, int(sys.argv[2]), float(sys.argv[3]))
            print(json.dumps(result), flush=True)
