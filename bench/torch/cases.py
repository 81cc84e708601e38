"""Measurements of bench.py, and their targets."""

import dataclasses

# Norms by name. modules.py has their modules in torch.nn (or as users write them) and in Planish.
CONTESTANTS = ("planish", "eager", "compile")
MODES = ("forward", "training")

# Rows and columns: one that shows the cost of a call, then the shapes of bench/norm's comparison.
SHAPES = (
    (32, 64), (32, 1024), (512, 1024), (4096, 256), (4096, 1024), (16384, 768), (65536, 128), (4096, 4096),
    (64, 65536), (599186, 7), (127100, 33), (33026, 127), (5454, 769), (4194, 1000), (1024, 4095),
)  # fmt: skip
# Shapes of the other norms: a call, two sizes of a layer in the caches and one in memory.
OTHER_SHAPES = ((32, 64), (512, 1024), (4096, 1024), (16384, 768))
IMAGES = ((8, 96, 28, 28), (4, 256, 14, 14))
QUICK_SHAPES = ((32, 64), (512, 1024), (127100, 33))
OTHERS = ("rms_norm", "add_layer_norm", "layer_norm_bfloat16", "norm_then_gate", "gate_then_norm", "dyt", "derf")
OF_IMAGES = ("channel_layer_norm", "batch_norm_2d", "group_norm_2d", "instance_norm_2d")

LEAST = 1.0  # of eager PyTorch's speed, at every shape
MAX_OVERHEAD = 2e-6  # seconds a call, over the core's
MAX_MEMORY = 1.0  # of nn.LayerNorm's peak, in a training step


@dataclasses.dataclass(frozen=True)
class Case:
    norm: str
    mode: str
    shape: tuple
    threads: int

    def line(self):
        return f"{self.norm} {self.mode} {self.name} {self.threads}"

    @property
    def name(self):
        return "x".join(map(str, self.shape))

    def __str__(self):
        return f"{self.norm} {self.mode} {self.name} t{self.threads}"


def all_cases(threads, quick):
    cases = []
    for t in threads:
        for mode in MODES:
            for shape in QUICK_SHAPES if quick else SHAPES:
                cases.append(Case("layer_norm", mode, shape, t))
            for norm in () if quick else OTHERS:
                cases += [Case(norm, mode, shape, t) for shape in OTHER_SHAPES]
            for norm in () if quick else OF_IMAGES:
                cases += [Case(norm, mode, shape, t) for shape in IMAGES]
    return cases
