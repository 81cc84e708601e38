"""The peak memory of a training step: bytes beyond what inputs and parameters have, of one contestant.

A process for each: what a process has had at most is all that the system tells.
"""

import pathlib
import resource
import sys

sys.path.append(str(pathlib.Path(__file__).parent.parent / "base"))
import torch  # noqa: E402
from modules import Problem  # noqa: E402


def main():
    who, norm, shape = sys.argv[1:4]
    torch.set_num_threads(1)
    rows, cols = map(int, shape.split("x"))
    Problem(norm, (64, cols)).call(who, "training")()  # loads the code that these columns take
    call = Problem(norm, (rows, cols)).call(who, "training")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    call()
    print(1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before))


if __name__ == "__main__":
    main()
