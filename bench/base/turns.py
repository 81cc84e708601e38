"""Shared parts of the comparisons with Python libraries: calls of the C++ code in shared libraries,
and alternation in one process."""

import ctypes
import random
import time

# Seconds between the blocks of different contestants. Idle workers of one thread pool spin before they
# sleep, and take cores from the workers of another pool.
PAUSE = 0.01
MIN_BLOCKS = 3


class Absent(Exception):
    """Reason why a peer cannot run a case."""


class Library:
    """A comparison's c_api.cc, whose functions' names begin with `prefix`: `library.call("begin",
    ...)`."""

    def __init__(self, path, prefix, begin_types):
        self.c, self.prefix = ctypes.CDLL(path), prefix
        self.function("begin").argtypes = begin_types
        self.function("seconds").argtypes = (ctypes.c_char_p, ctypes.c_int64)
        self.function("seconds").restype = ctypes.c_double
        self.function("text").restype = ctypes.c_char_p

    def function(self, name):
        return getattr(self.c, f"{self.prefix}_{name}")

    def text(self):
        return self.function("text")().decode()

    def call(self, name, *arguments):
        """Raises RuntimeError if the function fails."""
        if self.function(name)(*arguments):
            raise RuntimeError(self.text())

    def wrong(self):
        """Returns the error of the results, or None."""
        return self.text() if self.function("compare")() else None

    def seconds(self, name, calls):
        return self.function("seconds")(name.encode(), calls)


def seconds_of(call, calls):
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return time.perf_counter() - start


def measure(block_of, names, repetitions, block, max_seconds=float("inf")):
    """Returns {name: seconds of a call in each block}, where block_of(name, calls) returns the
    time of `calls` calls. The order of the blocks is random. A contestant whose blocks would take
    longer than `max_seconds` in total has fewer, but at least min(3, `repetitions`)."""
    calls, order = {}, []
    for name in names:
        calls[name] = 1
        while (seconds := block_of(name, calls[name])) < block:  # also warms up
            growth = block * 1.2 / max(seconds, 1e-9)
            calls[name] = int(calls[name] * min(10, max(growth, 1.5))) + 1
        order += [name] * int(min(repetitions, max(MIN_BLOCKS, max_seconds / seconds)))
    random.Random(0).shuffle(order)
    results, last = {name: [] for name in names}, None
    for name in order:
        if name != last:
            time.sleep(PAUSE)
        if calls[name] > 1:  # negligible for a long call
            block_of(name, 1)  # wakes its workers
        results[name].append(block_of(name, calls[name]) / calls[name])
        last = name
    return results
