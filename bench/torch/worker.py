"""Measures the cases of standard input, all with one number of threads, and prints a line of JSON
each.

A case is 'norm forward|training shape threads'. The contestants' results are compared with a
computation in double before anything is timed. A call makes new outputs, as for a user."""

import gc
import json
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).parent.parent / "base"))
import torch  # noqa: E402
from modules import Problem, wrong  # noqa: E402
from turns import measure, seconds_of  # noqa: E402


def run_case(norm, mode, shape, threads, contestants, blocks, seconds, max_seconds):
    torch.set_num_threads(threads)
    result = {"norm": norm, "mode": mode, "shape": shape, "threads": threads, "seconds": {}, "wrong": {}}
    problem = Problem(norm, tuple(map(int, shape.split("x"))))
    exact = problem.exact(mode)
    calls = {}
    for who in contestants:
        torch._dynamo.reset()  # code is specific to a shape and a number of threads
        call = problem.call(who, mode)
        if text := wrong(problem, mode, call(), exact):
            result["wrong"][who] = text
        else:
            calls[who] = call
    del exact
    gc.collect()
    result["seconds"] = measure(lambda who, n: seconds_of(calls[who], n), list(calls), blocks, seconds, max_seconds)
    return result


def main():
    if len(sys.argv) != 5:
        sys.exit(f"usage: {sys.argv[0]} CONTESTANTS BLOCKS SECONDS MAX_SECONDS <CASES")
    contestants, blocks, seconds, max_seconds = sys.argv[1].split(","), int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])
    for line in sys.stdin:
        norm, mode, shape, threads = line.split()
        result = run_case(norm, mode, shape, int(threads), contestants, blocks, seconds, max_seconds)
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
