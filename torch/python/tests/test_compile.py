"""One compiled graph for all sizes of a batch."""

import pytest
import torch
from torch import nn

import planish.functional as PF
from planish import nn as pnn

SIZES = range(2, 11)  # nine sizes; PyTorch compiles a size of 1 separately


class Sum(nn.Module):
    """The norm of x + x, and the sum."""

    def __init__(self, rms):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8))
        self.rms = rms

    def forward(self, x):
        if self.rms:
            y, total = PF.add_rms_norm(x, x, [8], self.weight)
        else:
            y, total = PF.add_layer_norm(x, x, [8], self.weight)
        return y * total


class Sequence(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x)[0]


def recurrent(make, **options):
    return lambda: Sequence(make(8, 5, **options))


# Modules, the shape of their inputs for a batch of n, and the dimensions that depend on n.
MODULES = {
    "RowNorm": (lambda: pnn.RowNorm(8, "rms"), lambda n: (n, 8), (0,)),
    "LayerNorm": (lambda: pnn.LayerNorm(8), lambda n: (n, 8), (0,)),
    "LayerNorm without parameters": (lambda: pnn.LayerNorm(8, elementwise_affine=False), lambda n: (n, 8), (0,)),
    "LayerNorm of 3 dimensions": (lambda: pnn.LayerNorm(8), lambda n: (n, n + 1, 8), (0, 1)),
    "LayerNorm over 2 dimensions": (lambda: pnn.LayerNorm((4, 8)), lambda n: (n, 4, 8), (0,)),
    "RMSNorm": (lambda: pnn.RMSNorm(8), lambda n: (n, 8), (0,)),
    "RMSNorm in bfloat16": (lambda: pnn.RMSNorm(8, dtype=torch.bfloat16), lambda n: (n, 8), (0,)),
    "LayerNormSimple": (lambda: pnn.LayerNormSimple(8), lambda n: (n, 8), (0,)),
    "DetachNorm": (lambda: pnn.DetachNorm(8), lambda n: (n, 8), (0,)),
    "AdaNorm": (lambda: pnn.AdaNorm(8), lambda n: (n, 8), (0,)),
    "AdaNorm as coded": (lambda: pnn.AdaNorm(8, as_coded=True), lambda n: (n, 8), (0,)),
    "OnlineLayerNorm": (lambda: pnn.OnlineLayerNorm(8), lambda n: (n, 8), (0,)),
    "OnlineLayerNorm with 1/t": (lambda: pnn.OnlineLayerNorm(8, schedule="inverse"), lambda n: (n, 8), (0,)),
    "LayerNorm1d": (lambda: pnn.LayerNorm1d(8), lambda n: (n, 8, n + 1), (0, 2)),
    "LayerNorm2d": (lambda: pnn.LayerNorm2d(8), lambda n: (n, 8, n + 1, 4), (0, 2)),
    "BatchNorm1d": (lambda: pnn.BatchNorm1d(8), lambda n: (n, 8), (0,)),
    "BatchNorm2d": (lambda: pnn.BatchNorm2d(8), lambda n: (n, 8, n + 1, 4), (0, 2)),
    "RecurrentBatchNorm": (lambda: pnn.RecurrentBatchNorm(8, 20), lambda n: (5, n, 8), (1,)),
    "add_layer_norm": (lambda: Sum(False), lambda n: (n, 8), (0,)),
    "add_rms_norm": (lambda: Sum(True), lambda n: (n, 8), (0,)),
    "GroupNorm": (lambda: pnn.GroupNorm(4, 8), lambda n: (n, 8, n + 2), (0, 2)),
    "InstanceNorm2d": (lambda: pnn.InstanceNorm2d(8, affine=True), lambda n: (n, 8, 4, n + 1), (0, 3)),
    "DyT": (lambda: pnn.DyT(8), lambda n: (n, 8), (0,)),
    "Derf": (lambda: pnn.Derf(8), lambda n: (n, 3, 8), (0,)),
    "weight_norm": (lambda: pnn.weight_norm(nn.Linear(8, 3)), lambda n: (n, 8), (0,)),
    "LayerNormLSTM": (recurrent(pnn.LayerNormLSTM), lambda n: (n, n + 1, 8), (0, 1)),
    "LayerNormGRU": (recurrent(pnn.LayerNormGRU, bidirectional=True), lambda n: (n, n + 1, 8), (0, 1)),
    "LayerNormRNN": (recurrent(pnn.LayerNormRNN, num_layers=2), lambda n: (n, n + 1, 8), (0, 1)),
}  # fmt: skip


class Counting:
    """A backend that counts the graphs that it is given."""

    def __init__(self):
        self.graphs = 0
        self.compile = torch._dynamo.lookup_backend("aot_eager")

    def __call__(self, graph, inputs):
        self.graphs += 1
        return self.compile(graph, inputs)


@pytest.fixture(autouse=True)
def forget_graphs():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def run(module, x, gradients):
    if not gradients:
        with torch.no_grad():
            return [module(x)]
    x = x.requires_grad_()
    y = module(x)
    return [y, *torch.autograd.grad(y.sin().sum(), [x, *module.parameters()])]


TWO_MODES = ("OnlineLayerNorm", "BatchNorm1d", "BatchNorm2d", "RecurrentBatchNorm", "LayerNormLSTM")


@pytest.mark.long
@pytest.mark.parametrize("gradients", [True, False])
@pytest.mark.parametrize("mark", [True, False])
@pytest.mark.parametrize(
    ("name", "training"), [(name, True) for name in MODULES] + [(name, False) for name in TWO_MODES]
)
def test_one_graph_for_all_sizes(name, mark, gradients, training):
    make, shape_of, dims = MODULES[name]
    torch.manual_seed(0)
    modules = [make().train(training) for _ in range(2)]
    modules[1].load_state_dict(modules[0].state_dict())
    backend = Counting()
    # mark_dynamic raises if a graph holds for one size only.
    compiled = torch.compile(modules[0], backend=backend, fullgraph=True, dynamic=None if mark else True)
    first = None
    for n in SIZES:
        x = torch.randn(shape_of(n))
        other = x.clone()
        if mark:
            for dim in dims:
                torch._dynamo.mark_dynamic(x, dim)
        found, expected = run(compiled, x, gradients), run(modules[1], other, gradients)
        for a, b in zip(found, expected, strict=True):
            # The kernels are the same; a compiled graph can add gradients in another order.
            torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)
        # With dynamic=True PyTorch calls the backend twice for the first size, to keep eps constant.
        first = first or backend.graphs
        assert backend.graphs == first <= 2
