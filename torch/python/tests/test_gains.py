"""Norms over rows with several gains: weight and bias that broadcast to x, as in modulated norms and norms of heads.

The oracle is PyTorch's norm without weight and bias, in float64, times the broadcast weight.
"""

import pytest
import torch
from torch import nn
from torch.nn import functional

import planish

F = planish.functional

# Sizes of x, of weight and of bias (None: left out), and the number of normalized dimensions.
CASES = {
    "a gain for each sample": ((3, 5, 8), (3, 1, 8), (3, 1, 8), 1),
    "a gain for each head": ((4, 5, 3, 8), (3, 8), (3, 8), 1),
    "heads before positions": ((4, 3, 5, 8), (3, 1, 8), (3, 1, 8), 1),
    "two places": ((4, 3, 5, 2, 8), (4, 1, 5, 1, 8), (4, 1, 5, 1, 8), 1),
    "a gain for each row": ((4, 6, 8), (4, 6, 8), (4, 6, 8), 1),
    "sizes of 1": ((1, 6, 1, 8), (1, 6, 1, 8), None, 1),
    "several normalized dimensions": ((4, 6, 2, 3), (4, 1, 2, 3), (4, 1, 2, 3), 2),
    "heads of several dimensions": ((4, 6, 2, 3), (6, 2, 3), None, 2),
    "one weight, several biases": ((3, 5, 8), (8,), (3, 1, 8), 1),
    "several weights, one bias": ((4, 3, 8), (3, 8), (8,), 1),
    "weight and bias along different dimensions": ((3, 5, 8), (3, 1, 8), (5, 8), 1),
    "only several biases": ((3, 5, 8), None, (3, 1, 8), 1),
    "only dimensions of size 1": ((3, 5, 8), (1, 1, 8), (1, 8), 1),
    "many rows": ((2, 700, 33), (2, 1, 33), (2, 1, 33), 1),
    "many rows of heads": ((700, 2, 33), (2, 33), (2, 33), 1),
    "no rows": ((3, 0, 8), (3, 1, 8), (3, 1, 8), 1),
    "no gains": ((0, 5, 8), (0, 1, 8), (0, 1, 8), 1),
    "no columns": ((3, 5, 0), (3, 1, 0), (3, 1, 0), 1),
}


def tensors(case, dtype=torch.float64, parameters=None):
    sizes, weight, bias, dims = CASES[case]
    generator = torch.Generator().manual_seed(len(case))

    def normal(shape, mean, dtype):
        return None if shape is None else (torch.randn(shape, generator=generator) + mean).to(dtype).requires_grad_()

    x = normal(sizes, 1, dtype)
    dy = torch.randn(sizes, generator=generator).to(dtype)
    weight, bias = normal(weight, 1, parameters or dtype), normal(bias, 0, parameters or dtype)
    return x, weight, bias, dy, sizes[len(sizes) - dims :]


def oracle(norm, x, weight, bias, shape, eps=1e-5):
    dims = tuple(range(-len(shape), 0))
    centred = x - x.mean(dims, keepdim=True) if norm == "layer" else x
    y = centred * (centred.square().mean(dims, keepdim=True) + eps).rsqrt()
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def gradients(y, dy, *inputs):
    wanted = [t for t in inputs if t is not None]
    return torch.autograd.grad(y, wanted, dy)


def close(found, expected, tolerance):
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        if other.numel():
            error = (one.double() - other.double()).abs().max().item()
            assert error <= tolerance * max(1, other.double().abs().max().item())


@pytest.mark.parametrize("norm", ["layer", "rms"])
@pytest.mark.parametrize("case", CASES)
# float: 16 roundings of 2^-24 at values near 1; 16 bits: one rounding of a result, and for dweight one of each sum.
@pytest.mark.parametrize(
    ("dtype", "parameters", "tolerance"),
    [
        (torch.float64, torch.float64, 1e-13),
        (torch.float32, torch.float32, 2e-6),
        (torch.bfloat16, torch.bfloat16, 2**-8),
        (torch.float16, torch.float32, 2**-11),
    ],
)
def test_result_and_gradients(norm, case, dtype, parameters, tolerance):
    x, weight, bias, dy, shape = tensors(case, dtype, parameters)
    y = F.row_norm(x, shape, norm, weight, bias)
    assert y.dtype == dtype
    wide = [None if t is None else t.detach().double().requires_grad_() for t in (x, weight, bias)]
    expected = oracle(norm, *wide, shape)
    close([y], [expected], tolerance)
    found = gradients(y, dy, x, weight, bias)
    close(found, gradients(expected, dy.double(), *wide), tolerance)
    with torch.no_grad():
        assert torch.equal(F.row_norm(x, shape, norm, weight, bias), y)


