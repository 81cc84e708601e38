"""Norms of rows with int8 outputs.

The oracles are the definition, bit for bit, on the output of the norm in the type of the arithmetic, and PyTorch's
operators in float64.
"""

import pytest
import torch
from torch import nn
from torch.func import vmap
from torch.nn import functional

import planish

F = planish.functional
ops = torch.ops.planish
TYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
FORMS = [(norm, gate) for norm in ("layer", "rms") for gate in (None, "after", "before")]
forms = pytest.mark.parametrize("norm, gate", FORMS)


def quantized(norm, gate, x, z, w, b, shape=None, **options):
    shape = x.shape[-1:] if shape is None else shape
    if gate is not None:
        options |= {"gate": z, "norm_before_gate": gate == "after"}
    if norm == "rms":
        return F.quantized_rms_norm(x, shape, w, 1e-5, **options)
    return F.quantized_layer_norm(x, shape, w, b, 1e-5, **options)


def plain(norm, gate, x, z, w, b, shape=None, **options):
    shape = x.shape[-1:] if shape is None else shape
    if gate is not None:
        options |= {"gate": z, "norm_before_gate": gate == "after"}
    if norm == "rms":
        return F.rms_norm(x, shape, w, 1e-5, **options)
    return F.layer_norm(x, shape, w, b, 1e-5, **options)


def quantize(y, dims=1):
    """The definition, for finite rows of normal numbers."""
    over = tuple(range(-dims, 0))
    largest = y.abs().amax(over, keepdim=True)
    # Not 127 / largest, which PyTorch computes with a reciprocal.
    return (y * torch.full_like(largest, 127).div(largest)).round().to(torch.int8), largest / 127


def tensors(sizes, dtype=torch.float32, parameters=None, dims=1):
    x, z = (torch.randn(sizes, dtype=torch.float64).to(dtype) for _ in range(2))
    shape = sizes[len(sizes) - dims :]
    w, b = (torch.randn(shape, dtype=torch.float64).to(parameters or dtype) for _ in range(2))
    return x, z, w, b


def equal(found, expected):
    """Compares results of calls of the same kernels."""
    return all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


SIZES = [(3, 5), (2, 3, 16), (7, 33), (300, 70), (2, 3000), (1, 1 << 17), (1, 2), (5,)]


@forms
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("sizes", SIZES)
def test_has_the_bits_of_the_definition(norm, gate, dtype, sizes):
    given = tensors(sizes, dtype)
    q, scale = quantized(norm, gate, *given)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    y = plain(norm, gate, *(t.to(wide) for t in given))  # 16-bit inputs are exact in float32
    assert q.dtype == torch.int8 and scale.dtype == wide
    assert q.shape == y.shape and scale.shape == (*y.shape[:-1], 1)
    assert equal((q, scale), quantize(y))
    assert ((q * scale - y).abs() <= scale * 0.5001).all()


@pytest.mark.parametrize("parameters", (torch.float32, torch.bfloat16))
def test_types_of_parameters(parameters):
    x, z, w, b = tensors((9, 40), torch.bfloat16, parameters)
    found = quantized("layer", None, x, z, w, b)
    assert equal(found, quantize(F.layer_norm(x.float(), [40], w.float(), b.float())))
    mixed = quantized("layer", None, x.double(), z, w.double(), b.bfloat16())
    torch.testing.assert_close(mixed[1].float(), found[1], rtol=1e-2, atol=0)


def test_against_pytorch():
    x, _, w, b = tensors((50, 96), torch.float64)
    q, scale = F.quantized_layer_norm(x, [96], w, b)
    y = functional.layer_norm(x, [96], w, b)
    # y differs by roundings of float64, which move a tie in about one of 1e13 elements.
    assert equal((q,), quantize(y)[:1])
    torch.testing.assert_close(scale, quantize(y)[1], rtol=1e-13, atol=0)


@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float16))
def test_cast_before_weight(dtype):
    x, z, w, _ = tensors((40, 96), dtype)
    q, scale = F.quantized_rms_norm(x, [96], w, 1e-6, cast_before_weight=True)
    # As Llama's norm, whose product is exact in float32.
    y = F.rms_norm(x, [96], None, 1e-6).float() * w.float()
    assert equal((q, scale), quantize(y))
    q, scale = F.quantized_rms_norm(x, [96], w, 1e-6, gate=z, cast_before_weight=True)
    y = (F.rms_norm(x, [96], None, 1e-6) * w).float() * functional.silu(z.float())
    assert (quantize(y)[0].int() - q).abs().max() <= 1  # silu is within 6 ulp
    torch.testing.assert_close(scale, quantize(y)[1], rtol=1e-5, atol=0)


