"""planish.invariances against the paper's table, planish.gradient_statistics against autograd."""

import copy
import math

import planish
import planish.nn as pnn
import pytest
import torch
from planish.analysis import TRANSFORMATIONS
from torch import nn


def normal(*shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def linear(seed=0):
    torch.manual_seed(seed)
    return nn.Linear(20, 50, bias=False)


# Rows and columns of Ba, Kiros & Hinton (2016), Table 1.
TABLE_1 = {
    "batch": ("yes", "no", "yes", "yes", "yes", "no"),
    "weight": ("yes", "no", "yes", "no", "no", "no"),
    "layer": ("yes", "yes", "no", "yes", "no", "yes"),
}
NETS = {
    "batch": lambda: (linear(), pnn.BatchNorm1d(50)),
    "weight": lambda: pnn.weight_norm(linear()),
    "layer": lambda: (linear(), pnn.LayerNorm(50)),
}


@pytest.mark.parametrize("norm", TABLE_1)
@pytest.mark.parametrize("eps", [None, 0.0])
def test_table_1(norm, eps):
    table = planish.invariances(NETS[norm](), eps=eps)
    (row,) = table.rows
    assert list(row.measured) == list(TRANSFORMATIONS)
    for transformation, expected in zip(TRANSFORMATIONS, TABLE_1[norm], strict=True):
        measured = row.measured[transformation]
        assert measured.invariant == (expected == "yes")
        if expected == "no":
            assert measured.deviation > 0.05  # far above every threshold
        elif eps == 0.0:
            assert measured.deviation < 1e-13  # rounding of float64
        else:
            # eps / variance of the smallest a = W x: its variance is 1/3, and 1/12 if W is halved.
            assert measured.deviation < 1e-5 / (1 / 12) * 3
    assert table["W re-scale"] is row.measured["W re-scale"]
    with pytest.raises(KeyError):
        table["W re-colour"]


def test_deviation_of_a_net_without_a_norm():
    """Without a norm, y = W x: the largest change is 2 y, by W -> 3 W."""
    net = nn.Sequential(linear(), nn.Identity())
    table = planish.invariances(net)
    for transformation in ("W re-scale", "data re-scale"):
        assert table[transformation].deviation == pytest.approx(2, abs=1e-12)
    assert not any(table[transformation].invariant for transformation in TRANSFORMATIONS)
    x = torch.eye(20)[:3] * torch.tensor([[1.0], [100.0], [1.0]])
    table = planish.invariances(net, x, threshold=2.5)
    assert table["W re-scale"].invariant
    assert table["one case re-scale"].deviation <= 2


@pytest.mark.parametrize("of", ["torch", "planish"])
def test_other_norms_and_weight_norm_of_torch(of):
    if of == "torch":
        nets = [
            nn.utils.parametrizations.weight_norm(linear()),
            nn.Sequential(linear(), nn.LayerNorm(50)),
            nn.Sequential(linear(), nn.BatchNorm1d(50)),
        ]
        expected = [TABLE_1["weight"], TABLE_1["layer"], TABLE_1["batch"]]
    else:
        # Norms with statistics over rows have LayerNorm's line. RMSNorm does not centre.
        nets = [
            nn.Sequential(linear(), pnn.AdaNorm(50)),
            nn.Sequential(linear(), pnn.DetachNorm(50)),
            nn.Sequential(linear(), pnn.RMSNorm(50)),
        ]
        expected = [*[TABLE_1["layer"]] * 2, ("yes", "no", "no", "yes", "no", "yes")]
    for net, row in zip(nets, expected, strict=True):
        table = planish.invariances(net)
        found = ["yes" if table[t].invariant else "no" for t in TRANSFORMATIONS]
        assert found == list(row)


def test_convolutions_need_x():
    net = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), pnn.LayerNorm2d(8), nn.ReLU())
    with pytest.raises(ValueError) as error:
        planish.invariances(net)
    assert str(error.value) == (
        "[invariances] x must be given if the first linear layer is a Conv2d, got None"
    )
    table = planish.invariances(net, normal(4, 3, 8, 8))
    found = ["yes" if table[t].invariant else "no" for t in TRANSFORMATIONS]
    assert found == list(TABLE_1["layer"])


def test_several_layers_and_a_bias():
    net = nn.Sequential(linear(), pnn.LayerNorm(50), nn.ReLU(), nn.Linear(50, 4))
    table = planish.invariances(net)
    assert [row.name for row in table.rows] == ["0.weight", "3.weight", "input"]
    assert [len(row.measured) for row in table.rows] == [3, 3, 3]
    assert [m.invariant for m in table.rows[0].measured.values()] == [True, True, False]
    assert [m.invariant for m in table.rows[1].measured.values()] == [False, False, False]
    assert table.notes == ["3.weight has a bias; Table 1 has none before the norm"]
    assert str(table).endswith("note: " + table.notes[0])
    only = planish.invariances(net, weights="0")
    assert [row.name for row in only.rows] == ["0.weight"]
    with pytest.raises(ValueError, match=r"\[invariances\] module must contain a linear layer"):
        planish.invariances(net, weights="5")


