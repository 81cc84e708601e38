"""dropout_add_layer_norm and dropout_add_rms_norm."""

import numpy
import pytest
import torch
from torch.nn import functional

from planish.functional import dropout_add_layer_norm, dropout_add_rms_norm

SEED = 0x123456789ABCDEF
TYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
# Tolerances of each type: one rounding of the sum and a few in the norm.
TOLERANCES = {
    torch.float32: 1e-5,
    torch.float64: 1e-12,
    torch.bfloat16: 2e-2,
    torch.float16: 2e-3,
}


def philox(counter, key):
    """Returns the words of Philox4x32-10 (Salmon et al. 2011), for arrays of counters."""
    x = [numpy.asarray(c, numpy.uint64) for c in counter]
    k = list(key)
    for _ in range(10):
        p0, p1 = x[0] * numpy.uint64(0xD2511F53), x[2] * numpy.uint64(0xCD9E8D57)
        low, high = numpy.uint64(0xFFFFFFFF), numpy.uint64(32)
        x = [
            (p1 >> high) ^ x[1] ^ numpy.uint64(k[0]),
            p1 & low,
            (p0 >> high) ^ x[3] ^ numpy.uint64(k[1]),
            p0 & low,
        ]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return numpy.stack(numpy.broadcast_arrays(*x))