@pytest.mark.parametrize("case", ["a gain for each sample", "a gain for each head", "heads before positions"])
def test_higher_derivatives(case):
    x, weight, bias, _, shape = tensors(case)

    def call(x, weight, bias):
        return F.layer_norm(x, shape, weight, bias)

    x, weight, bias = (t[:2].detach().requires_grad_() if t.shape[0] == x.shape[0] else t for t in (x, weight, bias))
    assert torch.autograd.gradcheck(call, (x, weight, bias), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(call, (x, weight, bias))


@pytest.mark.parametrize("case", ["a gain for each sample", "a gain for each head"])
def test_vmap(case):
    x, weight, bias, _, shape = (t.detach() if isinstance(t, torch.Tensor) else t for t in tensors(case))
    xs = torch.stack([x, 2 * x + 1, x.square()])
    found = torch.vmap(lambda x: F.layer_norm(x, shape, weight, bias))(xs)
    close([found], [torch.stack([oracle("layer", x, weight, bias, shape) for x in xs])], 1e-13)
    weights = torch.stack([weight, -weight, weight + 2])
    found = torch.vmap(lambda x, w: torch.func.grad(lambda w: F.rms_norm(x, shape, w).square().sum())(w))(xs, weights)
    expected = [
        gradients(oracle("rms", x, w, None, shape, torch.finfo(torch.float64).eps).square().sum(), None, w)[0]
        for x, w in zip(xs, weights.clone().requires_grad_().unbind(), strict=True)
    ]
    close([found], [torch.stack(expected)], 1e-12)


@pytest.mark.parametrize("case", ["a gain for each sample", "a gain for each head", "heads before positions"])
def test_sum_with_a_residual(case):
    x, weight, bias, dy, shape = tensors(case)
    residual = torch.randn_like(x, requires_grad=True)
    y, s = F.add_layer_norm(x, residual, shape, weight, bias)
    expected = oracle("layer", x + residual, weight, bias, shape)
    close([y, s], [expected, x + residual], 1e-13)
    found = torch.autograd.grad((y, s), (x, residual, weight, bias), (dy, 2 * dy))
    close(found, torch.autograd.grad((expected, x + residual), (x, residual, weight, bias), (dy, 2 * dy)), 1e-13)


def test_modulated_norm():
    x = torch.randn(2, 5, 8)
    shift, scale = torch.randn(2, 16).chunk(2, 1)
    y = F.layer_norm(x, [8], scale[:, None], shift[:, None], eps=1e-6, weight_offset=1)
    expected = functional.layer_norm(x, [8], eps=1e-6) * (1 + scale[:, None]) + shift[:, None]
    close([y], [expected], 2e-6)


@pytest.mark.long
@pytest.mark.parametrize("case", ["a gain for each sample", "a gain for each head", "heads before positions"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_compile(case, dynamic):
    x, weight, bias, dy, shape = tensors(case, torch.float32)

    def call(x, weight, bias):
        return F.layer_norm(x, shape, weight, bias)

    y = torch.compile(call, fullgraph=True, dynamic=dynamic)(x, weight, bias)
    expected = call(x, weight, bias)
    close([y], [expected], 2e-6)
    close(gradients(y, dy, x, weight, bias), gradients(expected, dy, x, weight, bias), 2e-6)


@pytest.mark.parametrize("case", ["a gain for each sample", "a gain for each head", "heads before positions"])
def test_export(case):
    x, weight, bias, _, shape = (t.detach() if isinstance(t, torch.Tensor) else t for t in tensors(case))

    class Norm(nn.Module):
        def forward(self, x, weight, bias):
            return F.layer_norm(x, shape, weight, bias)

    program = torch.export.export(Norm(), (x, weight, bias))
    expected = F.layer_norm(x, shape, weight, bias)
    close([program.module()(x, weight, bias)], [expected], 0)
    composed = planish.export.decompose(program)
    assert not any("planish" in str(node.target) for node in composed.graph.nodes)
    close([composed.module()(x, weight, bias)], [expected], 1e-13)


def test_a_view_of_x_is_not_copied_into_the_result():
    x = torch.randn(6, 4, 10)[:, :, 1:9]
    weight = torch.randn(4, 8)
    close([F.rms_norm(x, [8], weight, 1e-5)], [oracle("rms", x, weight, None, [8])], 2e-6)
    turned = torch.randn(4, 6, 8).transpose(0, 1)
    close([F.rms_norm(turned, [8], weight, 1e-5)], [oracle("rms", turned, weight, None, [8])], 2e-6)


@pytest.mark.parametrize(
    ("weight", "bias", "message"),
    [
        ((5, 8), None, "weight must broadcast to x's sizes, [3, 4, 8], got [5, 8]"),
        ((2, 3, 4, 8), None, "weight must broadcast to x's sizes, [3, 4, 8], got [2, 3, 4, 8]"),
        ((4, 1), None, "weight must have normalized_shape, [8], got [4, 1]"),
        ((4, 8), (3, 8), "bias must broadcast to x's sizes, [3, 4, 8], got [3, 8]"),
    ],
)
def test_errors(weight, bias, message):
    bias = None if bias is None else torch.ones(bias)
    with pytest.raises(ValueError) as error:
        F.layer_norm(torch.ones(3, 4, 8), [8], torch.ones(weight), bias)
    assert str(error.value).partition("\n")[0] == f"[layer_norm] {message}"




@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("offset", [0.0, 1.0])
def test_groups_of_layer_norm_are_those_of_group_norm(dtype, offset):
    ours = planish.nn.LayerNorm(12, eps=1e-3, dtype=dtype, weight_offset=offset, groups=3)
    theirs = nn.GroupNorm(3, 12, eps=1e-3, dtype=torch.float64)
    assert ours.weight.shape == (12,)
    with torch.no_grad():
        theirs.weight.copy_(ours.weight.normal_(1).double() + offset)
        theirs.bias.copy_(ours.bias.normal_())
    x = torch.randn(7, 12, dtype=dtype, requires_grad=True)
    wide = x.detach().double().requires_grad_()
    y, expected = ours(x), theirs(wide)
    tolerance = {torch.float64: 1e-13, torch.float32: 2e-6, torch.bfloat16: 2**-8}[dtype]  # as above
    close([y], [expected], tolerance)
    dy = torch.randn_like(y)
    found = torch.autograd.grad(y, (x, ours.weight, ours.bias), dy)
    close(found, torch.autograd.grad(expected, (wide, theirs.weight, theirs.bias), dy.double()), tolerance)


def test_groups_of_rms_norm():
    norm = planish.nn.RMSNorm(8, eps=1e-6, groups=2)
    nn.init.normal_(norm.weight)
    x = torch.randn(3, 5, 8)
    halves = [functional.rms_norm(half, [4], eps=1e-6) for half in x.chunk(2, -1)]
    close([norm(x)], [torch.cat(halves, -1) * norm.weight], 2e-6)
    assert repr(norm) == "RMSNorm((8,), eps=1e-06, elementwise_affine=True, groups=2)"
    plain = planish.nn.RMSNorm(8, eps=1e-6, elementwise_affine=False, groups=2)
    close([plain(x)], [torch.cat(halves, -1)], 2e-6)


@pytest.mark.long
def test_groups_compile():
    norm = planish.nn.LayerNorm(8, groups=2)
    x = torch.randn(3, 5, 8, requires_grad=True)
    compiled = torch.compile(norm, fullgraph=True)
    close([compiled(x)], [norm(x)], 2e-6)
    compiled(x).sum().backward()


def test_groups_and_the_rest_of_the_package():
    model = nn.Sequential(planish.nn.LayerNorm(8, groups=2))
    assert planish.convert(model, "torch").left[0].reason == "it has 2 groups"
    with planish.analysis.gradient_statistics(model) as statistics:
        model(torch.randn(3, 8)).sum().backward()
    assert not statistics.layers


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: planish.nn.RMSNorm(8, groups=3), "[RMSNorm] groups must divide normalized_shape, 8, got 3"),
        (lambda: planish.nn.LayerNorm(8, groups=0), "[LayerNorm] groups must be at least 1, got 0"),
        (lambda: planish.nn.LayerNorm((2, 4), groups=2), "[LayerNorm] normalized_shape must be one size with 2 groups, got [2, 4]"),
        (lambda: planish.nn.RMSNorm(8, groups=2)(torch.ones(3, 4)), "[RMSNorm] x must be [..., 8], got [3, 4]"),
    ],
)  # fmt: skip
def test_errors_of_groups(make, message):
    with pytest.raises(ValueError) as error:
        make()
    assert str(error.value) == message