def test_weight_offset():
    x, _, w, b = tensors((4, 8), torch.bfloat16)
    expected = quantize(F.rms_norm(x.float(), [8], w.float() + 1, 1e-6))
    assert equal(F.quantized_rms_norm(x, [8], w, 1e-6, weight_offset=1), expected)
    expected = quantize(F.layer_norm(x.float(), [8], w.float() + 1, b.float()))
    assert equal(F.quantized_layer_norm(x, [8], w, b, weight_offset=1), expected)


@pytest.mark.parametrize("dtype", TYPES)
def test_sum(dtype):
    x, r, w, b = tensors((30, 40), dtype)
    *found, total = F.add_quantized_layer_norm(x, r, [40], w, b)
    assert torch.equal(total, x + r)
    assert equal(found, F.quantized_layer_norm(x + r, [40], w, b))
    *found, total = F.add_quantized_rms_norm(x, r, [40], w)
    assert torch.equal(total, x + r)
    assert equal(found, F.quantized_rms_norm(x + r, [40], w))


def test_sum_promotes_types():
    x, r, w, b = tensors((3, 8))
    q, scale, total = F.add_quantized_layer_norm(x.bfloat16(), r, [8], w, b)
    assert total.dtype == torch.float32
    assert equal((q, scale), F.quantized_layer_norm(x.bfloat16() + r, [8], w, b))


def test_only_the_sum_has_gradients():
    x, r, w, b = (t.requires_grad_() for t in tensors((3, 8)))
    q, scale = F.quantized_layer_norm(x, [8], w, b)
    assert not q.requires_grad and not scale.requires_grad
    q, scale, total = F.add_quantized_layer_norm(x, r, [8], w, b)
    assert not q.requires_grad and not scale.requires_grad and total.requires_grad
    total.square().sum().backward()
    torch.testing.assert_close(x.grad, 2 * (x + r).detach())
    torch.testing.assert_close(r.grad, x.grad)
    assert w.grad is None


# ---- Special values


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("columns", (5, 40, 1 << 17))
@pytest.mark.parametrize("composed", (False, True))
def test_special_rows(dtype, columns, composed):
    x = torch.randn(4, columns).to(dtype)
    x[0, -1], x[1, 0], x[2] = float("nan"), float("-inf"), 3
    if composed:
        q, scale, _ = ops.quantized_norm_composed(x, None, None, None, None, "layer", 0, 1e-5, False, False)
    else:
        q, scale = F.quantized_layer_norm(x, [columns])
    assert scale[:2].isnan().all() and scale[2] == 0 and scale[3] > 0
    assert (q[:3] == 0).all() and q[3].abs().max() == 127


@pytest.mark.parametrize("composed", (False, True))
def test_special_weights(composed):
    limits = torch.finfo(torch.float32)
    x = torch.ones(1, 4)

    def quantize(*weight):
        w = torch.tensor(weight)
        if composed:
            return ops.quantized_norm_composed(x, None, None, w, None, "rms", 0, 0.0, False, False)[:2]
        return F.quantized_rms_norm(x, [4], w, 0.0)

    for bad in (float("nan"), float("inf"), float("-inf")):
        q, scale = quantize(1.0, bad, 2.0, 3.0)
        assert scale.isnan() and (q == 0).all()
    q, scale = quantize(1.0, -limits.max, 0.0, limits.max)
    assert q.tolist() == [[0, -127, 0, 127]] and scale == limits.max / 127
    q, scale = quantize(limits.tiny, 0.0, 0.0, 100 * limits.tiny)
    assert scale == 0 and (q == 0).all()
    q, scale = quantize(64 * limits.tiny, 0.0, 0.0, -128 * limits.tiny)
    assert q.tolist() == [[64, 0, 0, -127]] and scale > 0


@pytest.mark.parametrize("composed", (False, True))
def test_no_elements(composed):
    def quantize(x):
        if composed:
            return ops.quantized_norm_composed(x, None, None, None, None, "layer", 0, 1e-5, False, False)[:2]
        return F.quantized_layer_norm(x, x.shape[-1:])

    q, scale = quantize(torch.zeros(0, 5))
    assert q.shape == (0, 5) and scale.shape == (0, 1)
    q, scale = quantize(torch.zeros(3, 0))
    assert q.shape == (3, 0) and scale.shape == (3, 1) and scale.isnan().all()