def factors(rows, cols, p, seed=SEED):
    """Returns 0 or 1 / q for each element, by the definition in planish/dropout_norm.h."""
    row, col = numpy.meshgrid(numpy.arange(rows), numpy.arange(cols), indexing="ij")
    words = philox(
        (col // 128 * 16 + col % 16, row, numpy.zeros_like(row), numpy.zeros_like(row)),
        (seed & 0xFFFFFFFF, seed >> 32),
    )
    i = col % 128 // 16
    word = numpy.take_along_axis(words, (i // 2)[None], 0)[0]
    bits = numpy.where(i % 2 == 0, word & numpy.uint64(0xFFFF), word >> numpy.uint64(16))
    keep = round((1 - p) * 65536)
    return torch.tensor((bits < keep) * (65536 / keep if keep else 0.0))


def seed_of(value=SEED):
    return torch.tensor(value)


def operator(x, residual, shape, weight, bias, p, seed=SEED):
    return torch.ops.planish.dropout_add_layer_norm(
        x, residual, shape, weight, bias, seed_of(seed), p
    )


def inputs(rows=5, cols=200, dtype=torch.float64, grad=False):
    torch.manual_seed(rows * 1000 + cols)
    drawn = [
        torch.randn(rows, cols, dtype=dtype),
        torch.randn(rows, cols, dtype=dtype),
        1 + 0.3 * torch.randn(cols, dtype=dtype),
        torch.randn(cols, dtype=dtype),
    ]
    return [t.requires_grad_(grad) for t in drawn]


def composed(x, residual, weight, bias, factor):
    """The same in float64, with a given mask."""
    total = residual.double() + x.double() * factor
    y = functional.layer_norm(total, weight.shape, weight.double(), bias.double())
    return y, total


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("cols", [1, 7, 128, 200, 513])
@pytest.mark.parametrize("p", [0.1, 0.5, 0.97, 1.0])
def test_outputs_and_gradients(dtype, cols, p):
    tensors = inputs(9, cols, dtype, grad=True)
    exact = [t.detach().double().requires_grad_() for t in tensors]
    factor = factors(9, cols, p)
    y, total = operator(*tensors[:2], [cols], *tensors[2:], p)
    expected_y, expected_total = composed(*exact, factor)
    tolerance = TOLERANCES[dtype] * (1 / (1 - p) if p < 1 else 1)
    torch.testing.assert_close(total.double(), expected_total, rtol=tolerance, atol=tolerance)
    # y is the norm of the rounded sum.
    of_rounded = functional.layer_norm(
        total.detach().double(), [cols], exact[2].detach(), exact[3].detach()
    )
    torch.testing.assert_close(
        y.detach().double(), of_rounded, rtol=TOLERANCES[dtype], atol=TOLERANCES[dtype]
    )
    if dtype in (torch.bfloat16, torch.float16) or cols == 1:
        return  # the gradients of rounded sums differ
    dy, dtotal = torch.randn_like(y), torch.randn_like(total)
    ours = torch.autograd.grad([y, total], tensors, [dy, dtotal])
    theirs = torch.autograd.grad(
        [expected_y, expected_total], exact, [dy.double(), dtotal.double()]
    )
    for one, other in zip(ours, theirs, strict=True):
        scale = other.abs().max().item() + 1
        torch.testing.assert_close(
            one.double(), other, rtol=0, atol=TOLERANCES[dtype] * scale * 10
        )


@pytest.mark.parametrize("dtype", TYPES)
def test_gradients_by_other_paths_have_the_same_values(dtype):
    """One call of the core, and norm_backward with dropout, which create_graph needs."""
    tensors = inputs(300, 200, dtype, grad=True)
    y, total = operator(*tensors[:2], [200], *tensors[2:], 0.3)
    dy, dtotal = torch.randn_like(y), torch.randn_like(total)
    ours = torch.autograd.grad([y, total], tensors, [dy, dtotal], retain_graph=True)
    others = torch.autograd.grad([y, total], tensors, [dy, dtotal], create_graph=True)
    for one, other in zip(ours[:2], others[:2], strict=True):
        assert torch.equal(one, other)
    for one, other in zip(ours[2:], others[2:], strict=True):
        # Sums of 300 rows in another order, and one rounding.
        torch.testing.assert_close(one, other, rtol=TOLERANCES[dtype], atol=TOLERANCES[dtype])


def test_gradients_of_one_output_and_of_some_inputs():
    x, residual, weight, bias = inputs(4, 30)
    factor = factors(4, 30, 0.5)
    for wanted in (0, 1, 2, 3):
        tensors = [x, residual, weight, bias]
        tensors[wanted] = tensors[wanted].clone().requires_grad_()
        for output in (0, 1):
            if output == 1 and wanted > 1:
                continue
            ours = operator(*tensors[:2], [30], *tensors[2:], 0.5)[output].square().sum()
            theirs = composed(*tensors, factor)[output].square().sum()
            torch.testing.assert_close(
                torch.autograd.grad(ours, tensors[wanted]),
                torch.autograd.grad(theirs, tensors[wanted]),
            )


def test_derivatives_of_any_order():
    tensors = inputs(2, 6, grad=True)

    def function(*t):
        return operator(*t[:2], [6], *t[2:], 0.4)

    assert torch.autograd.gradcheck(function, tensors, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(function, tensors)


def test_rms_norm_and_no_parameters():
    x, residual, weight, _ = inputs(6, 40, torch.float32)
    factor = factors(6, 40, 0.5).float()
    y, total = torch.ops.planish.dropout_add_rms_norm(
        x, residual, [40], weight, seed_of(), 0.5, 1e-6
    )
    torch.testing.assert_close(total, residual + x * factor)
    torch.testing.assert_close(y, functional.rms_norm(total, [40], weight, 1e-6))
    y, total = operator(x, residual, [40], None, None, 0.5)
    torch.testing.assert_close(y, functional.layer_norm(total, [40]))
    # A bias without a weight.
    bias = torch.randn(40, requires_grad=True)
    y, _ = operator(x, residual, [40], None, bias, 0.5)
    (gradient,) = torch.autograd.grad(y.sum(), bias)
    torch.testing.assert_close(gradient, torch.full((40,), 6.0))


def test_shapes_and_layouts():
    x, residual, _, _ = inputs(6, 40, torch.float32)
    expected = operator(x, residual, [40], None, None, 0.5)
    spread = torch.empty(6, 80)[:, ::2]
    for one, other in [
        (x.t().contiguous().t(), residual),
        (spread.copy_(x), residual.t().contiguous().t()),
    ]:
        for ours, theirs in zip(operator(one, other, [40], None, None, 0.5), expected, strict=True):
            assert torch.equal(ours, theirs)
    y, total = operator(x.view(2, 3, 40), residual.view(2, 3, 40), [40], None, None, 0.5)
    assert torch.equal(total.view(6, 40), expected[1])
    assert y.shape == (2, 3, 40)
    # Two normalized dimensions are one row.
    weight = torch.randn(3, 40)
    y, total = operator(x.view(2, 3, 40), residual.view(2, 3, 40), [3, 40], weight, None, 0.5)
    rows = operator(x.view(2, 120), residual.view(2, 120), [120], weight.view(120), None, 0.5)
    assert torch.equal(y.view(2, 120), rows[0])
    for empty in (torch.empty(0, 5), torch.empty(3, 0)):
        y, total = operator(empty, empty, [empty.shape[1]], None, None, 0.5)
        assert y.shape == total.shape == empty.shape


def test_types_are_promoted():
    x, residual, weight, bias = inputs(3, 10, torch.float32)
    y, total = operator(x.bfloat16(), residual, [10], weight.double(), bias.double(), 0.5)
    assert y.dtype == total.dtype == torch.float32
    with torch.autocast("cpu"):
        y, total = operator(x.bfloat16(), residual.bfloat16(), [10], weight, bias, 0.5)
    assert y.dtype == torch.bfloat16


def test_the_functions_draw_seeds():
    x, residual, weight, bias = inputs(8, 64, torch.float32)
    torch.manual_seed(3)
    first = dropout_add_layer_norm(x, residual, [64], weight, bias, p=0.3)
    second = dropout_add_layer_norm(x, residual, [64], weight, bias, p=0.3)
    assert not torch.equal(first[1], second[1])
    torch.manual_seed(3)
    again = dropout_add_layer_norm(x, residual, [64], weight, bias, p=0.3)
    assert torch.equal(first[1], again[1])
    generators = [torch.Generator().manual_seed(7) for _ in range(2)]
    one, other = (
        dropout_add_rms_norm(x, residual, [64], weight, p=0.3, generator=g)[1] for g in generators
    )
    assert torch.equal(one, other)
    for options in ({"training": False}, {"p": 0}):
        y, total = dropout_add_layer_norm(x, residual, [64], weight, bias, **options)
        assert torch.equal(total, x + residual)
        torch.testing.assert_close(y, functional.layer_norm(total, [64], weight, bias))
        y, total = dropout_add_rms_norm(x, residual, [64], weight, **options)
        assert torch.equal(total, x + residual)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_calls(backend):
    tensors = inputs(6, 50, torch.float32, grad=True)

    def function(*t):
        y, total = operator(*t[:2], [50], *t[2:], 0.3)
        return y.square().sum() + total.sum()

    torch._dynamo.reset()
    compiled = torch.compile(function, backend=backend, fullgraph=True)
    torch.testing.assert_close(compiled(*tensors), function(*tensors))
    torch.testing.assert_close(
        torch.autograd.grad(compiled(*tensors), tensors),
        torch.autograd.grad(function(*tensors), tensors),
    )
    trained = torch.compile(
        lambda x, r: dropout_add_layer_norm(x, r, [50], p=0.5)[1], backend=backend, fullgraph=True
    )
    assert not torch.equal(trained(*tensors[:2]), trained(*tensors[:2]))


def test_operators_pass_opcheck():
    x, residual, weight, bias = inputs(3, 10, torch.float32, grad=True)
    seed = seed_of()
    torch.library.opcheck(torch.ops.planish.dropout.default, (x, seed, 0.3))
    torch.library.opcheck(
        torch.ops.planish.dropout_norm_forward.default,
        (x, residual, weight, bias, seed, "layer", 1e-5, 0.3, False),
    )


def test_cases_of_vmap_have_the_same_mask():
    x, residual, weight, bias = inputs(12, 10, torch.float32)
    cases = x.view(3, 4, 10), residual.view(3, 4, 10)
    y, total = torch.vmap(
        lambda a, b: operator(a, b, [10], weight, bias, 0.4), randomness="same"
    )(*cases)
    for i in range(3):
        one = operator(cases[0][i], cases[1][i], [10], weight, bias, 0.4)
        torch.testing.assert_close(total[i], one[1])
        torch.testing.assert_close(y[i], one[0])


def test_invalid_arguments():
    x, residual, weight, _ = inputs(3, 10, torch.float32)
    name = r"\[dropout_add_layer_norm\] "
    for p in (-0.1, 1.5, float("nan")):
        with pytest.raises(ValueError, match=name + "p must be from 0 to 1, got"):
            dropout_add_layer_norm(x, residual, [10], p=p)
    with pytest.raises(ValueError, match=name + "residual must have x's sizes"):
        dropout_add_layer_norm(x, residual[:2], [10])
    with pytest.raises(ValueError, match=name + "normalized_shape must be the last dimensions"):
        dropout_add_layer_norm(x, residual, [9])
    with pytest.raises(ValueError, match=name + "weight must have normalized_shape"):
        dropout_add_layer_norm(x, residual, [10], weight[:9])
    with pytest.raises(ValueError, match=name + "weight and bias must have normalized_shape"):
        dropout_add_layer_norm(x, residual, [10], torch.ones(3, 10))
    with pytest.raises(ValueError, match=name + "seed must be one int64 on the CPU"):
        torch.ops.planish.dropout_add_layer_norm(
            x, residual, [10], None, None, torch.ones(2, dtype=torch.int64), 0.5
        )
    with pytest.raises(ValueError, match=r"\[dropout_norm_forward\] norm must be one of"):
        torch.ops.planish.dropout_norm_forward(
            x, residual, None, None, seed_of(), "batch", 1e-5, 0.5, False
        )