def jagged(*sizes):
    return torch.nested.as_nested_tensor([torch.randn(size) for size in sizes], layout=torch.jagged)


def test_nested_tensors_have_one_gain_along_their_sequences():
    x, weight, bias = jagged((2, 8), (4, 8)), torch.randn(1, 1, 8), torch.randn(1, 8)
    values = x.values()
    close([F.layer_norm(x, [8], weight, bias).values()], [oracle("layer", values, weight[0], bias, [8])], 2e-6)
    close([F.layer_norm(x, [8], None, bias).values()], [oracle("layer", values, None, bias, [8])], 2e-6)
    heads, weight = jagged((2, 3, 8), (4, 3, 8)), torch.randn(3, 8)
    close([F.rms_norm(heads, [8], weight, 1e-5).values()], [oracle("rms", heads.values(), weight, None, [8])], 2e-6)
    norm = planish.nn.LayerNorm(8, groups=2)
    close([norm(x).values()], [norm(values)], 0)
    with pytest.raises(ValueError) as error:
        F.layer_norm(x, [8], torch.ones(2, 1, 8))
    assert str(error.value).partition("\n")[0] == (
        "[layer_norm] weight and bias must have size 1 along the first two dimensions of a nested tensor, got [2, 1, 8]"
    )
    with pytest.raises(ValueError, match="layout=torch.jagged"):
        norm(torch.nested.nested_tensor([torch.randn(2, 8), torch.randn(4, 8)], layout=torch.strided))