# ---- Layouts, threads, transforms


@forms
def test_layouts(norm, gate):
    x, z, w, b = tensors((6, 4, 10))
    expected = quantized(norm, gate, x, z, w, b)
    wide = torch.zeros(6, 4, 25)
    for strided in (lambda t: wide[..., 3:13].copy_(t), lambda t: t.transpose(0, 1).contiguous().transpose(0, 1)):
        assert equal(quantized(norm, gate, strided(x), z, w, b), expected)
    shape = (4, 10)
    wide_w, wide_b = torch.randn(4, 10), torch.randn(4, 10)
    q, scale = quantized(norm, gate, x, z, wide_w, wide_b, shape)
    assert scale.shape == (6, 1, 1)
    assert equal((q, scale), quantize(plain(norm, gate, x, z, wide_w, wide_b, shape), 2))


@forms
def test_several_gains(norm, gate):
    for sizes, gains in (((3, 5, 8), (3, 1, 8)), ((4, 5, 3, 8), (3, 8)), ((4, 3, 5, 2, 8), (4, 1, 5, 1, 8))):
        x, z, *_ = tensors(sizes)
        w, b = torch.randn(gains), torch.randn(gains)
        found = quantized(norm, gate, x, z, w, b, (8,))
        assert equal(found, quantize(plain(norm, gate, x, z, w, b, (8,))))
        assert all(t.is_contiguous() for t in found)


@forms
def test_threads_change_no_bit(norm, gate):
    before = torch.get_num_threads()
    given = tensors((700, 65), torch.bfloat16, torch.float32)
    results = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            results.append(quantized(norm, gate, *given))
    finally:
        torch.set_num_threads(before)
    assert equal(*results)


@forms
@pytest.mark.parametrize("dtype", TYPES)
def test_composition_agrees(norm, gate, dtype):
    x, z, w, b = tensors((20, 33), dtype)
    b = b if norm == "layer" else None
    for residual in (None, z):
        args = (x, residual, z if gate else None, w, b, norm, 0, 1e-5, gate == "before", False)
        found, expected = ops.quantized_norm_composed(*args), ops.quantized_norm_forward(*args)
        # Roundings of the arithmetic: a tie can go the other way.
        assert (found[0].int() - expected[0]).abs().max() <= 1
        torch.testing.assert_close(found[1], expected[1], rtol=1e-5, atol=0)
        assert torch.equal(found[2], expected[2]) if residual is not None else found[2] is expected[2] is None


@forms
def test_opcheck(norm, gate):
    x, z, w, b = tensors((2, 3, 5))
    b = b if norm == "layer" else None
    settings = (norm, 0, 1e-5, gate == "before", False)
    for residual in (None, torch.randn(2, 3, 5)):
        args = (x, residual, z if gate else None, w, b, *settings)
        torch.library.opcheck(ops.quantized_norm_forward.default, args)
        # The test of aot_dispatch adds all outputs to one sum, which it cannot with integers and gradients.
        tests = ("test_schema", "test_autograd_registration", "test_faketensor")
        args = (x.clone().requires_grad_(), *args[1:])
        torch.library.opcheck(ops.quantized_norm_forward.default, args, test_utils=tests)


@forms
def test_vmap(norm, gate):
    x, z, w, b = tensors((3, 2, 5, 8))

    def function(x, z, w):
        return quantized(norm, gate, x, z, w, b)

    many = w + torch.arange(3.0).unsqueeze(1)
    for dims, weight in (((0, 0, None), w), ((0, None, None), w), ((0, 0, 0), many), ((1, 1, None), w)):
        zz = z if dims[1] is not None else z[0]
        mapped = vmap(function, dims)(x, zz, weight)
        for i in range(x.shape[dims[0]]):
            one = function(*(t if d is None else t.select(d, i) for t, d in zip((x, zz, weight), dims, strict=True)))
            assert (mapped[0][i].int() - one[0]).abs().max() <= 1
            torch.testing.assert_close(mapped[1][i], one[1], rtol=1e-5, atol=0)
    total = vmap(lambda x, r: F.add_quantized_rms_norm(x, r, [8], w))(x, z)
    assert equal(total, F.add_quantized_rms_norm(x, z, [8], w))


