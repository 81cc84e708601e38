"""Norms as modules and functions, compared with PyTorch's in float64 and with their equations."""

import copy
import doctest
import importlib
import inspect
import io
import pickle

import planish
import planish.functional as PF
import planish.nn as pnn
import pytest
import torch
from torch import nn

# A short chain of float32 roundings of 6e-8 of values up to about 4; gradients of parameters sum up
# to a hundred.
FLOAT = 3e-6
# Like FLOAT, with 1.1e-16.
DOUBLE = 1e-14
TOLERANCE = {torch.float32: FLOAT, torch.float64: DOUBLE}


def normal(*shape, dtype=torch.float32, seed=0, scale=1.0, shift=0.0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=dtype) * scale + shift


def assert_close(got, expected, tolerance):
    """Compares relative to the largest expected element, or to 1 if that is larger."""
    assert got.shape == expected.shape
    difference = (got.double() - expected.double()).abs().max()
    assert difference <= tolerance * expected.abs().max().clamp(min=1)


def with_gradients(module, x):
    """Returns y, dx and the gradients of module's parameters for a random dy, with the module in
    x's type."""
    x = x.detach().clone().requires_grad_()
    module.zero_grad()
    y = module(x)
    y.backward(normal(*y.shape, dtype=torch.float64, seed=9).to(y.dtype))
    return [y.detach(), x.grad, *[p.grad for p in module.parameters()]]


def randomise(module):
    with torch.no_grad():
        for i, parameter in enumerate(module.parameters()):
            parameter.copy_(normal(*parameter.shape, seed=20 + i) + 1)
    return module


def assert_same(module, reference, x, tolerance=FLOAT):
    """Compares module on x with reference, which has the same parameters in float64."""
    reference = copy.deepcopy(reference).double()
    for got, expected in zip(
        with_gradients(module, x), with_gradients(reference, x.double()), strict=True
    ):
        assert got.dtype == x.dtype
        assert_close(got, expected, tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda m: m.LayerNorm(17), (5, 17)),
        (lambda m: m.LayerNorm((3, 5), eps=1e-3), (2, 4, 3, 5)),
        (lambda m: m.LayerNorm([8], bias=False), (2, 3, 8)),
        (lambda m: m.LayerNorm(8, elementwise_affine=False), (3, 8)),
        (lambda m: m.RMSNorm(17), (5, 17)),
        (lambda m: m.RMSNorm((3, 5), eps=1e-3), (2, 4, 3, 5)),
        (lambda m: m.RMSNorm(8, elementwise_affine=False), (3, 8)),
        (lambda m: m.BatchNorm1d(7), (5, 7)),
        (lambda m: m.BatchNorm1d(7, affine=False), (5, 7, 3)),
        pytest.param(
            lambda m: m.BatchNorm1d(7, bias=False),
            (5, 7, 3),
            marks=pytest.mark.skipif(
                "bias" not in inspect.signature(nn.BatchNorm1d).parameters,  # before PyTorch 2.12
                reason="torch.nn.BatchNorm1d of this version has no bias=",
            ),
        ),
        (lambda m: m.BatchNorm2d(7, eps=1e-3), (5, 7, 3, 2)),
    ],
)
def test_modules_of_torch_nn(make, shape, dtype):
    ours, theirs = randomise(make(pnn).to(dtype)), make(nn).to(dtype)
    assert isinstance(ours, type(theirs))
    assert str(ours) == str(theirs)
    # Checkpoints load both ways.
    theirs.load_state_dict(ours.state_dict())
    ours.load_state_dict(theirs.state_dict())
    assert list(ours.state_dict()) == list(theirs.state_dict())
    x = normal(*shape, dtype=dtype, shift=3)
    if isinstance(ours, pnn.RMSNorm) and ours.eps is None:
        theirs.eps = torch.finfo(dtype).eps  # the default depends on x's type, which is float64 in the reference
    assert_same(ours, theirs, x, TOLERANCE[dtype])
    theirs(x)  # updates its running estimates; assert_same uses a copy
    for got, expected in zip(ours.buffers(), theirs.buffers(), strict=True):
        assert_close(got, expected, TOLERANCE[dtype])
    assert_same(ours.eval(), theirs.eval(), x, TOLERANCE[dtype])


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("parameters", [torch.float32, None])
def test_layer_norm_of_halves(half, parameters):
    ours = randomise(pnn.LayerNorm(64, dtype=parameters or half))
    x = normal(4, 64).to(half)
    reference = nn.LayerNorm(64, dtype=torch.float64)
    reference.load_state_dict(ours.state_dict())
    y = ours(x)
    assert y.dtype == half
    # Half a unit in the last place of the result: intermediate values are float32.
    torch.testing.assert_close(
        y.double(), reference(x.double()).detach(), rtol=0.51 * torch.finfo(half).eps, atol=1e-6
    )


class Offset(nn.Module):
    """A norm of torch.nn with the weight plus a number."""

    def __init__(self, function, ours):
        super().__init__()
        self.function, self.offset, self.eps = function, ours.weight_offset, ours.eps
        for name, parameter in ours.named_parameters():
            self.register_parameter(name, copy.deepcopy(parameter))

    def forward(self, x):
        rest = [self.bias] if hasattr(self, "bias") else []
        return self.function(x, self.weight.shape, self.weight + self.offset, *rest, self.eps)


