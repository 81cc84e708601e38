"""GroupNorm and InstanceNorm beside those of torch.nn."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import planish
import planish.functional as PF
import planish.nn as pnn

TYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
# [N, C, ...] and groups: no samples, channels or positions; one and odd; runs shorter and longer than
# a vector; more than a million elements.
SHAPES = [
    ((0, 6, 5), 3), ((2, 0, 5), 1), ((2, 6, 0), 3), ((3, 6), 2), ((1, 1, 2), 1), ((2, 6, 1), 3), ((3, 6, 7), 6),
    ((2, 8, 5, 5), 4), ((2, 12, 7, 9), 3), ((2, 4, 3, 4, 5), 2), ((1, 64, 33), 32), ((4, 300, 3), 1),
    ((9, 16, 90, 90), 4),
]  # fmt: skip


def draw(module):
    """Gives every parameter a random value."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_()
    return module


def reference(x, dy, weight, bias, groups, eps=1e-5):
    """y and the gradients of x, weight and bias in float64."""
    tensors = [t.detach().double().requires_grad_() for t in (x, weight, bias)]
    y = F.group_norm(tensors[0], groups, *tensors[1:], eps)
    return y, *torch.autograd.grad(y, tensors, dy.double())


def check(x, groups, dtype, format=torch.contiguous_format):
    module = draw(pnn.GroupNorm(groups, x.shape[1], dtype=dtype))
    x = x.to(dtype).contiguous(memory_format=format).requires_grad_()
    dy = torch.randn(x.shape, dtype=torch.float64).to(dtype)
    y = module(x)
    assert y.is_contiguous(memory_format=format) and y.dtype == dtype
    found = [y, *torch.autograd.grad(y, [x, module.weight, module.bias], dy)]
    assert found[1].is_contiguous(memory_format=format)
    if x.numel() == 0:
        assert all((t == 0).all() for t in found)
        return
    # The length of a group can be 1: rstd is then 300, and multiplies roundings.
    scale = 300 if x.numel() == len(x) * groups else 1
    eps, unit = torch.finfo(dtype).eps, torch.finfo(torch.promote_types(dtype, torch.float32)).eps
    terms = x.numel() / x.shape[1]
    for t, expected, count in zip(found, reference(x, dy, module.weight, module.bias, groups), (1, 1, terms, terms)):
        size = expected.detach().abs().max()
        atol = scale * (30 * unit * (count**0.5 + size) + eps / 8)  # roundings of values and sums
        torch.testing.assert_close(t.double(), expected, rtol=2 * eps, atol=float(atol))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("shape", "groups"), SHAPES)
def test_group_norm_matches_torch_in_float64(shape, groups, dtype):
    check(torch.randn(shape, dtype=torch.float64), groups, dtype)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(2, 8, 5, 7), (1, 40, 16, 16), (20, 6, 3, 3), (2, 6, 3, 2, 4)])
def test_channels_last_is_preserved(shape, dtype):
    format = torch.channels_last if len(shape) == 4 else torch.channels_last_3d
    check(torch.randn(shape, dtype=torch.float64), 2, dtype, format)


def test_strides_of_any_kind():
    module = draw(pnn.GroupNorm(2, 6))
    x = torch.randn(5, 9, 6, 8)
    for view in (x.transpose(1, 2), x.permute(3, 2, 0, 1), x[::2].transpose(1, 2)[..., 1:], x.transpose(1, 2)[:1].expand(3, -1, -1, -1)):
        view = view.detach().requires_grad_()
        y = module(view)
        expected = module(view.detach().contiguous())
        torch.testing.assert_close(y, expected)
        (dx,) = torch.autograd.grad(y.sin().sum(), view)
        assert dx.shape == view.shape