def test_printed_table():
    lines = str(planish.invariances(NETS["layer"](), eps=0.0)).splitlines()
    assert lines[1].split("  ")[-1] == "one case re-scale"
    cells = lines[2].split()
    assert cells[0] == "linear.weight"
    assert cells[1::2] == list(TABLE_1["layer"])
    assert lines[3] == (
        "yes: outputs change by at most 0.001 of the largest; exact with eps = 0"
    )


class Choosy(nn.Module):
    """A module with integer inputs, a second argument, noise in training and a dictionary as
    output."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10, 20)
        self.linear = linear()
        self.norm = pnn.OnlineLayerNorm(50, alpha=1.0)

    def forward(self, tokens, scale):
        x = nn.functional.dropout(self.embedding(tokens), 0.5, self.training)
        return {"tokens": tokens, "y": self.norm(self.linear(x)) * scale}


def test_invariances_change_nothing():
    module = Choosy().eval()
    before = copy.deepcopy(module.state_dict())
    modes = [m.training for m in module.modules()]
    state = torch.get_rng_state()
    tokens = torch.arange(8).reshape(2, 4)
    table = planish.invariances(module, (tokens, 3.0))
    assert torch.equal(torch.get_rng_state(), state)
    assert [m.training for m in module.modules()] == modes
    for key, value in module.state_dict().items():
        assert value.dtype == before[key].dtype
        assert torch.equal(value, before[key])
    assert all(parameter.grad is None for parameter in module.parameters())
    # With alpha = 1 OnlineLayerNorm is LayerNorm. Integers are not transformed. All passes draw the
    # same noise.
    assert [row.name for row in table.rows] == ["linear.weight"]
    found = [m.invariant for m in table.rows[0].measured.values()]
    assert found == [True, True, False]


def test_every_pass_starts_from_the_same_state():
    """The state of OnlineLayerNorm is restored before each pass."""
    layer, x = linear().double(), normal(4, 20, dtype=torch.float64)
    table = planish.invariances((layer, pnn.OnlineLayerNorm(50)), x)
    online = (pnn.OnlineLayerNorm(50).double()(d * layer(x).detach()) for d in (1.0, 2.0, 0.5, 3.0))
    ys = [y.detach() for y in online]
    expected = max(float((y - ys[0]).abs().max()) for y in ys[1:]) / float(ys[0].abs().max())
    assert table["W re-scale"].deviation == pytest.approx(expected, rel=1e-12)  # float64


# Gradient statistics

# Mean and variance after a norm by Xu's Theorem 1, in terms of those with both statistics detached.
NORMS = {
    "layer": (lambda: pnn.LayerNorm(12), "zero", "at most"),
    "layer with weight_offset": (lambda: pnn.LayerNorm(12, weight_offset=1.0), "zero", "at most"),
    "torch": (lambda: nn.LayerNorm(12), "zero", "at most"),
    "simple": (lambda: pnn.LayerNormSimple(12), "zero", "at most"),
    "row layer": (lambda: pnn.RowNorm(12, "layer"), "zero", "at most"),
    "row ada": (lambda: pnn.RowNorm(12, "ada", C=2.0, k=0.2), "zero", "at most"),
    "row ada_as_coded": (lambda: pnn.RowNorm(12, "ada_as_coded", eps=0.1), "zero", "at most"),
    "row detach_mean": (lambda: pnn.RowNorm(12, "detach_mean"), "same", "at most"),
    "ada": (lambda: pnn.AdaNorm(12, C=2.0, k=0.2), "zero", "at most"),
    "detach": (lambda: pnn.DetachNorm(12), "same", "same"),
    "detach_mean": (lambda: pnn.DetachNorm(12, std=False), "same", "at most"),
    "detach_std": (lambda: pnn.DetachNorm(12, mean=False), "zero", "same"),
    "channels": (lambda: pnn.LayerNorm2d(12), "zero", "at most"),
    "batch": (lambda: pnn.BatchNorm1d(12), "zero", "at most"),
    "batch_unbiased": (lambda: pnn.BatchNorm1d(12, unbiased=True), "zero", "at most"),
    "running": (lambda: pnn.BatchNorm1d(12).eval(), "same", "same"),
    "ada_as_coded": (lambda: pnn.AdaNorm(12, as_coded=True, eps=0.1), "zero", "at most"),
}


@pytest.mark.parametrize("name", NORMS)
def test_theorem_1(name):
    make, mean, variance = NORMS[name]
    norm = make().double()
    with torch.no_grad():  # gains other than 1: the theorem is about the gradient of xhat
        for parameter in norm.parameters():
            parameter.add_(normal(12, seed=3) * 0.5)
        if name == "running":
            norm.running_var.copy_(torch.linspace(0.5, 2, 12))
    x = normal(9, 12, *([2, 2] if name == "channels" else []), dtype=torch.float64)
    x = (x * 0.7 + 2).requires_grad_()
    with planish.gradient_statistics(nn.Sequential(norm)) as statistics:
        y = nn.Sequential(norm)(x)
        (y + normal(*y.shape, seed=4).exp() * y).sum().backward()
    (layer,) = statistics.layers
    assert layer.rows == layer.rows_after == {"batch": 12, "running": 12, "channels": 36}.get(
        name.removesuffix("_unbiased"), 9
    )  # fmt: skip
    rounding = 1e-12  # float64 values of about 10; sigma contains eps
    assert layer.mean_detached > 0.1
    if mean == "zero":
        assert layer.mean_after < rounding
    else:
        assert layer.mean_after == pytest.approx(layer.mean_detached, rel=rounding)
    if variance == "same":
        assert layer.variance_after == pytest.approx(layer.variance_detached, rel=rounding)
    else:
        assert layer.variance_after < 0.999 * layer.variance_detached


def test_gradient_statistics_against_autograd():
    """All statistics of two backward passes, with a residual connection around the norm."""
    norm = pnn.LayerNorm(6, eps=0.01)
    with torch.no_grad():
        norm.weight.copy_(normal(6, seed=1))

    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = norm
            self.last = nn.Linear(6, 3)

        def forward(self, x):
            return self.last(x + self.norm(input=x))

    model = Residual()
    expected = []
    with planish.gradient_statistics(model) as statistics:
        assert math.isnan(statistics.layers[0].variance_after)
        for seed, cases in ((2, 5), (3, 8)):
            x = normal(cases, 6, seed=seed)
            model(x.requires_grad_()).square().sum().backward()
            x = x.detach().double().requires_grad_()
            twin = copy.deepcopy(model).double()
            own = x.clone()  # the norm's own input
            y = nn.functional.layer_norm(own, [6], twin.norm.weight, twin.norm.bias, 0.01)
            y.retain_grad()
            own.retain_grad()
            twin.last(x + y).square().sum().backward()
            g = y.grad * twin.norm.weight.detach()
            sigma = (own.detach().var(1, correction=0) + 0.01).sqrt()
            expected.append(
                torch.stack(
                    [
                        sigma,
                        g.mean(1).abs(),
                        g.var(1, correction=0),
                        g.mean(1).abs() / sigma,
                        g.var(1, correction=0) / sigma**2,
                        own.grad.mean(1).abs(),
                        own.grad.var(1, correction=0),
                    ]
                )
            )
    (layer,) = statistics.layers
    assert (layer.name, layer.kind, layer.rows, layer.rows_after) == ("norm", "LayerNorm", 13, 13)
    numbers = [
        layer.sigma,
        layer.mean_before,
        layer.variance_before,
        layer.mean_detached,
        layer.variance_detached,
        layer.mean_after,
        layer.variance_after,
    ]
    # The model computes in float32; mean_after is the rounding error of values of about 10.
    for number, value in zip(numbers, torch.cat(expected, 1).mean(1).tolist(), strict=True):
        assert number == pytest.approx(value, rel=1e-5, abs=1e-5)


def net():
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Linear(5, 6), pnn.BatchNorm1d(6), nn.ReLU(inplace=True), nn.Dropout(0.5),
        nn.Linear(6, 6), pnn.OnlineLayerNorm(6), pnn.RMSNorm(6), nn.GroupNorm(2, 6),
    )  # fmt: skip


def test_gradient_statistics_change_nothing():
    plain, watched = net(), net()
    x = normal(4, 5)
    results = []
    for model, within in ((plain, False), (watched, True)):
        torch.manual_seed(2)
        if within:
            with planish.gradient_statistics(model) as statistics:
                model(x).square().sum().backward()
        else:
            model(x).square().sum().backward()
        results.append(
            [torch.get_rng_state(), *[p.grad for p in model.parameters()], *model.buffers()]
        )
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
    assert all(not m._forward_hooks and not m._forward_pre_hooks for m in watched.modules())
    assert [layer.name for layer in statistics.layers] == ["1", "5", "6"]
    assert math.isnan(statistics.layers[1].sigma)  # OnlineLayerNorm
    assert statistics.layers[1].variance_after > 0
    before = copy.deepcopy(statistics.layers)
    watched(x).sum().backward()
    # Compared as text, because NaN does not equal NaN.
    assert str(statistics.layers) == str(before)
    with pytest.raises(RuntimeError, match="mine"), planish.gradient_statistics(watched):
        raise RuntimeError("mine")
    assert all(not m._forward_hooks for m in watched.modules())


def test_gradient_statistics_of_chosen_modules_and_of_data():
    model = net()
    with planish.gradient_statistics(model, lambda name, module: name in ("0", "7")) as statistics:
        with torch.no_grad():
            model(normal(4, 5))
        assert [layer.rows for layer in statistics.layers] == [0, 0]
        model(normal(4, 5)).square().sum().backward()
    linear, group = statistics.layers
    assert (linear.rows, linear.rows_after) == (4, 0)  # x needs no gradient
    assert math.isnan(linear.variance_after)
    assert (group.rows, group.rows_after) == (4, 4)
    table = str(statistics).splitlines()
    assert len(table) == 4
    assert table[2].split()[:3] == ["0", "Linear", "4"]
    assert table[3].split()[:3] == ["7", "GroupNorm", "4"]
