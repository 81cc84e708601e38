"""What the peers in Python share: norm_bench's protocol, with its limits and Planish in the process.

A peer reads cases from standard input and prints a line of JSON for each, as norm_bench.cc
describes; contestants without a colon, and planish:..., are norm_bench's own, in C++, so that the
peer is measured beside the very same copy.
"""

import ctypes
import json
import random
import sys
import time

import numpy as np

# Between the blocks of different contestants: the workers of the one's pool spin before they sleep,
# and take the cores from the other's.
PAUSE = 0.01
ARRAYS = ("x", "dy", "gain", "bias", "mean", "rstd", "out", "dgain", "dbias")


class Absent(Exception):
    """Why a peer cannot do a case."""


class Case:
    """One line of the input, and its arrays as numpy sees them: `case.x`, `case.gain` and so on."""

    def __init__(self, library, line):
        direction, dtype, shape, threads, names = line.split()
        rows, cols = shape.split("x")
        self.direction, self.type, self.names = direction, dtype, names.split(",")
        self.rows, self.cols, self.threads = int(rows), int(cols), int(threads)
        if dtype not in ("float", "double"):
            raise ValueError(f"[peer] type must be float or double but has {dtype}")
        pointers = (ctypes.c_void_p * len(ARRAYS))()
        arguments = (direction.encode(), dtype.encode(), self.rows, self.cols, self.threads)
        library.check(library.c.norm_bench_begin(*arguments, pointers))
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


class Library:
    """libnorm_bench_c, from c_api.cc."""

    def __init__(self, path):
        self.c = ctypes.CDLL(path)
        self.c.norm_bench_begin.argtypes = (
            ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int,
            ctypes.c_void_p)  # fmt: skip
        self.c.norm_bench_seconds.argtypes = (ctypes.c_char_p, ctypes.c_int64)
        self.c.norm_bench_seconds.restype = ctypes.c_double
        self.c.norm_bench_text.restype = ctypes.c_char_p

    def text(self):
        return self.c.norm_bench_text().decode()

    def check(self, failed):
        if failed:
            raise RuntimeError(self.text())


def measure(seconds_of, names, repetitions, block):
    """{name: seconds of a call in each block}; the order of the blocks is drawn at random."""
    calls = {}
    for name in names:
        calls[name] = 1
        while (seconds := seconds_of(name, calls[name])) < block:  # warms up, too
            growth = block * 1.2 / max(seconds, 1e-9)
            calls[name] = int(calls[name] * min(10, max(growth, 1.5))) + 1
    order = [name for name in names for _ in range(repetitions)]
    random.Random(0).shuffle(order)
    results, last = {name: [] for name in names}, None
    for name in order:
        if name != last:
            time.sleep(PAUSE)
        seconds_of(name, 1)  # wakes its workers
        results[name].append(seconds_of(name, calls[name]) / calls[name])
        last = name
    return results


def run_case(library, line, peer, make, repetitions, block):
    case = Case(library, line)
    result = {key: getattr(case, key) for key in ("direction", "type", "rows", "cols", "threads")}
    result |= {"spatial": 1, "seconds": {}, "absent": {}, "wrong": {}}
    names, call = [], None
    for name in case.names:
        if name.partition(":")[0] != peer:
            library.check(library.c.norm_bench_add(name.encode()))
            names.append(name)
            continue
        try:
            call = make(case, name.partition(":")[2])
        except Absent as reason:
            result["absent"][name] = str(reason)
            continue
        library.check(library.c.norm_bench_poison(name.partition(":")[2].encode()))
        call()
        if library.c.norm_bench_compare():
            result["wrong"][name] = library.text()
            continue
        names.append(name)

    def seconds_of(name, calls):
        if name.partition(":")[0] != peer:
            return library.c.norm_bench_seconds(name.encode(), calls)
        start = time.perf_counter()
        for _ in range(calls):
            call()
        return time.perf_counter() - start

    result["seconds"] = measure(seconds_of, names, repetitions, block)
    return result


def main(peer, make):
    """`make(case, method)` gives the peer's call, which writes into the case's arrays."""
    if len(sys.argv) != 4:
        sys.exit(f"usage: {sys.argv[0]} LIBRARY REPETITIONS SECONDS <CASES")
    library = Library(sys.argv[1])
    for line in sys.stdin:
        if line.strip():
            result = run_case(library, line, peer, make, int(sys.argv[2]), float(sys.argv[3]))
            print(json.dumps(result), flush=True)
