"""Peak memory of a training step: bytes beyond inputs, targets and parameters, of one contestant.

Each contestant needs its own process, because the system only reports a process's peak. A *step*
is that of a training loop: `output = module(x)`, a loss and its backward, which creates the
gradients. A *call* gets gradients that the caller owns and keeps."""

import pathlib
import resource
import sys

sys.path.append(str(pathlib.Path(__file__).parent.parent / "base"))
import torch  # noqa: E402
from modules import Problem, outputs_of  # noqa: E402
from torch.nn.functional import mse_loss  # noqa: E402


def step(problem, who):
    module = problem.module(who)

    def run():
        outputs = outputs_of(module(*problem.inputs))
        sum(mse_loss(y, target) for y, target in zip(outputs, problem.gradients)).backward()

    return run


def training(problem, who, what):
    return step(problem, who) if what == "step" else problem.call(who, "training")


def main():
    what, who, norm, shape = sys.argv[1:5]
    torch.set_num_threads(1)
    rows, cols = map(int, shape.split("x"))
    training(Problem(norm, (64, cols)), who, what)()  # loads the code for this number of columns
    run = training(Problem(norm, (rows, cols)), who, what)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    run()
    print(1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before))


if __name__ == "__main__":
    main()