# PyTorch loses all digits of the deviation.
@pytest.mark.parametrize("shape", [(2, 6, 5), (2, 6, 100), (2, 6, 9, 9)])
def test_exact_at_a_large_mean(shape):
    x = 1e4 + torch.randn(shape)
    expected = F.group_norm(x.double(), 3)
    for format in (torch.contiguous_format, *([torch.channels_last] if len(shape) == 4 else [])):
        y = PF.group_norm(x.contiguous(memory_format=format), 3)
        torch.testing.assert_close(y.double(), expected, rtol=1e-5, atol=2e-6)  # roundings of float


@pytest.mark.parametrize("format", [torch.contiguous_format, torch.channels_last])
def test_same_bits_for_any_number_of_threads(format):
    module = draw(pnn.GroupNorm(4, 16))
    x, dy = (torch.randn(8, 16, 40, 40).contiguous(memory_format=format) for _ in range(2))

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


def test_nan_and_infinity_stay_in_their_group():
    x = torch.randn(2, 6, 5)
    expected = PF.group_norm(x, 3)
    x[0, 2, 1], x[1, 5, 0] = float("nan"), float("inf")
    y = PF.group_norm(x, 3)
    assert y[0, 2:4].isnan().all() and y[1, 4:].isnan().all()
    assert torch.equal(y[0, :2], expected[0, :2]) and torch.equal(y[1, :4], expected[1, :4])


@pytest.mark.parametrize("parameters", TYPES)
@pytest.mark.parametrize("dtype", TYPES)
def test_parameters_of_any_floating_type(dtype, parameters):
    module = draw(pnn.GroupNorm(2, 6, dtype=parameters))
    x = torch.randn(3, 6, 5).to(dtype)
    y = module(x)
    y.float().sum().backward()
    assert y.dtype == dtype and module.weight.grad.dtype == parameters
    expected = F.group_norm(x.double(), 2, module.weight.double(), module.bias.double())
    torch.testing.assert_close(y.double(), expected, rtol=torch.finfo(dtype).eps, atol=2e-2 if dtype.itemsize == 2 else 1e-5)


NAMES = {1: "InstanceNorm1d", 2: "InstanceNorm2d", 3: "InstanceNorm3d"}


@pytest.mark.parametrize("dtype", TYPES[:2])
@pytest.mark.parametrize("tracked", [False, True])
@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_instance_norm_matches_torch(dims, affine, tracked, dtype):
    arguments = {"affine": affine, "track_running_stats": tracked, "momentum": 0.3, "dtype": dtype}
    ours = draw(getattr(pnn, NAMES[dims])(4, **arguments))
    theirs = getattr(nn, NAMES[dims])(4, **arguments)
    theirs.load_state_dict(ours.state_dict())
    assert isinstance(ours, type(theirs)) and str(ours) == str(theirs)
    tolerance = {"rtol": 1e-4, "atol": 1e-5} if dtype == torch.float32 else {}  # roundings of float
    for shape in ((3, 4, 5, 3, 2), (1, 4, 2, 3, 4), (4, 7, 3, 2)):  # the last has no batch
        shape = shape[: len(shape) - 3 + dims]
        for training in (True, False):
            xs = [torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(3)).requires_grad_() for _ in range(2)]
            ys = [module.train(training)(x) for module, x in zip((ours, theirs), xs)]
            torch.testing.assert_close(*ys, **tolerance)
            torch.testing.assert_close(*(torch.autograd.grad(y.sin().sum(), x)[0] for y, x in zip(ys, xs)), **tolerance)
            for a, b in zip(ours.buffers(), theirs.buffers(), strict=True):
                torch.testing.assert_close(a, b, **tolerance)
    assert list(ours.state_dict()) == list(theirs.state_dict())


def test_modules_share_checkpoints_with_torch():
    theirs = draw(nn.GroupNorm(3, 6))
    ours = pnn.GroupNorm(3, 6)
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(2, 6, 5)
    torch.testing.assert_close(ours(x), theirs(x))
    assert isinstance(ours, nn.GroupNorm)
    assert pnn.GroupNorm(3, 6, bias=False).bias is None
    assert pnn.GroupNorm(3, 6, affine=False).weight is None