WITH_OFFSET = [
    (lambda: pnn.RMSNorm((3, 5), eps=1e-3, weight_offset=1.0), nn.functional.rms_norm),
    (lambda: pnn.LayerNorm(15, weight_offset=-0.5), nn.functional.layer_norm),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("make", "function"), WITH_OFFSET)
def test_weight_offset(make, function, dtype):
    ours = make().to(dtype)
    assert torch.equal(ours.weight, torch.full_like(ours.weight, 1 - ours.weight_offset))
    assert repr(ours).endswith(f", weight_offset={ours.weight_offset})")
    randomise(ours)
    x = normal(4, *ours.normalized_shape, dtype=dtype, shift=3)
    assert_same(ours, Offset(function, ours), x, TOLERANCE[dtype])
    # A checkpoint contains the weight without the offset.
    again = make().to(dtype)
    again.load_state_dict(ours.state_dict())
    assert torch.equal(again(x), ours(x))
    ours.reset_parameters()
    assert torch.equal(ours.weight, torch.full_like(ours.weight, 1 - ours.weight_offset))


@pytest.mark.parametrize(("make", "function"), WITH_OFFSET)
def test_weight_offset_has_derivatives_of_any_order(make, function):
    module = randomise(make()).double()
    x = normal(2, *module.normalized_shape, dtype=torch.float64).requires_grad_()
    parameters = [p.detach().requires_grad_() for p in module.parameters()]
    names = [name for name, _ in module.named_parameters()]

    def call(x, *values):
        return torch.func.functional_call(module, dict(zip(names, values)), (x,))

    assert torch.autograd.gradcheck(call, (x, *parameters), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(call, (x, *parameters))
    rows = torch.vmap(lambda row: module(row))(x)
    assert torch.equal(rows, module(x))


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_weight_offset_is_not_rounded_to_16_bits(half):
    module = pnn.RMSNorm(64, eps=1e-6, dtype=half, weight_offset=1.0)
    with torch.no_grad():
        module.weight.copy_(normal(64, scale=1e-3))
    x = normal(4, 64).to(half)
    y = module(x)
    expected = nn.functional.rms_norm(x.double(), (64,), module.weight.double() + 1, 1e-6)
    assert y.dtype == half
    # Half a unit in the last place of the result, as without offset.
    torch.testing.assert_close(y.double(), expected, rtol=0.51 * torch.finfo(half).eps, atol=1e-6)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(module(x), y)


def composed(x, dims, mean, std, eps):
    """Returns xhat, with the mean or the deviation as a constant in backward."""
    mu = x.mean(dims, keepdim=True)
    sigma = ((x - mu).square().mean(dims, keepdim=True) + eps).sqrt()
    return (x - (mu.detach() if mean else mu)) / (sigma.detach() if std else sigma)


class Composed(nn.Module):
    def __init__(self, formula):
        super().__init__()
        self.formula = formula

    def forward(self, x):
        return self.formula(x)


def ada(x, dims, c, k, as_coded, eps):
    xhat = composed(x, dims, False, False, eps)
    if as_coded:
        xhat = (x - x.mean(dims, keepdim=True)) / (x.std(dims, keepdim=True) + eps)
    return (c * (1 - k * xhat)).detach() * xhat


@pytest.mark.parametrize(
    ("module", "formula"),
    [
        (pnn.LayerNormSimple((3, 5)), lambda x: composed(x, (-2, -1), False, False, 1e-5)),
        (pnn.DetachNorm(5, eps=0.01), lambda x: composed(x, -1, True, True, 0.01)),
        (pnn.DetachNorm(5, std=False), lambda x: composed(x, -1, True, False, 1e-5)),
        (pnn.DetachNorm(5, mean=False), lambda x: composed(x, -1, False, True, 1e-5)),
        (pnn.DetachNorm(5, mean=False, std=False), lambda x: composed(x, -1, False, False, 1e-5)),
        (pnn.AdaNorm((3, 5), C=2.0, k=0.3), lambda x: ada(x, (-2, -1), 2.0, 0.3, False, 1e-5)),
        (pnn.AdaNorm(5, as_coded=True, eps=0.1), lambda x: ada(x, -1, 1.0, 0.1, True, 0.1)),
    ],
    ids=lambda value: str(value) if isinstance(value, torch.nn.Module) else "",
)
def test_norms_of_xu(module, formula):
    assert module.state_dict() == {}
    x = normal(4, 3, 5, shift=2)
    assert_same(module, Composed(formula), x, 1e-5)  # dx has sums of 15 terms that cancel
    assert_same(module, Composed(formula), x.double(), 1e-13)


# Names with modules and functions of their own.
BY_NAME = {
    "layer": (lambda: pnn.LayerNorm(7), PF.layer_norm),
    "layer_simple": (lambda: pnn.LayerNormSimple(7), PF.layer_norm_simple),
    "rms": (lambda: pnn.RMSNorm(7, eps=1e-5), lambda x, n: PF.rms_norm(x, n, eps=1e-5)),
    "detach": (lambda: pnn.DetachNorm(7), PF.detach_norm),
    "detach_mean": (lambda: pnn.DetachNorm(7, std=False), lambda x, n: PF.detach_norm(x, n, std=False)),
    "detach_deviation": (lambda: pnn.DetachNorm(7, mean=False), lambda x, n: PF.detach_norm(x, n, mean=False)),
    "ada": (lambda: pnn.AdaNorm(7), PF.ada_norm),
    "ada_as_coded": (lambda: pnn.AdaNorm(7, as_coded=True), lambda x, n: PF.ada_norm(x, n, as_coded=True)),
}


@pytest.mark.parametrize("name", PF.row_norm_names())
def test_row_norm_module_is_the_function(name):
    x, norm = normal(5, 7, shift=2), randomise(pnn.RowNorm(7, name))
    assert torch.equal(norm(x), PF.row_norm(x, [7], name, norm.weight, norm.bias, norm.eps))


@pytest.mark.parametrize("name", BY_NAME)
def test_row_norm_is_the_norm_of_its_name(name):
    make, function = BY_NAME[name]
    x = normal(5, 7, shift=2)
    ours, theirs = randomise(pnn.RowNorm(7, name)), randomise(make())
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    for a, b in zip(with_gradients(ours, x), with_gradients(theirs, x), strict=True):
        assert torch.equal(a, b)
    assert torch.equal(PF.row_norm(x, [7], name), function(x, [7]))


def test_row_norm_leaves_parameters_out():
    assert list(pnn.RowNorm(7, "layer", elementwise_affine=False).parameters()) == []
    assert list(pnn.RowNorm(7, "layer", bias=False).state_dict()) == ["weight"]
    assert list(pnn.RowNorm((2, 7), "rms", bias=True, dtype=torch.bfloat16).state_dict()) == ["weight", "bias"]
    norm = randomise(pnn.RowNorm(7, "rms", bias=True))
    norm.reset_parameters()
    assert norm.weight.eq(1).all() and norm.bias.eq(0).all()


@pytest.mark.parametrize("rms", [False, True])
def test_add_norms(rms):
    x, residual = normal(6, 9), normal(6, 9, seed=1, shift=1)
    weight, bias = normal(9, seed=2), normal(9, seed=3)
    x.requires_grad_()
    residual.requires_grad_()
    if rms:
        y, total = PF.add_rms_norm(x, residual, [9], weight, eps=1e-4)
        expected = nn.functional.rms_norm(x + residual, [9], weight, eps=1e-4)
    else:
        y, total = PF.add_layer_norm(x, residual, [9], weight, bias)
        expected = nn.functional.layer_norm(x + residual, [9], weight, bias)
    assert torch.equal(total, x + residual)
    assert_close(y, expected, FLOAT)
    both = (y * normal(6, 9, seed=4) + total * normal(6, 9, seed=5)).sum()
    (dx, dresidual) = torch.autograd.grad(both, (x, residual))
    both = expected * normal(6, 9, seed=4) + (x + residual) * normal(6, 9, seed=5)
    (expected_dx,) = torch.autograd.grad(both.sum(), x)
    assert_close(dx, expected_dx, FLOAT)
    assert torch.equal(dx, dresidual)


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (pnn.LayerNorm1d(6), (4, 6)),
        (pnn.LayerNorm1d(6, bias=False), (4, 6, 5)),
        (pnn.LayerNorm2d(6, eps=1e-3), (4, 6, 5, 3)),
        (pnn.LayerNorm2d(6, affine=False), (4, 6, 5, 3)),
    ],
    ids=str,
)
def test_channels_first(module, shape):
    randomise(module)
    last = nn.LayerNorm(6, module.eps, module.affine, module.bias is not None)
    last.load_state_dict(module.state_dict())
    module.load_state_dict(last.state_dict())

    class Permuted(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = last

        def forward(self, x):
            return self.norm(x.movedim(1, -1)).movedim(-1, 1)

    x = normal(*shape, shift=1)
    assert_same(module, Permuted(), x, 1e-5)  # dweight sums 60 products
    if x.dim() == 4:
        assert_same(module, Permuted(), x.contiguous(memory_format=torch.channels_last), 1e-5)


# Online layer normalization


def online(x, state, alpha, weight, bias, keep=True):
    """Computes the post's equations case by case. alpha is a number, or a list with one for each case.

    With keep=False, each case starts from the same state.
    """
    mu0, sigma0 = state
    mu, sigma, ys = mu0, sigma0, []
    alphas = alpha if isinstance(alpha, list) else [alpha] * len(x)
    for a, alpha in zip(x, alphas, strict=True):
        if not keep:
            mu, sigma = mu0, sigma0
        mu = alpha * a.mean() + (1 - alpha) * mu
        s = ((a - mu).square().sum() / (a.numel() - 1)).sqrt()
        sigma = alpha * s + (1 - alpha) * sigma
        ys.append(weight * (a - mu) / sigma + bias)
        mu, sigma = mu.detach(), sigma.detach()
    return torch.stack(ys), (float(mu), float(sigma))


@pytest.mark.parametrize("alpha", [0.1, 0.7, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("training", [True, False])
def test_online_layer_norm(alpha, dtype, training):
    tolerance = {torch.float32: 1e-5, torch.float64: 1e-13}[dtype]  # dweight sums 11 cases
    module = randomise(pnn.OnlineLayerNorm(6, alpha, dtype=dtype)).train(training)
    module.state.copy_(torch.tensor([0.5, 2.0]))
    x = normal(11, 6, dtype=dtype, shift=2)
    got = with_gradients(module, x)
    xd = x.double().requires_grad_()
    weight, bias = (p.detach().double().requires_grad_() for p in module.parameters())
    y, state = online(xd, (0.5, 2.0), alpha, weight, bias, keep=training)
    y.backward(normal(11, 6, dtype=torch.float64, seed=9).to(dtype).double())
    for ours, expected in zip(got, [y.detach(), xd.grad, weight.grad, bias.grad], strict=True):
        assert_close(ours, expected, tolerance)
    if not training:
        assert (module.mu, module.sigma) == (0.5, 2.0)
        return
    # The state is float64, but the statistics of a case have x's type.
    assert module.mu == pytest.approx(state[0], rel=1e-6)
    assert module.sigma == pytest.approx(state[1], rel=1e-6)


ALPHAS = {"inverse": lambda t: 1 / t, "warmup": lambda t: max(0.15, 1 / t)}


@pytest.mark.parametrize("schedule", ALPHAS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_online_schedules(schedule, dtype):
    tolerance = {torch.float32: 1e-5, torch.float64: 1e-13}[dtype]  # dweight sums up to 7 cases
    module = randomise(pnn.OnlineLayerNorm(6, 0.15, dtype=dtype, schedule=schedule))
    seen, state = 0, (0.0, 1.0)
    for training in (True, True, False, True):  # evaluation changes no state
        x = normal(4 + seen % 7, 6, dtype=dtype, shift=2, seed=seen)
        got = with_gradients(module.train(training), x)
        steps = range(1, len(x) + 1) if training else [1] * len(x)
        alphas = [ALPHAS[schedule](seen + step) for step in steps]
        xd = x.double().requires_grad_()
        weight, bias = (p.detach().double().requires_grad_() for p in module.parameters())
        y, after = online(xd, state, alphas, weight, bias, keep=training)
        y.backward(normal(*x.shape, dtype=torch.float64, seed=9).to(dtype).double())
        for ours, expected in zip(got, [y.detach(), xd.grad, weight.grad, bias.grad], strict=True):
            assert_close(ours, expected, tolerance)
        if training:
            state, seen = after, seen + len(x)
        # As in test_online_layer_norm: the statistics of a case have x's type.
        assert module.mu == pytest.approx(state[0], rel=1e-6)
        assert module.sigma == pytest.approx(state[1], rel=1e-6)
        assert module.state[2] == seen
        resumed = pnn.OnlineLayerNorm(6, 0.15, dtype=dtype, schedule=schedule)
        resumed.load_state_dict(module.state_dict())
        module = resumed


def test_online_schedules_start_anew_after_a_reset():
    module = pnn.OnlineLayerNorm(6, schedule="inverse")
    x = normal(5, 6)
    y = module(x)
    assert module.state[2] == 5
    module.reset_state()
    assert module.state.tolist() == [0, 1, 0]
    assert torch.equal(module(x), y)
    assert repr(module).startswith("OnlineLayerNorm(6, alpha=0.1, schedule=inverse, affine=True, mu=")
    with pytest.raises(RuntimeError, match="size mismatch for state"):
        module.load_state_dict(pnn.OnlineLayerNorm(6).state_dict())


def test_online_state_continues_from_call_to_call():
    whole, parts = pnn.OnlineLayerNorm(5), pnn.OnlineLayerNorm(5)
    x = normal(6, 5)
    assert torch.equal(whole(x), torch.cat([parts(x[:1]), parts(x[1:4]), parts(x[4:])]))
    assert torch.equal(whole.state, parts.state)
    # The state is in the state dict, and a new module continues from it.
    assert sorted(whole.state_dict()) == ["bias", "state", "weight"]
    resumed = pnn.OnlineLayerNorm(5)
    resumed.load_state_dict(whole.state_dict())
    assert torch.equal(resumed(x), whole(x))
    whole.reset_parameters()
    assert (whole.mu, whole.sigma) == (0.0, 1.0)


def test_online_evaluation_keeps_the_state_by_default():
    module = pnn.OnlineLayerNorm(5)
    module(normal(6, 5))
    before = module.state.clone()
    module.eval()
    x = normal(3, 5, seed=1)
    y = module(x)
    assert torch.equal(module.state, before)
    # Rows are independent, up to the order of sums of 5.
    assert_close(module(x[1:2]), y[1:2], FLOAT)
    advanced = module(x, advance=True)
    assert not torch.equal(module.state, before)
    assert_close(advanced[:1], y[:1], FLOAT)  # the first case starts from the same state
    module.state.copy_(before)
    assert torch.equal(module.train()(x), advanced)
    after = module.state.clone()
    module(x, advance=False)
    assert torch.equal(module.state, after)


def test_online_with_alpha_1_is_layer_norm_with_the_unbiased_deviation():
    module = pnn.OnlineLayerNorm(8, alpha=1.0, affine=False)
    x = normal(5, 8, shift=1)
    expected = (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True)
    assert_close(module(x), expected, FLOAT)
    assert_close(module.eval()(x), expected, FLOAT)


def test_online_state_stays_float64():
    module = pnn.OnlineLayerNorm(4)
    module(normal(3, 4))
    before = module.state.clone()
    module.bfloat16()
    assert module.weight.dtype == torch.bfloat16
    assert module.state.dtype == torch.float64
    assert torch.equal(module.state, before)
    module.to("cpu", torch.float32)
    assert torch.equal(module.state, before)
    made = pnn.OnlineLayerNorm(4, device="meta").to_empty(device="cpu")
    made.reset_parameters()
    assert torch.equal(made.state, torch.tensor([0.0, 1.0], dtype=torch.float64))


# Batch normalization


@pytest.mark.parametrize("momentum", [0.3, None])
def test_batch_norm_keeps_running_estimates(momentum):
    ours = pnn.BatchNorm1d(6, momentum=momentum)
    theirs = nn.BatchNorm1d(6, momentum=momentum)
    for seed in range(4):
        x = normal(9, 6, seed=seed, shift=seed)
        assert_close(ours(x), theirs(x).detach(), FLOAT)
    assert ours.num_batches_tracked == 4
    assert_close(ours.running_mean, theirs.running_mean, FLOAT)
    assert_close(ours.running_var, theirs.running_var, FLOAT)
    x = normal(2, 6, seed=7)
    assert_close(ours.eval()(x), theirs.eval()(x).detach(), FLOAT)
    assert ours.num_batches_tracked == 4


def test_batch_norm_without_running_estimates():
    ours = pnn.BatchNorm2d(3, track_running_stats=False).eval()
    theirs = nn.BatchNorm2d(3, track_running_stats=False).eval()
    assert list(ours.state_dict()) == list(theirs.state_dict()) == ["weight", "bias"]
    x = normal(2, 3, 4, 5, shift=1)
    assert_close(ours(x), theirs(x).detach(), FLOAT)


def test_batch_norm_with_the_unbiased_variance():
    module = randomise(pnn.BatchNorm1d(3, unbiased=True))
    reference = nn.BatchNorm1d(3)

    def unbiased(x):
        xhat = (x - x.mean(0)) / (x.var(0, correction=1) + module.eps).sqrt()
        return xhat * module.weight.double() + module.bias.double()

    x = normal(4, 3)
    weight = [p.detach().clone() for p in module.parameters()]
    got = with_gradients(module, x)
    xd = x.double().requires_grad_()
    y = unbiased(xd)
    y.backward(normal(4, 3, dtype=torch.float64, seed=9))
    assert_close(got[0], y.detach(), FLOAT)
    assert_close(got[1], xd.grad, 1e-5)  # with four cases, the larger sums in dx cancel
    assert all(torch.equal(a, b) for a, b in zip(weight, module.parameters()))
    reference(x)
    assert_close(module.running_var, reference.running_var, FLOAT)  # the unbiased variance in either case


def test_recurrent_batch_norm_is_a_batch_norm_for_each_step():
    module = pnn.RecurrentBatchNorm(3, max_length=5, momentum=0.2)
    assert torch.equal(module.weight, torch.full((3,), 0.1))
    each = [nn.BatchNorm1d(3, momentum=0.2) for _ in range(5)]
    for norm in each:
        nn.init.constant_(norm.weight, 0.1)
    for seed, time in enumerate((4, 2, 4)):  # no batch has a step 4
        x = normal(time, 6, 3, seed=seed, shift=seed).requires_grad_()
        y = module(x)
        expected = torch.stack([each[t](x[t]) for t in range(time)])
        assert_close(y, expected.detach(), FLOAT)
        (dx,) = torch.autograd.grad(y.square().sum(), x)
        (expected_dx,) = torch.autograd.grad(expected.square().sum(), x)
        assert_close(dx, expected_dx, FLOAT)
    assert module.num_batches_tracked.tolist() == [3, 3, 2, 2, 0]
    for t in range(5):
        assert_close(module.running_mean[t], each[t].running_mean, FLOAT)
        assert_close(module.running_var[t], each[t].running_var, FLOAT)
    # In evaluation, steps past the longest sequence use the estimates of its last step, 3.
    module.eval()
    x = normal(7, 1, 3)
    expected = torch.stack([each[min(t, 3)].eval()(x[t]) for t in range(7)])
    assert_close(module(x), expected.detach(), FLOAT)
    assert_close(torch.stack([module(x[t], step=t) for t in range(7)]), expected.detach(), FLOAT)
    assert_close(module(x[2:5], step=2), expected[2:5].detach(), FLOAT)


def test_recurrent_batch_norm_trains_past_max_length():
    module = pnn.RecurrentBatchNorm(
        2, max_length=2, eps=0.0, initial_weight=1.0, unbiased=True
    )
    x = normal(4, 5, 2, shift=1)
    expected = (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True)
    assert_close(module(x), expected, FLOAT)
    assert_close(module(x[3], step=3), expected[3], FLOAT)
    assert module.num_batches_tracked.tolist() == [1, 1]
    fresh = pnn.RecurrentBatchNorm(2, max_length=2, eps=0.0)
    fresh.load_state_dict(module.state_dict())
    assert torch.equal(fresh.eval()(x), module.eval()(x))


def test_recurrent_batch_norm_before_any_training():
    module = pnn.RecurrentBatchNorm(2, max_length=2, eps=0.0, initial_weight=1.0).eval()
    x = normal(4, 1, 2)
    assert torch.equal(module(x), x)


# Weight normalization


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_weight_norm(dim):
    layer = nn.Conv1d(3, 4, 2)
    ours = pnn.weight_norm(copy.deepcopy(layer), dim=dim)
    theirs = nn.utils.parametrizations.weight_norm(
        copy.deepcopy(layer), dim=None if dim == -1 else dim
    )
    assert_close(ours.weight, layer.weight.detach(), FLOAT)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    theirs.load_state_dict(randomise(ours).state_dict())
    ours.load_state_dict(theirs.state_dict())
    assert_same(ours, theirs, normal(5, 3, 7), 1e-5)  # gradients sum 30 positions
    w = ours.weight.detach()
    nn.utils.parametrize.remove_parametrizations(ours, "weight")
    assert sorted(ours.state_dict()) == sorted(layer.state_dict())
    assert torch.equal(ours.weight, w)


# All modules

MODULES = [
    (lambda: pnn.LayerNorm(6), (4, 6)),
    (lambda: pnn.RMSNorm(6), (4, 6)),
    (lambda: pnn.RMSNorm(6, weight_offset=1.0), (4, 6)),
    (lambda: pnn.LayerNormSimple(6), (4, 6)),
    (lambda: pnn.DetachNorm(6), (4, 6)),
    (lambda: pnn.AdaNorm(6), (4, 6)),
    (lambda: pnn.RowNorm(6, "layer"), (4, 6)),
    (lambda: pnn.DyT(6), (4, 6)),
    (lambda: pnn.GroupNorm(3, 6), (4, 6, 5)),
    (lambda: pnn.InstanceNorm1d(6, affine=True), (4, 6, 5)),
    (lambda: pnn.InstanceNorm2d(6, track_running_stats=True), (4, 6, 3, 2)),
    (lambda: pnn.Derf(6), (4, 6)),
    (lambda: pnn.OnlineLayerNorm(6), (4, 6)),
    (lambda: pnn.OnlineLayerNorm(6, 0.3, schedule="warmup"), (4, 6)),
    (lambda: pnn.LayerNorm1d(6), (4, 6, 3)),
    (lambda: pnn.LayerNorm2d(6), (4, 6, 3, 2)),
    (lambda: pnn.BatchNorm1d(6), (4, 6)),
    (lambda: pnn.BatchNorm2d(6), (4, 6, 3, 2)),
    (lambda: pnn.RecurrentBatchNorm(6, 5), (3, 4, 6)),
    (lambda: pnn.weight_norm(nn.Linear(6, 2)), (4, 6)),
]


@pytest.mark.parametrize(("make", "shape"), MODULES, ids=lambda v: str(v()) if callable(v) else "")
def test_copies(make, shape):
    module = make()
    x = normal(*shape)
    module(x)
    twin = copy.deepcopy(module)
    saved = io.BytesIO()
    torch.save(module.state_dict(), saved)
    saved.seek(0)
    loaded = make()
    loaded.load_state_dict(torch.load(saved))
    others = [twin, loaded]
    if not nn.utils.parametrize.is_parametrized(module):  # PyTorch cannot pickle parametrized modules
        others.append(pickle.loads(pickle.dumps(module)))
    y = module(x)
    for other in others:
        assert torch.equal(other(x), y)
        assert other.state_dict().keys() == module.state_dict().keys()
        for key, value in module.state_dict().items():
            assert torch.equal(other.state_dict()[key], value)


@pytest.mark.parametrize("training", [True, False])
def test_compile(training):
    """Forward and backward compile to one graph, which updates buffers."""
    nets = [nn.ModuleList([make().train(training) for make, _ in MODULES]) for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())
    inputs = [normal(*shape) for _, shape in MODULES]

    def loss(net, inputs):
        return sum(module(x).square().sum() for module, x in zip(net, inputs))

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    for _ in range(2):
        results = []
        for function, net in ((loss, nets[0]), (compiled, nets[1])):
            net.zero_grad()
            xs = [x.clone().requires_grad_() for x in inputs]
            total = function(net, xs)
            total.backward()
            grads = [p.grad for p in net.parameters()] + [x.grad for x in xs]
            results.append([total.detach(), *grads, *net.buffers()])
        for eager, ours in zip(*results, strict=True):
            torch.testing.assert_close(ours, eager, rtol=1e-6, atol=1e-6)  # the operators are the same


def test_nnet_prints_like_the_post():
    # The post prints these lines for this call.
    post = [
        "   LayerNorm{n=4, mu=0.0, sigma=1.0}",
        "   LayerNorm{n=5, mu=0.0, sigma=1.0}",
        "   LayerNorm{n=4, mu=0.0, sigma=1.0}",
        "   LayerNorm{n=5, mu=0.0, sigma=1.0}",
    ]
    net = pnn.nnet(3, 5, [4, 5, 4], "relu", "logistic", layernorm=True)
    assert [line for line in repr(net).splitlines() if "LayerNorm" in line] == post
    net(normal(2, 3))
    assert "LayerNorm{n=4, mu=0.0," not in repr(net)
    assert f"LayerNorm{{n=4, mu={net[1].mu}, sigma={net[1].sigma}}}" in repr(net)


@pytest.mark.parametrize(("layernorm", "schedule"), [(True, "constant"), (True, "inverse"), (False, "constant")])
def test_nnet(layernorm, schedule):
    net = pnn.nnet(
        3, 2, [4, 5], "tanh", lambda: nn.Softmax(-1), layernorm,
        alpha=0.5, dtype=torch.float64, schedule=schedule,
    )  # fmt: skip
    alphas = [0.5 if schedule == "constant" else 1 / t for t in range(1, 7)]
    x = normal(6, 3, dtype=torch.float64)
    linear = [module for module in net if isinstance(module, nn.Linear)]
    assert [(m.in_features, m.out_features) for m in linear] == [(3, 4), (4, 5), (5, 2)]
    y = x
    for i, layer in enumerate(linear):
        a = y @ layer.weight.T
        if layernorm:
            assert layer.bias is None
            a, _ = online(a, (0.0, 1.0), alphas, 1.0, 0.0)
        else:
            a = a + layer.bias
        y = a.softmax(-1) if i == 2 else a.tanh()
    assert_close(net(x), y.detach(), 1e-12)  # three matrix products
    assert repr(net).splitlines()[1] == f"   {'Linear' if layernorm else 'Affine'}{{3-->4}}"
    assert repr(net).splitlines()[-2] == "   Softmax{2}"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: pnn.LayerNorm(4, eps=-1.0), "[LayerNorm] eps must be finite and at least 0, got -1"),
        (lambda: pnn.LayerNorm(()), "[LayerNorm] normalized_shape must be one or more sizes, each at least 0, got ()"),
        (lambda: pnn.LayerNorm([3, -1]), "[LayerNorm] normalized_shape must be one or more sizes, each at least 0, got [3, -1]"),
        (lambda: pnn.RMSNorm(4, eps=float("nan")), "[RMSNorm] eps must be finite and at least 0, got nan"),
        (lambda: pnn.RMSNorm(4, weight_offset=float("inf")), "[RMSNorm] weight_offset must be finite, got inf"),
        (lambda: pnn.RMSNorm(4, elementwise_affine=False, weight_offset=1), "[RMSNorm] weight_offset must be 0 without a weight, got 1"),
        (lambda: PF.layer_norm(normal(2, 4), [4], weight_offset=0.5), "[layer_norm] weight_offset must be 0 without a weight, got 0.5"),
        (lambda: PF.rms_norm(normal(2, 4), [4], torch.zeros(4, dtype=torch.int64), weight_offset=1), "[rms_norm] weight must have x's type or Float, and x's device, Float on cpu, got Long on cpu"),
        (lambda: PF.rms_norm(normal(2, 4), [4], torch.ones(4), weight_offset=float("nan")), "[rms_norm] weight_offset must be finite, got nan"),
        (lambda: pnn.LayerNormSimple(4.5), "[LayerNormSimple] normalized_shape must be one or more sizes, each at least 0, got 4.5"),
        (lambda: pnn.DetachNorm(4, eps=-2), "[DetachNorm] eps must be finite and at least 0, got -2"),
        (lambda: pnn.RowNorm(4, "layers"), f"[RowNorm] norm must be one of {', '.join(PF.row_norm_names())}, got layers"),
        (lambda: pnn.RowNorm(1, "ada_as_coded"), "[RowNorm] normalized_shape must have at least 2 elements with ada_as_coded, got 1"),
        (lambda: pnn.AdaNorm(4, C=float("inf")), "[AdaNorm] C must be finite, got inf"),
        (lambda: pnn.AdaNorm(4, k=float("nan")), "[AdaNorm] k must be finite, got nan"),
        (lambda: pnn.AdaNorm(1, as_coded=True), "[AdaNorm] normalized_shape must have at least 2 elements with as_coded, got 1"),
        (lambda: pnn.OnlineLayerNorm(1), "[OnlineLayerNorm] num_features must be at least 2, got 1"),
        (lambda: pnn.OnlineLayerNorm(4, alpha=0.0), "[OnlineLayerNorm] alpha must be above 0 and at most 1, got 0.0"),
        (lambda: pnn.OnlineLayerNorm(4, alpha=1.5), "[OnlineLayerNorm] alpha must be above 0 and at most 1, got 1.5"),
        (lambda: pnn.OnlineLayerNorm(4, schedule="linear"), "[OnlineLayerNorm] schedule must be one of constant, inverse, warmup, got linear"),
        (lambda: pnn.OnlineLayerNorm(4).eval()(normal(2, 3)), "[OnlineLayerNorm] x must have 4 elements in its last dimension, got [2, 3]"),
        (lambda: pnn.LayerNorm2d(-1), "[LayerNorm2d] num_channels must be at least 0, got -1"),
        (lambda: pnn.LayerNorm2d(3)(normal(2, 3, 4)), "[LayerNorm2d] x must be [N, C, H, W] with C = 3, got [2, 3, 4]"),
        (lambda: pnn.LayerNorm1d(3)(normal(2, 4)), "[LayerNorm1d] x must be [N, C] or [N, C, L] with C = 3, got [2, 4]"),
        (lambda: pnn.BatchNorm1d(3, momentum=1.5), "[BatchNorm1d] momentum must be from 0 to 1, or None, got 1.5"),
        (lambda: pnn.BatchNorm1d(3)(normal(2, 3, 4, 5)), "[BatchNorm1d] x must be [N, C] or [N, C, L] with C = 3, got [2, 3, 4, 5]"),
        (lambda: pnn.BatchNorm2d(3)(normal(2, 4, 3, 3)), "[BatchNorm2d] x must be [N, C, H, W] with C = 3, got [2, 4, 3, 3]"),
        (lambda: pnn.BatchNorm1d(3)(normal(1, 3)), "[batch_norm] x must have at least 2 elements in each channel in training, got [1, 3]"),
        (lambda: pnn.RecurrentBatchNorm(3, 0), "[RecurrentBatchNorm] max_length must be at least 1, got 0"),
        (lambda: pnn.RecurrentBatchNorm(3, 4, momentum=None), "[RecurrentBatchNorm] momentum must be from 0 to 1, got None"),
        (lambda: pnn.RecurrentBatchNorm(3, 4)(normal(2, 1, 3)), "[RecurrentBatchNorm] x must have at least 2 sequences in training, got [2, 1, 3]"),
        (lambda: pnn.RecurrentBatchNorm(3, 4)(normal(2, 5, 4)), "[RecurrentBatchNorm] x must be [T, B, C] or [B, C] with C = 3, got [2, 5, 4]"),
        (lambda: pnn.RecurrentBatchNorm(3, 4)(normal(2, 3), step=-1), "[RecurrentBatchNorm] step must be at least 0, got -1"),
        (lambda: pnn.weight_norm(nn.Linear(2, 3), "weights"), "[weight_norm] name must be a parameter of Linear, got 'weights'"),
        (lambda: pnn.weight_norm(nn.Linear(2, 3), dim=2), "[weight_norm] dim must be from -1 to 1 for weight [3, 2], got 2"),
        (lambda: pnn.nnet(0, 3, [2]), "[nnet] nin must be at least 1, got 0"),
        (lambda: pnn.nnet(2, 3, [1]), "[nnet] hidden must be at least 2, got 1"),
        (lambda: pnn.nnet(2, 3, 4, "rilu"), "[nnet] inner must be a callable or one of identity, logistic, relu, softplus, softsign, tanh, got 'rilu'"),
        (lambda: pnn.nnet(2, 3, 4, alpha=2.0), "[OnlineLayerNorm] alpha must be above 0 and at most 1, got 2.0"),
    ],
)  # fmt: skip
def test_errors(make, message):
    with pytest.raises(ValueError) as error:
        make()
    assert str(error.value) == message


@pytest.mark.parametrize("eps", [-1, -0.5, -1e-9, -1234567.0, float("nan"), float("inf")])
def test_modules_and_functions_refuse_eps_with_one_text(eps):
    x = torch.ones(2, 3)
    net, rnn = nn.Sequential(nn.LayerNorm(3)), torch.ones(1, 1)
    calls = [
        lambda: pnn.LayerNorm(3, eps=eps),
        lambda: PF.layer_norm(x, [3], eps=eps),
        lambda: PF.layer_norm(x.to("meta"), [3], eps=eps),
        lambda: PF.batch_norm(x, None, None, torch.zeros(3), torch.ones(3), False, eps=eps),
        lambda: planish.convert(net, "ada", eps=eps),
        lambda: pnn.LayerNormRNN(1, 1, variant="plain", eps=eps),
        lambda: torch.ops.planish.rnn_forward("rnn", rnn[None], rnn, rnn, eps=eps),
        lambda: torch.ops.planish.rnn_step("rnn", rnn, rnn, rnn, eps=eps),
    ]
    texts = set()
    for call in calls:
        with pytest.raises(ValueError) as error:
            call()
        texts.add(str(error.value).split("] ")[1])
    assert texts == {f"eps must be finite and at least 0, got {eps:g}"}


@pytest.mark.parametrize(
    "name",
    ["functional", "nn.norms", "nn.pointwise", "nn.groups", "nn.nnet", "_convert", "analysis.invariances", "analysis.gradients"],
)
def test_examples_of_the_docstrings(name):
    module = importlib.import_module(f"planish.{name}")
    torch.manual_seed(0)
    found = doctest.testmod(module)
    assert found.attempted > 0
    assert found.failed == 0


def test_package_has_the_functions():
    assert sorted(planish.functional.__all__) == sorted(
        name for name in vars(PF) if not name.startswith("_") and callable(getattr(PF, name))
        and getattr(PF, name).__module__ == "planish.functional"
    )  # fmt: skip
