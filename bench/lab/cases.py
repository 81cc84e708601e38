"""Compared tasks and their targets."""

from typing import NamedTuple

MOST_INPUT = 0.05  # maximum fraction of an update in the input pipeline
MOST_OVER_NONE = 1.1  # maximum of Planish's time with layer norm over its time without a norm, for recurrent tasks
NORMS = ("none", "layer", "layer-simple", "rms")
QUICK_NORMS = ("none", "layer")


class Task(NamedTuple):
    module: str  # of the model in PyTorch
    least: float  # minimum of PyTorch's time over Planish's
    norms: tuple = NORMS
    recurrent: bool = False  # also compared with itself without a norm


TASKS = {
    "mnist-cnn": Task("mnist_cnn", 1.2),
    "rt": Task("sentences", 1.2),
    "sst5": Task("sentences", 1.0),
    "parser": Task("parser", 1.2),
    "mt": Task("mt", 1.0),
    "enwik8": Task("enwik8", 1.0),
    "order-embedding": Task("order_embedding", 1.15, ("none", "layer"), True),
    "draw": Task("draw", 1.15, ("none", "layer", "layer-full"), True),
    "handwriting": Task("handwriting", 2.0, ("none", "layer"), True),
    "attentive-reader": Task("attentive_reader", 1.15, ("none", "layer"), True),
    "skip-thoughts": Task("skip_thoughts", 1.15, ("none", "layer"), True),
}


class Case(NamedTuple):
    task: str
    norm: str
    threads: int

    def __str__(self):
        return f"{self.task} {self.norm} t{self.threads}"


def all_cases(threads, quick):
    """Returns cases ordered by threads, then by task, so that processes and data are made once."""
    return [Case(task, norm, t) for t in threads for task, about in TASKS.items()
            for norm in (QUICK_NORMS if quick else about.norms)]  # fmt: skip
