"""DyT and Derf: functions of single elements that replace a norm."""

import io

import pytest
import torch
from torch import nn

import planish
import planish.functional as PF
import planish.nn as pnn

KINDS = [pnn.DyT, pnn.Derf]
TYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


def draw(module):
    """Gives every parameter a random value."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(0.3)
    return module


def formula(module, x):
    """The papers' equations in float64."""
    d = {name: p.double() for name, p in module.named_parameters()}
    z = x.double() * d["alpha"] + d.get("shift", 0)
    y = z.tanh() if isinstance(module, pnn.DyT) else z.erf()
    y = y * d["weight"] if "weight" in d else y
    return y + d["bias"] if "bias" in d else y


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(5, 7), (3, 300), (2, 4, 6), (6,), (0, 6), (2, 0), (1, 1), (70, 1000)])
@pytest.mark.parametrize("kind", KINDS)
def test_values_and_gradients(kind, shape, dtype):
    module = draw(kind(shape[-1], dtype=dtype))
    x = torch.randn(shape, dtype=torch.float64).mul(2).to(dtype).requires_grad_()
    dy = torch.randn(shape, dtype=torch.float64).to(dtype)
    y = module(x)
    assert y.dtype == dtype
    gradients = torch.autograd.grad(y, [x, *module.parameters()], dy)
    wide = x.detach().double().requires_grad_()
    twin = kind(shape[-1], dtype=torch.float64)
    twin.load_state_dict(module.state_dict())
    expected = formula(twin, wide)
    theirs = torch.autograd.grad(expected, [wide, *twin.parameters()], dy.double())
    # A few roundings of the results' type. Sums have that many roundings of their terms in the type
    # of the arithmetic; alpha's are over all elements, with terms of size 1.
    eps = torch.finfo(dtype).eps
    unit = torch.finfo(torch.promote_types(dtype, torch.float32)).eps
    torch.testing.assert_close(y.double(), expected, rtol=2 * eps, atol=20 * unit + eps / 8)
    for a, b, p in zip(gradients, theirs, [x, *module.parameters()], strict=True):
        assert a.dtype == dtype and a.shape == p.shape
        terms = x.numel() / max(1, a.numel())
        torch.testing.assert_close(a.double(), b, rtol=2 * eps, atol=50 * unit * (1 + terms) ** 0.5 + eps / 8)


@pytest.mark.parametrize("kind", KINDS)
def test_initial_values_are_those_of_the_papers(kind):
    module = kind(4)
    state = module.state_dict()
    assert list(state)[0] == "alpha" and state["alpha"].shape == (1,) and state["alpha"] == 0.5
    assert torch.equal(state["weight"], torch.ones(4)) and torch.equal(state["bias"], torch.zeros(4))
    assert ("shift" in state) == (kind is pnn.Derf)
    draw(module).reset_parameters()
    assert all(torch.equal(state[name], value) for name, value in kind(4).state_dict().items())
    assert kind(4, alpha_init=0.25).alpha.item() == 0.25
    assert kind(4, bias=False).bias is None and kind(4, bias=False).weight is not None
    bare = kind(4, elementwise_affine=False)
    assert bare.weight is None and bare.bias is None
    x = torch.randn(3, 4)
    torch.testing.assert_close(bare(x).double(), formula(bare, x).detach(), rtol=1e-6, atol=1e-6)
    assert kind((2, 3), device="meta")(torch.empty(5, 2, 3, device="meta")).shape == (5, 2, 3)


@pytest.mark.parametrize("kind", KINDS)
def test_any_strides_and_several_dimensions(kind):
    module = draw(kind((4, 6)))
    x = torch.randn(6, 4, 9).transpose(0, 2)
    expected = formula(module, x)
    torch.testing.assert_close(module(x).double(), expected, rtol=1e-5, atol=1e-6)
    assert torch.equal(module(x), module(x.contiguous()))
    assert torch.equal(module(x[::2]), module(x)[::2])


@pytest.mark.parametrize("parameters", TYPES)
@pytest.mark.parametrize("dtype", TYPES)
def test_parameters_of_any_floating_type(dtype, parameters):
    module = draw(pnn.Derf(6, dtype=parameters))
    x = torch.randn(5, 6).to(dtype)
    y = module(x)
    assert y.dtype == dtype
    y.float().sum().backward()
    assert all(p.grad.dtype == parameters for p in module.parameters())
    # Roundings of y to its type, and of doubles to float.
    torch.testing.assert_close(y.double(), formula(module, x), rtol=torch.finfo(dtype).eps, atol=1e-2 if dtype.itemsize == 2 else 1e-6)
    module.alpha.data = module.alpha.data.float()  # parameters of two types
    assert module(x).dtype == dtype


def test_autocast_keeps_the_type_of_x():
    module = pnn.DyT(6)
    with torch.autocast("cpu", torch.bfloat16):
        assert module(torch.randn(5, 6).bfloat16()).dtype == torch.bfloat16
        assert module(torch.randn(5, 6)).dtype == torch.float32


@pytest.mark.parametrize("kind", KINDS)
def test_nan_and_infinity(kind):
    module = kind(3)
    x = torch.tensor([[float("nan"), float("inf"), float("-inf")], [0.0, 30.0, -30.0]])
    y = module(x.requires_grad_())
    assert y[0, 0].isnan() and y[0, 1:].tolist() == [1, -1] and y[1].tolist() == [0, 1, -1]
    (dx,) = torch.autograd.grad(y.sum(), x)
    assert dx[0, 0].isnan() and dx[0, 1:].tolist() == [0, 0]