class Model(nn.Module):
    def __init__(self, norm, gate):
        super().__init__()
        kind = planish.nn.RMSNorm if norm == "rms" else planish.nn.LayerNorm
        self.norm = kind(8, 1e-5, norm_before_gate=gate != "before", groups=2)
        self.gated = gate is not None

    def forward(self, x, z):
        q, scale = self.norm.quantized(x, z if self.gated else None)
        p, other, total = F.add_quantized_rms_norm(x, z, [8])
        return q, scale, p, other, total


@forms
def test_compile_and_export(norm, gate):
    model = Model(norm, gate)
    x, z, *_ = tensors((3, 8))
    expected = model(x, z)
    assert equal(torch.compile(model, fullgraph=True)(x, z), expected)
    program = torch.export.export(model, (x, z))
    assert equal(program.module()(x, z), expected)
    decomposed = planish.export.decompose(program)
    assert "planish" not in str([node.target for node in decomposed.graph.nodes])
    for found, exact in zip(decomposed.module()(x, z), expected, strict=True):
        if exact.dtype == torch.int8:
            assert (found.int() - exact).abs().max() <= 1
        else:
            torch.testing.assert_close(found, exact, rtol=1e-5, atol=1e-6)


# ---- Modules and tensor subclasses


def test_modules():
    x, z = torch.randn(3, 8), torch.randn(3, 8)
    for kind in (planish.nn.LayerNorm, planish.nn.RMSNorm):
        norm = kind(8)
        nn.init.normal_(norm.weight)
        assert equal(norm.quantized(x), quantize(norm(x)))
        assert equal(norm.quantized(x, z), quantize(norm(x, z)))
        norm = kind(8, elementwise_affine=False)
        assert equal(norm.quantized(x), quantize(norm(x)))
        norm = kind(8, groups=2, weight_offset=1.0, norm_before_gate=False)
        nn.init.normal_(norm.weight)
        q, scale = norm.quantized(x, z)
        expected = quantize(norm(x, z).view(3, 2, 4))
        assert scale.shape == (3, 2)
        assert equal((q.view(3, 2, 4), scale.unsqueeze(-1)), expected)
        with pytest.raises(ValueError, match="gate must have x's sizes"):
            norm.quantized(x, z[0])


def test_nested_tensors():
    parts, gates = ([torch.randn(n, 8) for n in (2, 5)] for _ in range(2))
    x = torch.nested.as_nested_tensor(parts, layout=torch.jagged)
    z = torch.nested.nested_tensor_from_jagged(torch.cat(gates), x.offsets())
    q, scale = F.quantized_rms_norm(x, [8], gate=z)
    for ours, s, part, gate in zip(q.unbind(), scale.unbind(), parts, gates, strict=True):
        assert equal((ours, s), F.quantized_rms_norm(part, [8], gate=gate))
    q, scale, total = F.add_quantized_layer_norm(x, z, [8])
    for ours, s, t, part, other in zip(q.unbind(), scale.unbind(), total.unbind(), parts, gates, strict=True):
        assert equal((ours, s, t), F.add_quantized_layer_norm(part, other, [8]))


def test_errors():
    x = torch.randn(3, 8)
    with pytest.raises(ValueError, match=r"\[quantized_layer_norm\] normalized_shape"):
        F.quantized_layer_norm(x, [7])
    with pytest.raises(ValueError, match=r"\[quantized_rms_norm\] gate must have x's sizes"):
        F.quantized_rms_norm(x, [8], gate=x[0])
    with pytest.raises(ValueError, match=r"\[add_quantized_layer_norm\] residual must have x's sizes"):
        F.add_quantized_layer_norm(x, x[0], [8])
    with pytest.raises(ValueError, match=r"\[quantized_norm_forward\] norm must have a weight"):
        ops.quantized_norm_forward(x, None, None, None, None, "ada", 0, 1e-5, False, False)
    with pytest.raises(ValueError, match=r"\[quantized_norm_forward\] over must be 0"):
        ops.quantized_norm_forward(x, None, None, None, None, "layer", 1, 1e-5, False, False)
    with pytest.raises(ValueError, match="x must be float, double, bfloat16 or half"):
        F.quantized_layer_norm(x.int(), [8])
    with pytest.raises(ValueError, match="eps must be finite and at least 0"):
        F.quantized_layer_norm(x, [8], eps=-1.0)
