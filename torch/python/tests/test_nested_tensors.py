"""Norms of nested tensors."""

import pytest
import torch
from torch import nn

import planish.functional as PF
from planish import nn as pnn

ROWS = {
    "layer_norm": (lambda: pnn.LayerNorm(8), lambda: nn.LayerNorm(8)),
    "layer_norm_no_bias": (lambda: pnn.LayerNorm(8, bias=False), lambda: nn.LayerNorm(8, bias=False)),
    "layer_norm_simple": (lambda: pnn.LayerNormSimple(8), lambda: nn.LayerNorm(8, elementwise_affine=False)),
    "rms_norm": (lambda: pnn.RMSNorm(8), lambda: nn.RMSNorm(8)),
}  # fmt: skip


def jagged(seed=0, lengths=(3, 1, 5), shape=(8,), requires_grad=True):
    generator = torch.Generator().manual_seed(seed)
    parts = [torch.randn(n, *shape, generator=generator) for n in lengths]
    return torch.nested.nested_tensor(parts, layout=torch.jagged, requires_grad=requires_grad)


def draw(module):
    for i, parameter in enumerate(module.parameters()):
        nn.init.normal_(parameter, generator=torch.Generator().manual_seed(i))
    return module


def results(module, x, residual=None):
    y = module(x)
    loss = y.values().sin().sum()
    return [y.values(), *torch.autograd.grad(loss, [x, *module.parameters()])]


@pytest.mark.parametrize("name", ROWS)
def test_jagged_rows_match_torch_nn(name):
    ours, theirs = (results(draw(make()), jagged()) for make in ROWS[name])
    assert ours[1].layout == torch.jagged
    ours[1], theirs[1] = ours[1].values(), theirs[1].values()
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=2e-6, atol=2e-6)  # a few float roundings


@pytest.mark.parametrize(
    "make", [pnn.LayerNorm, pnn.RMSNorm, pnn.LayerNormSimple, pnn.DetachNorm, pnn.AdaNorm,
     lambda shape: pnn.RowNorm(shape, "layer")]
)
def test_jagged_rows_match_each_part(make):
    module, x = make(8), jagged(requires_grad=False)
    for y, part in zip(module(x).unbind(), x.unbind(), strict=True):
        assert torch.equal(y, module(part))
    with torch.inference_mode():
        assert torch.equal(module(x).values(), module(x.values()))
    assert torch.equal(module(x).offsets(), x.offsets())


def test_jagged_sums_with_a_residual():
    x, residual = jagged(), jagged(seed=1, requires_grad=False)
    residual = torch.nested.nested_tensor_from_jagged(residual.values(), x.offsets()).requires_grad_()
    weight, bias = torch.randn(8, requires_grad=True), torch.randn(8, requires_grad=True)
    leaves = [x, residual, weight, bias]
    y, total = PF.add_layer_norm(x, residual, [8], weight, bias)
    found = torch.autograd.grad(y.values().sin().sum() + total.values().cos().sum(), leaves)
    dense = [x.values().detach(), residual.values().detach(), weight.detach(), bias.detach()]
    dense = [t.requires_grad_() for t in dense]
    z, sums = PF.add_layer_norm(*dense[:2], [8], *dense[2:])
    expected = torch.autograd.grad(z.sin().sum() + sums.cos().sum(), dense)
    assert torch.equal(y.values(), z) and torch.equal(total.values(), sums)
    for a, b in zip(found, expected, strict=True):
        assert torch.equal(a.values() if a.is_nested else a, b)
    with pytest.raises(ValueError, match="residual must have x's sizes"):
        PF.add_layer_norm(x, jagged(seed=1, lengths=(2, 2, 5)), [8], weight, bias)


def test_jagged_rows_of_several_dimensions():
    x = jagged(shape=(2, 4))
    module = draw(pnn.LayerNorm((2, 4)))
    y = module(x)
    (dx,) = torch.autograd.grad(y.values().sin().sum(), x)
    dense = x.values().detach().requires_grad_()
    expected = module(dense)
    assert torch.equal(y.values(), expected)
    assert torch.equal(dx.values(), torch.autograd.grad(expected.sin().sum(), dense)[0])


def test_gaps_between_sequences_do_not_reach_gradients_of_parameters():
    starts, lengths = torch.tensor([0, 1]), torch.tensor([2, 3])
    x = torch.nested.narrow(torch.randn(2, 5, 8), 1, starts, lengths, layout=torch.jagged)
    module = draw(pnn.LayerNorm(8))
    for y, part in zip(module(x).unbind(), x.unbind(), strict=True):
        assert torch.equal(y, module(part))
    with pytest.raises(ValueError, match="x must be contiguous for gradients of weight and bias"):
        (module(x) ** 2).sum().backward()
    (module(x.contiguous()) ** 2).sum().backward()
    found = [parameter.grad for parameter in module.parameters()]
    loss = sum((module(part) ** 2).sum() for part in x.unbind())
    for a, b in zip(found, torch.autograd.grad(loss, module.parameters()), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)  # sums of rows in another order


def test_the_ragged_dimension_is_not_normalized():
    x = jagged(requires_grad=False).transpose(1, 2)
    with pytest.raises((ValueError, RuntimeError)):
        PF.layer_norm_simple(x, x.shape[-1:])
    with pytest.raises(ValueError, match="x must be dense or have its ragged dimension outside"):
        PF.channel_layer_norm(jagged(requires_grad=False))


def test_jagged_rows_compile():
    module, x = draw(pnn.LayerNorm(8)), jagged()
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(x).values(), module(x).values())


@pytest.mark.parametrize(
    "function",
    [
        pnn.LayerNorm(8),
        pnn.RMSNorm(8),
        pnn.LayerNormSimple(8),
        lambda x: PF.add_layer_norm(x, x, [8]),
        PF.channel_layer_norm,
    ],
)
def test_strided_nested_tensors_are_an_error(function):
    x = torch.nested.nested_tensor([torch.randn(3, 8), torch.randn(2, 8)])
    with pytest.raises(ValueError, match="nested tensor with layout=torch.jagged, got a nested tensor"):
        function(x)
