"""Models with this library's modules that torch.fx traces."""

import copy
import pickle

import pytest
import torch
import torch.fx
from torch import nn

import planish
import planish.functional as PF
from planish import nn as pnn


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


class Net(nn.Module):
    """A model of torch.nn's norms, each between two linear maps, for planish.convert."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.bn2 = nn.BatchNorm2d(4)
        self.linear = nn.Linear(4, 8)
        self.bn1 = nn.BatchNorm1d(8)
        self.ln = nn.LayerNorm(8)
        self.rms = nn.RMSNorm(8)

    def forward(self, x):
        x = self.bn2(self.conv(x)).relu().mean((2, 3))
        return self.rms(self.ln(self.bn1(self.linear(x)))).tanh()


class Recurrent(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer
        self.head = nn.Linear(5, 2)

    def forward(self, x):
        y, _ = self.layer(x)
        return self.head(y)


class WithState(Recurrent):
    def forward(self, x, lengths):
        y, (h, c) = self.layer(x, lengths=lengths)
        return self.head(y) + h.sum() + c.sum()


class Cell(nn.Module):
    def __init__(self, cell):
        super().__init__()
        self.cell = cell

    def forward(self, x, h):
        for t in range(3):
            h = self.cell(x[t], h)
        return h


class Functions(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(normal(6))

    def forward(self, x):
        y, total = PF.add_layer_norm(PF.layer_norm(x, (6,), self.weight, self.weight), x, (6,), self.weight)
        y = PF.ada_norm(PF.detach_norm(PF.layer_norm_simple(y + total, (6,)), (6,)), (6,))
        return PF.channel_layer_norm(PF.rms_norm(y, (6,), self.weight), self.weight)


MODELS = {
    "functions": (Functions, lambda n: (normal(n, 6),)),
    "converted": (lambda: planish.convert(model := Net(), "planish") and model, lambda n: (normal(n, 3, 6, 5),)),
    "LayerNorm1d": (lambda: nn.Sequential(nn.Linear(6, 8), pnn.LayerNorm1d(8)), lambda n: (normal(n, 6),)),
    "LayerNorm2d": (lambda: nn.Sequential(nn.Conv2d(3, 4, 2), pnn.LayerNorm2d(4)), lambda n: (normal(n, 3, 4, 5),)),
    "OnlineLayerNorm": (lambda: nn.Sequential(nn.Linear(6, 8), pnn.OnlineLayerNorm(8)), lambda n: (normal(n, 6),)),
    "RecurrentBatchNorm": (lambda: nn.Sequential(pnn.RecurrentBatchNorm(6, 4)), lambda n: (normal(3, n, 6),)),
    "rows": (
        lambda: nn.Sequential(
            pnn.LayerNorm(6), pnn.RMSNorm(6), pnn.LayerNormSimple(6), pnn.DetachNorm(6), pnn.AdaNorm(6), pnn.RowNorm(6, "rms"),
            pnn.weight_norm(nn.Linear(6, 2)),
        ),
        lambda n: (normal(n, 6),),
    ),
    "LayerNormLSTM": (lambda: Recurrent(pnn.LayerNormLSTM(6, 5)), lambda n: (normal(4, n, 6),)),
    "LayerNormGRU": (lambda: Recurrent(pnn.LayerNormGRU(6, 5)), lambda n: (normal(4, n, 6),)),
    "LayerNormRNN": (lambda: Recurrent(pnn.LayerNormRNN(6, 5)), lambda n: (normal(4, n, 6),)),
    "states and lengths": (
        lambda: WithState(pnn.LayerNormLSTM(6, 5, batch_first=True)),
        lambda n: (normal(n, 4, 6), torch.arange(n) % 4 + 1),
    ),
    "LayerNormGRUCell": (lambda: Cell(pnn.LayerNormGRUCell(6, 5)), lambda n: (normal(3, n, 6), normal(n, 5))),
    "LayerNormRNNCell": (lambda: Cell(pnn.LayerNormRNNCell(6, 5)), lambda n: (normal(3, n, 6), normal(n, 5))),
    "LayerNormLSTMCell": (
        lambda: Cell(pnn.LayerNormLSTMCell(6, 5)),
        lambda n: (normal(3, n, 6), (normal(n, 5), normal(n, 5, seed=1))),
    ),
}  # fmt: skip


def results(model, inputs):
    model.zero_grad()
    y = model(*inputs)
    tensors = list(y) if isinstance(y, tuple) else [y]
    sum(t.sin().sum() for t in tensors).backward()
    return [*tensors, *(p.grad for p in model.parameters()), *(b.clone() for b in model.buffers())]


@pytest.mark.parametrize("name", MODELS)
def test_a_traced_model_computes_what_the_model_does(name):
    make, inputs_of = MODELS[name]
    model = make()
    traced = torch.fx.symbolic_trace(copy.deepcopy(model))
    assert traced.state_dict().keys() == model.state_dict().keys()
    for batch in (4, 2, 7):  # one graph serves all sizes
        ours, theirs = results(traced, inputs_of(batch)), results(model, inputs_of(batch))
        assert len(ours) == len(theirs)
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs))
    model.eval()
    traced.eval()  # uses the running estimates and states of the training above
    with torch.no_grad():
        ours, theirs = traced(*inputs_of(3)), model(*inputs_of(3))
    for a, b in zip(*((y if isinstance(y, tuple) else (y,)) for y in (ours, theirs))):
        assert torch.equal(a, b)


def test_tracing_does_not_change_the_state():
    model = nn.Sequential(pnn.BatchNorm1d(6), pnn.OnlineLayerNorm(6))
    before = copy.deepcopy(model.state_dict())
    traced = torch.fx.symbolic_trace(model)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    traced(normal(4, 6))
    assert traced.get_submodule("0").num_batches_tracked == 1
    assert traced.get_submodule("1").mu != 0


def test_a_traced_model_is_pickled_retraced_and_compiled():
    model = MODELS["converted"][0]().eval()
    x = normal(4, 3, 6, 5)
    expected = model(x)
    traced = torch.fx.symbolic_trace(model)
    traced.graph.lint()
    for other in (
        pickle.loads(pickle.dumps(traced)),
        copy.deepcopy(traced),
        torch.fx.symbolic_trace(traced),
        torch.compile(traced, backend="aot_eager", fullgraph=True),
    ):
        assert torch.equal(other(x), expected)


def test_hooks_run_once():
    model = nn.Sequential(pnn.LayerNorm1d(6))
    model[0].register_forward_hook(lambda module, arguments, y: y + 1)
    x = normal(4, 6)
    assert torch.equal(torch.fx.symbolic_trace(model)(x), model(x))