@pytest.mark.parametrize(
    ("size", "shape", "weight"), [((0, 5, 0), [0], (0, 1, 0)), ((0, 5, 0), [5, 0], (0, 5, 0)), ((0, 0, 3), [0, 3], (0, 0, 3))]
)  # fmt: skip
def test_no_gains_and_no_columns(size, shape, weight):
    x, weight = torch.ones(size, requires_grad=True), torch.ones(weight, requires_grad=True)
    y = F.layer_norm(x, shape, weight)
    y.sum().backward()
    assert (y.shape, x.grad.shape, weight.grad.shape) == (x.shape, x.shape, weight.shape)


@pytest.mark.parametrize("case", CASES)
def test_results_are_contiguous(case):
    x, weight, bias, _, shape = tensors(case)
    assert F.layer_norm(x, shape, weight, bias).is_contiguous()


def test_groups_are_traced():
    norm = planish.nn.LayerNorm(12, groups=3)
    x = torch.randn(5, 12)
    close([torch.fx.symbolic_trace(nn.Sequential(norm))(x)], [norm(x)], 0)
    rms = planish.nn.RMSNorm(12, groups=3, weight_offset=1.0)
    close([torch.jit.trace(rms, (x,))(torch.cat([x, x]))], [rms(torch.cat([x, x]))], 0)


@pytest.mark.long
def test_offsets_compile_with_dynamic_sizes():
    norm = planish.nn.RMSNorm(12, weight_offset=1.0, groups=2)
    x = torch.randn(5, 12)
    close([torch.compile(norm, fullgraph=True, dynamic=True, backend="aot_eager")(x)], [norm(x)], 2e-6)


@pytest.mark.parametrize("shape", [(8,), (3, 1, 8)])
def test_a_sum_whose_terms_need_no_gradient(shape):
    weight = torch.randn(shape, requires_grad=True)
    x, residual = torch.randn(2, 3, 4, 8)
    y, s = F.add_layer_norm(x, residual, [8], weight)
    (y.sum() + s.sum()).backward()
    expected = functional.layer_norm(x + residual, [8]).sum_to_size(shape)
    close([weight.grad], [expected], 2e-6)