@pytest.mark.parametrize("to", ["planish", "torch"])
def test_convert(to):
    here, there = (nn, pnn) if to == "planish" else (pnn, nn)
    model = nn.Sequential(
        here.GroupNorm(2, 4, eps=1e-3), here.InstanceNorm2d(4, affine=True),
        here.InstanceNorm2d(4, track_running_stats=True, momentum=0.2), here.GroupNorm(4, 4, affine=False),
    )  # fmt: skip
    draw(model)
    x = torch.randn(2, 4, 3, 3)
    model(x)
    before = list(model)
    model.eval()
    expected = model(x)
    report = planish.convert(model, to)
    assert len(report.changed) == 4 and not report.left, report
    for old, new in zip(before, model):
        assert type(new) is getattr(there, type(old).__name__)
        assert new.weight is old.weight and new.eps == old.eps
    assert model[2].running_mean is before[2].running_mean and model[2].momentum == 0.2
    torch.testing.assert_close(model(x), expected)


def test_convert_leaves_norms_of_channels_to_their_kind():
    model = nn.Sequential(nn.GroupNorm(2, 4), nn.InstanceNorm1d(4))
    for to in ("layer", "rms", "dyt"):
        report = planish.convert(model, to)
        assert not report.changed and all("normalizes channels" in left.reason for left in report.left)
    planish.convert(model, "none")
    assert all(isinstance(module, nn.Identity) for module in model)


@pytest.mark.parametrize("dynamic", [None, True])
def test_compiles_in_one_graph(dynamic):
    module = draw(pnn.GroupNorm(2, 4))
    compiled = torch.compile(module, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for shape in ((2, 4, 5, 5), (3, 4, 6, 7)):
        for format in (torch.contiguous_format, torch.channels_last):
            x = torch.randn(shape).contiguous(memory_format=format)
            y = compiled(x)
            torch.testing.assert_close(y, module(x))
            assert y.is_contiguous(memory_format=format)


X = torch.ones(2, 6, 3)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda: pnn.GroupNorm(4, 6), "[GroupNorm] num_groups must divide num_channels, 6, got 4"),
        (lambda: pnn.GroupNorm(0, 6), "[GroupNorm] num_groups must be at least 1, got 0"),
        (lambda: pnn.GroupNorm(2, 4)(X), "[GroupNorm] x must be [N, C, ...] with C = 4, got [2, 6, 3]"),
        (lambda: PF.group_norm(X, 4), "[group_norm] num_groups must divide the channels of x, 6, got 4"),
        (lambda: PF.group_norm(X, 0), "[group_norm] num_groups must be at least 1, got 0"),
        (lambda: PF.group_norm(X[0, 0], 1), "[group_norm] x must have at least 2 dimensions, got 1"),
        (lambda: PF.group_norm(X, 2, torch.ones(3)), "[group_norm] weight must have [6], got [3]"),
        (lambda: PF.group_norm(X, 2, eps=-1), "[group_norm] eps must be finite and at least 0, got -1"),
        (lambda: PF.instance_norm(X[..., :1]), "[instance_norm] x must have at least 2 spatial elements, got [2, 6, 1]"),
        (lambda: PF.instance_norm(X[..., 0]), "[instance_norm] x must have at least 3 dimensions, got 2"),
        (lambda: PF.instance_norm(X, use_input_stats=False), "[instance_norm] running_mean must be a tensor without use_input_stats, got none"),
        (lambda: PF.instance_norm(X, torch.ones(6)), "[instance_norm] running_mean and running_var must be given together, got only one"),
        (lambda: pnn.InstanceNorm1d(4)(X), "[InstanceNorm1d] x must be [N, C, L] or [C, L] with C = 4, got [2, 6, 3]"),
        (lambda: pnn.InstanceNorm2d(4, momentum=2), "[InstanceNorm2d] momentum must be from 0 to 1, got 2"),
    ],
)  # fmt: skip
def test_errors(function, message):
    with pytest.raises(ValueError) as error:
        function()
    assert str(error.value).split("\n")[0] == message