@pytest.mark.parametrize("kind", KINDS)
def test_same_bits_for_any_number_of_threads(kind):
    module = draw(kind(300))
    x, dy = torch.randn(2000, 300), torch.randn(2000, 300)

    def results():
        y = module(x.requires_grad_())
        return [y, *torch.autograd.grad(y, [x, *module.parameters()], dy)]

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        expected = results()
        torch.set_num_threads(2)
        assert all(torch.equal(a, b) for a, b in zip(results(), expected, strict=True))
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("kind", KINDS)
def test_jagged_rows(kind):
    module = draw(kind(6))
    parts = [torch.randn(n, 6) for n in (3, 1, 4)]
    nested = torch.nested.nested_tensor(parts, layout=torch.jagged, requires_grad=True)
    y = module(nested)
    for part, expected in zip(y.unbind(), parts, strict=True):
        assert torch.equal(part, module(expected))
    y.values().sin().sum().backward()
    dense = torch.cat(parts).requires_grad_()
    ours = [p.grad.clone() for p in module.parameters()]
    module.zero_grad()
    module(dense).sin().sum().backward()
    for a, p in zip(ours, module.parameters(), strict=True):
        torch.testing.assert_close(a, p.grad)
    torch.testing.assert_close(nested.grad.values(), dense.grad)


@pytest.mark.parametrize("kind", KINDS)
def test_torch_compile_with_inductor(kind):
    module = draw(kind(8))
    compiled = torch.compile(module, fullgraph=True, dynamic=True)
    for n in (3, 5):
        x = torch.randn(n, 8)
        torch.testing.assert_close(compiled(x), module(x))


@pytest.mark.parametrize("to", ["dyt", "derf"])
def test_convert_keeps_weight_and_bias(to):
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.RMSNorm(4), nn.LayerNorm(4, bias=False))
    model.append(nn.LayerNorm(4, elementwise_affine=False)).append(nn.BatchNorm1d(4))
    draw(model).double()
    before = list(model)
    report = planish.convert(model, to)
    assert len(report.changed) == 4 and len(report.left) == 1  # the norm of channels
    kind = type(model[1])
    assert kind is {"dyt": pnn.DyT, "derf": pnn.Derf}[to]
    assert model[1].weight is before[1].weight and model[1].bias is before[1].bias
    assert model[2].weight is before[2].weight and model[3].bias is None and model[4].weight is None
    assert model[1].alpha.dtype == torch.float64 and model[1].alpha.item() == 0.5
    assert "planish.nn" in str(report)
    again = planish.convert(model, to)
    assert not again.changed and len(again.left) == 5
    planish.convert(model, "layer")
    assert type(model[1]) is pnn.LayerNorm and model[1].weight is before[1].weight
    with pytest.raises(ValueError, match="eps must be left out"):
        planish.convert(model, to, eps=1e-3)
    shifted = nn.Sequential(pnn.RMSNorm(4, weight_offset=1.0))
    assert "weight_offset" in planish.convert(shifted, to).left[0].reason


def test_saved_modules_load():
    file = io.BytesIO()
    module = draw(pnn.Derf(4))
    torch.save(module, file)
    file.seek(0)
    x = torch.randn(3, 4)
    assert torch.equal(torch.load(file, weights_only=False)(x), module(x))


X, A = torch.ones(2, 3), torch.ones(1)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda: pnn.DyT(-1), "[DyT] normalized_shape must be one or more sizes, each at least 0, got -1"),
        (lambda: pnn.Derf(3, float("nan")), "[Derf] alpha_init must be finite, got nan"),
        (lambda: PF.dyt(X, [2], A), "[dyt] normalized_shape must be the last dimensions of x, which has [2, 3], got [2]"),
        (lambda: PF.dyt(X, [3], X), "[dyt] alpha must have one element, got [2, 3]"),
        (lambda: PF.derf(X, [3], A, X[0]), "[derf] shift must have one element, got [3]"),
        (lambda: PF.derf(X, [3], A, A, A), "[derf] weight must have normalized_shape, [3], got [1]"),
        (lambda: PF.dyt(X.int(), [3], A), "[dyt] x must be float, double, bfloat16 or half, got Int"),
        (lambda: PF.dyt(torch.tensor(1.0), [1], A), "[dyt] x must have at least 1 dimension, got 0"),
        (
            lambda: torch.ops.planish.pointwise_norm_forward(X, A, None, None, None, "sin"),
            "[pointwise_norm_forward] function must be one of tanh, erf, got sin",
        ),
        (
            lambda: torch.ops.planish.pointwise_norm_forward(X, A, None, X[0].double(), None, "erf"),
            "[derf] weight must have x's type or Float, and x's device, Float on cpu, got Double on cpu",
        ),
        (
            lambda: torch.ops.planish.pointwise_norm_backward(X[0], X, A, None, None, "erf", [True] * 5),
            "[derf] dy must have x's sizes, [2, 3], got [3]",
        ),
    ],
)  # fmt: skip
def test_errors(function, message):
    with pytest.raises(ValueError) as error:
        function()
    assert str(error.value).split("\n")[0] == message


def test_a_scalar_alpha_of_any_shape():
    x = torch.randn(4, 3)
    expected = PF.dyt(x, [3], A)
    assert torch.equal(PF.dyt(x, [3], A[0]), expected)
    assert torch.equal(PF.dyt(x, [3], A[None]), expected)
