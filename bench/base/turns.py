"""What the peers in Python share: shared libraries made from the comparisons' C++, and turns in one process."""

import ctypes
import random
import time

# Between the blocks of different contestants: the workers of the one's pool spin before they sleep,
# and take the cores from the other's.
PAUSE = 0.01
LEAST_BLOCKS = 3


class Absent(Exception):
    """Why a peer cannot do a case."""


class Library:
    """A comparison's c_api.cc, whose functions' names begin with `prefix`: `library.call("begin", ...)`."""

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
        """Raises RuntimeError where the function fails."""
        if self.function(name)(*arguments):
            raise RuntimeError(self.text())

    def wrong(self):
        """What is wrong with the results, or None."""
        return self.text() if self.function("compare")() else None

    def seconds(self, name, calls):
        return self.function("seconds")(name.encode(), calls)


def seconds_of(call, calls):
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return time.perf_counter() - start


def measure(block_of, names, repetitions, block, most=float("inf")):
    """{name: seconds of a call in each block}, where block_of(name, calls) takes the time of some calls; the
    order of the blocks is drawn at random. One whose blocks would take longer than `most` together has
    fewer, but 3 if `repetitions` are as many."""
    calls, order = {}, []
    for name in names:
        calls[name] = 1
        while (seconds := block_of(name, calls[name])) < block:  # warms up, too
            growth = block * 1.2 / max(seconds, 1e-9)
            calls[name] = int(calls[name] * min(10, max(growth, 1.5))) + 1
        order += [name] * int(min(repetitions, max(LEAST_BLOCKS, most / seconds)))
    random.Random(0).shuffle(order)
    results, last = {name: [] for name in names}, None
    for name in order:
        if name != last:
            time.sleep(PAUSE)
        if calls[name] > 1:  # for a long call that is nothing
            block_of(name, 1)  # wakes its workers
        results[name].append(block_of(name, calls[name]) / calls[name])
        last = name
    return results
