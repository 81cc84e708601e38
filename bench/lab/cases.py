"""The tasks that are compared, and what is asked of them."""

from typing import NamedTuple

MOST_INPUT = 0.05  # of an update, in the input pipeline


class Task(NamedTuple):
    module: str  # of the model in PyTorch
    least: float  # PyTorch's time over Planish's
    norms: tuple = ()  # those that it has; all when empty


TASKS = {
    "mnist-cnn": Task("mnist_cnn", 1.2),
    "rt": Task("sentences", 1.2),
    "sst5": Task("sentences", 1.0),
    "parser": Task("parser", 1.2),
    "mt": Task("mt", 1.0),
    "enwik8": Task("enwik8", 1.0),
    "order-embedding": Task("order_embedding", 1.15, ("none", "layer")),
}
NORMS = ("none", "layer", "layer-simple", "rms")
QUICK_NORMS = ("none", "layer")


class Case(NamedTuple):
    task: str
    norm: str
    threads: int

    def __str__(self):
        return f"{self.task} {self.norm} t{self.threads}"


def all_cases(threads, quick):
    """Ordered by threads, then by task, so that processes and data are made once."""
    norms = QUICK_NORMS if quick else NORMS
    return [Case(name, norm, t) for t in threads for name, task in TASKS.items() for norm in norms
            if not task.norms or norm in task.norms]  # fmt: skip
