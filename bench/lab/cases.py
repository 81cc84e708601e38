"""Compared tasks and their targets."""

from typing import NamedTuple

MAX_INPUT = 0.05  # maximum fraction of an update in the input pipeline
MAX_OVER_NONE = 1.1  # maximum of Planish's time with layer norm over its time without a norm, for recurrent tasks
NORMS = ("none", "layer", "layer-simple", "rms")
QUICK_NORMS = ("none", "layer")


class Task(NamedTuple):
    module: str  # of the model in PyTorch
    min_ratio: float  # minimum of PyTorch's time over Planish's
    norms: tuple = NORMS
    recurrent: bool = False  # also compared with itself without a norm
    preset: str = ""  # of the task; empty: --preset
    batch_sizes: tuple = (None,)  # None: the preset's
    lean: bool = False  # also compared with itself without keeping freed memory


TASKS = {
    "pi-mnist": Task("pi_mnist", 1.2, ("none", "batch", "layer", "layer-simple"), preset="paper",
                     batch_sizes=(128, 4), lean=True),
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
    batch_size: int | None = None

    def __str__(self):
        return " ".join([self.task, self.norm, f"t{self.threads}"] + [f"b{self.batch_size}"] * bool(self.batch_size))

    def settings(self):
        """Returns the settings that the case changes."""
        return {"norm": self.norm} | ({"batch_size": str(self.batch_size)} if self.batch_size else {})


def all_cases(threads, quick):
    """Returns cases ordered by threads, then by task, so that processes and data are made once."""
    return [Case(task, norm, t, size) for t in threads for task, about in TASKS.items()
            for norm in (QUICK_NORMS if quick else about.norms) for size in about.batch_sizes]  # fmt: skip
