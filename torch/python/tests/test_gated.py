"""Gated norms of rows, and the rounding before the product with the weight.

The oracle is the composition of PyTorch's operators in float64, or the modules of transformers, restated here.
"""

import pickle

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.func import vmap
from torch.nn import functional

import planish

F = planish.functional
ops = torch.ops.planish
HALVES = (torch.bfloat16, torch.float16)
FORMS = [(norm, before) for norm in ("layer", "rms") for before in (True, False)]
forms = pytest.mark.parametrize("norm, norm_before_gate", FORMS)


def gated(norm, x, z, w, b, norm_before_gate, shape=None, **options):
    shape = x.shape[-1:] if shape is None else shape
    options |= {"gate": z, "norm_before_gate": norm_before_gate}
    if norm == "rms":
        return F.rms_norm(x, shape, w, 1e-5, **options)
    return F.layer_norm(x, shape, w, b, 1e-5, **options)


def composed(norm, x, z, w, b, norm_before_gate, shape=None):
    shape = x.shape[-1:] if shape is None else shape
    dims = tuple(range(-len(shape), 0))
    u = x if norm_before_gate else x * functional.silu(z)
    u = u - u.mean(dims, keepdim=True) if norm == "layer" else u
    y = u * (u.square().mean(dims, keepdim=True) + 1e-5).rsqrt()
    y = y if w is None else y * w
    y = y if b is None or norm == "rms" else y + b
    return y * functional.silu(z) if norm_before_gate else y


def tensors(sizes, dtype=torch.float64, parameters=None, dims=1):
    x, z = (torch.randn(sizes, dtype=torch.float64).to(dtype).requires_grad_() for _ in range(2))
    w, b = (
        torch.randn(sizes[len(sizes) - dims :], dtype=torch.float64).to(parameters or dtype).requires_grad_()
        for _ in range(2)
    )
    return x, z, w, b


SIZES = [(3, 5), (2, 3, 16), (7, 33), (300, 70), (2, 3000), (1, 1 << 17), (0, 5), (3, 0), (1, 2), (5,)]


@forms
@pytest.mark.parametrize("sizes", SIZES)
def test_values_and_gradients(norm, norm_before_gate, sizes):
    x, z, w, b = tensors(sizes)
    y, expected = (f(norm, x, z, w, b, norm_before_gate) for f in (gated, composed))
    # Sums of at most 2^17 terms of size 1: 1e-10 is far above their roundings.
    torch.testing.assert_close(y, expected, rtol=1e-10, atol=1e-10)
    dy = torch.randn_like(y)
    used = (x, z, w, b) if norm == "layer" else (x, z, w)
    for ours, theirs in zip(torch.autograd.grad(y, used, dy), torch.autograd.grad(expected, used, dy), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


@forms
@pytest.mark.parametrize("dtype", (torch.float32, *HALVES))
@pytest.mark.parametrize("parameters", (None, torch.float32))
def test_other_types_round_once(norm, norm_before_gate, dtype, parameters):
    x, z, w, b = tensors((9, 100), dtype, parameters)
    y = gated(norm, x, z, w, b, norm_before_gate)
    wide = [t.detach().double().requires_grad_() for t in (x, z, w, b)]
    expected = composed(norm, *wide, norm_before_gate)
    assert y.dtype == dtype
    # One rounding to the type, and about a hundred of float32.
    eps = torch.finfo(dtype).eps / 2
    error = (y.double() - expected).abs()
    assert (error <= 1.01 * eps * expected.abs() + 1e-5 + 6e-8 * (dtype == torch.float16)).all()
    dy = torch.randn_like(y)
    used = slice(0, 4 if norm == "layer" else 3)
    ours = torch.autograd.grad(y, (x, z, w, b)[used], dy)
    theirs = torch.autograd.grad(expected, wide[used], dy.double())
    for d, exact, t in zip(ours, theirs, (x, z, w, b), strict=False):
        assert d.dtype == t.dtype and d.shape == t.shape
        bound = 1.01 * torch.finfo(t.dtype).eps / 2 * exact.abs() + 2e-5 * exact.abs().max()
        assert ((d.double() - exact).abs() <= bound).all()


@forms
def test_derivatives_of_any_order(norm, norm_before_gate):
    x, z, w, b = tensors((2, 3, 4))

    def function(*t):
        return gated(norm, *t, norm_before_gate)

    assert gradcheck(function, (x, z, w, b), check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(function, (x, z, w, b))
    for missing in ((x, z, None, None), (x, z, w, None), (x, z, None, b)):
        assert gradcheck(lambda *t, m=missing: function(*t[:2], *m[2:]), (x, z))
    third = torch.func.jacrev(torch.func.jacrev(torch.func.jacrev(lambda t: function(t, z[0], w, b).sum())))(x[0])
    expected = torch.func.jacrev(
        torch.func.jacrev(torch.func.jacrev(lambda t: composed(norm, t, z[0], w, b, norm_before_gate).sum()))
    )(x[0])
    torch.testing.assert_close(third, expected, rtol=1e-8, atol=1e-8)


@forms
def test_opcheck(norm, norm_before_gate):
    x, z, w, b = tensors((2, 3, 5), torch.float32)
    b = b if norm == "layer" else None
    args = (x, z, w, b, norm, 0, 1e-5, not norm_before_gate, False, True)
    torch.library.opcheck(ops.gated_norm_forward.default, args)
    cast = (*args[:8], True, True)
    torch.library.opcheck(ops.gated_norm_forward.default, cast)
    torch.library.opcheck(ops.gated_norm_forward.default, (x, None, *cast[2:]))
    y, statistics = ops.gated_norm_forward(*(t.detach() if isinstance(t, torch.Tensor) else t for t in args))
    mask = [True, True, True, norm == "layer"]
    backward = (torch.randn_like(y), x, z, statistics, w, b, norm, 0, 1e-5, not norm_before_gate, mask)
    torch.library.opcheck(
        ops.gated_norm_backward.default,
        tuple(t.detach() if isinstance(t, torch.Tensor) else t for t in backward),
    )


@forms
def test_vmap(norm, norm_before_gate):
    x, z, w, b = tensors((3, 2, 5, 8))

    def function(x, z, w):
        return gated(norm, x, z, w, b, norm_before_gate)

    many = w + torch.arange(3.0).unsqueeze(1)
    for dims, weight in (((0, 0, None), w), ((0, None, None), w), ((0, 0, 0), many), ((1, 1, None), w)):
        zz = z if dims[1] is not None else z[0]
        mapped = vmap(function, dims)(x, zz, weight)
        cases = [
            function(*(t if d is None else t.select(d, i) for t, d in zip((x, zz, weight), dims, strict=True)))
            for i in range(x.shape[dims[0]])
        ]
        torch.testing.assert_close(mapped, torch.stack(cases), rtol=1e-12, atol=1e-12)
    per_sample = vmap(torch.func.grad(lambda x, z, w: function(x, z, w).square().sum(), (0, 1, 2)), (0, 0, None))(
        x, z, w
    )
    for i in range(3):
        one = torch.func.grad(lambda x, z, w: function(x, z, w).square().sum(), (0, 1, 2))(x[i], z[i], w)
        for all_of, single in zip(per_sample, one, strict=True):
            torch.testing.assert_close(all_of[i], single, rtol=1e-10, atol=1e-10)


@forms
def test_compile_and_export(norm, norm_before_gate):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            kind = planish.nn.RMSNorm if norm == "rms" else planish.nn.LayerNorm
            self.norm = kind(8, 1e-5, norm_before_gate=norm_before_gate, groups=2)

        def forward(self, x, z):
            return self.norm(x, z)

    model = Model()
    x, z, *_ = tensors((3, 8), torch.float32)
    y = model(x, z)
    y.square().sum().backward()
    gradient = x.grad.clone()
    x.grad = None
    compiled = torch.compile(model, fullgraph=True)
    torch.testing.assert_close(compiled(x, z), y, rtol=0, atol=0)
    compiled(x, z).square().sum().backward()
    torch.testing.assert_close(x.grad, gradient, rtol=1e-6, atol=1e-6)
    program = torch.export.export(model, (x.detach(), z.detach()))
    torch.testing.assert_close(program.module()(x, z), y, rtol=0, atol=0)
    decomposed = planish.export.decompose(program)
    assert "planish" not in str([node.target for node in decomposed.graph.nodes])
    torch.testing.assert_close(decomposed.module()(x.detach(), z.detach()), y, rtol=1e-5, atol=1e-6)


def test_forward_mode_keeps_the_rounding():
    x, z, w, _ = (t.detach() for t in tensors((3, 8), torch.bfloat16))
    options = {"gate": z, "cast_before_weight": True}
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.ones_like(x))
        primal, tangent = forward_ad.unpack_dual(F.rms_norm(dual, [8], w, 1e-5, **options))
    # The statistics of both paths can differ by one rounding of float32.
    torch.testing.assert_close(primal, F.rms_norm(x, [8], w, 1e-5, **options), rtol=2**-7, atol=1e-4)
    assert tangent.dtype == torch.bfloat16 and tangent.isfinite().all()


@forms
def test_layouts(norm, norm_before_gate):
    x, z, w, b = (t.detach() for t in tensors((6, 4, 10)))
    expected = gated(norm, x, z, w, b, norm_before_gate)
    wide = torch.zeros(6, 4, 25, dtype=torch.float64)
    for strided in (lambda t: wide[..., 3:13].copy_(t), lambda t: t.transpose(0, 1).contiguous().transpose(0, 1)):
        assert torch.equal(gated(norm, strided(x), z, w, b, norm_before_gate), expected)
        assert torch.equal(gated(norm, x, strided(z).clone(memory_format=torch.preserve_format), w, b, norm_before_gate), expected)
    packed = torch.cat([x, z], -1)
    assert torch.equal(gated(norm, *packed.chunk(2, -1), w, b, norm_before_gate), expected)
    assert torch.equal(gated(norm, x, x, w, b, norm_before_gate), gated(norm, x, x.clone(), w, b, norm_before_gate))
    several = gated(norm, x, z, w.expand(4, 10), b.expand(4, 10), norm_before_gate, (4, 10))
    torch.testing.assert_close(several, composed(norm, x, z, w, b, norm_before_gate, (4, 10)), rtol=1e-12, atol=1e-12)


@forms
def test_several_gains(norm, norm_before_gate):
    for sizes, gains in (((3, 5, 8), (3, 1, 8)), ((4, 5, 3, 8), (3, 8)), ((4, 3, 5, 2, 8), (4, 1, 5, 1, 8))):
        x, z, *_ = tensors(sizes)
        w, b = (torch.randn(gains, dtype=torch.float64, requires_grad=True) for _ in range(2))
        y, expected = (
            f(norm, x, z, w, b, norm_before_gate, (8,)) for f in (gated, composed)
        )
        torch.testing.assert_close(y, expected, rtol=1e-12, atol=1e-12)
        dy, used = torch.randn_like(y), (x, z, w, b) if norm == "layer" else (x, z, w)
        ours, theirs = (torch.autograd.grad(r, used, dy) for r in (y, expected))
        for d, exact in zip(ours, theirs, strict=True):
            torch.testing.assert_close(d, exact, rtol=1e-10, atol=1e-10)


@forms
def test_threads_change_no_bit(norm, norm_before_gate):
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            torch.manual_seed(3)
            x, z, w, b = tensors((700, 65), torch.bfloat16, torch.float32)
            y = gated(norm, x, z, w, b, norm_before_gate)
            used = (x, z, w, b) if norm == "layer" else (x, z, w)
            results.append((y, *torch.autograd.grad(y, used, torch.ones_like(y))))
    finally:
        torch.set_num_threads(before)
    for one, two in zip(*results, strict=True):
        assert torch.equal(one, two)


def test_special_gates():
    x = torch.randn(3, 8)
    z = torch.randn(3, 8)
    z[0, 1], z[1, 2] = -1e4, float("nan")
    y = F.rms_norm(x, [8], gate=z)
    assert y[0, 1] == 0 and y[1, 2].isnan() and y.isnan().sum() == 1
    y = F.rms_norm(x, [8], gate=z, norm_before_gate=False)
    assert y[0, 1] == 0 and y[1].isnan().all() and y.isnan().sum() == 8


# ---- The modules of transformers and mamba_ssm


class Qwen3NextRMSNormGated(nn.Module):
    def __init__(self, size, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(size))
        self.variance_epsilon = eps

    def forward(self, x, gate):
        dtype = x.dtype
        x = x.to(torch.float32)
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        x = self.weight * x.to(dtype)
        return (x * functional.silu(gate.to(torch.float32))).to(dtype)


class MambaRMSNormGated(nn.Module):
    def __init__(self, size, group_size, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(size))
        self.variance_epsilon = eps
        self.group_size = group_size

    def forward(self, x, gate):
        dtype = x.dtype
        x = x.to(torch.float32) * functional.silu(gate.to(torch.float32))
        groups = x.unflatten(-1, (-1, self.group_size))
        groups = groups * torch.rsqrt(groups.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return self.weight * groups.flatten(-2).to(dtype)


class LlamaRMSNorm(nn.Module):
    def __init__(self, size, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(size))
        self.variance_epsilon = eps

    def forward(self, x):
        dtype = x.dtype
        x = x.to(torch.float32)
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return self.weight * x.to(dtype)


class OnceRMSNorm(LlamaRMSNorm):
    def forward(self, x):
        dtype = x.dtype
        x = x.to(torch.float32)
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return (self.weight.float() * x).to(dtype)


def ulps(ours, theirs):
    """Returns the largest distance in units in the last place of theirs."""
    limits = torch.finfo(theirs.dtype)
    unit = theirs.double().abs().clamp(min=limits.tiny).log2().floor().exp2() * limits.eps
    return ((ours.double() - theirs.double()).abs() / unit).max().item()


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", ("Qwen3Next", "Mamba", "Llama"))
def test_cast_has_the_rounding_of_transformers(name, dtype):
    x, z = torch.randn(64, 96).to(dtype), torch.randn(64, 96).to(dtype)
    if name == "Qwen3Next":
        theirs, ours = Qwen3NextRMSNormGated(96), planish.nn.RMSNorm(96, 1e-6, cast_before_weight=True)
    elif name == "Mamba":
        theirs = MambaRMSNormGated(96, 32)
        ours = planish.nn.RMSNorm(96, 1e-6, groups=3, norm_before_gate=False, cast_before_weight=True)
    else:
        theirs, ours = LlamaRMSNorm(96), planish.nn.RMSNorm(96, 1e-6, cast_before_weight=True)
    theirs, ours = theirs.to(dtype), ours.to(dtype)
    ours.load_state_dict(theirs.state_dict())
    gates = () if name == "Llama" else (z,)
    expected, found = theirs(x, *gates), ours(x, *gates)
    assert found.dtype == expected.dtype == dtype
    # All operations after the statistics round alike. The statistics, sums in float32, can differ in their last bit,
    # which moves a value across a rounding boundary about once in 2^12 (float16) elements.
    assert (found == expected).double().mean() > 0.998
    assert ulps(found, expected) <= 4 if name == "Qwen3Next" else ulps(found, expected) <= 2
    plain = planish.nn.RMSNorm(96, 1e-6, groups=ours.groups, norm_before_gate=ours.norm_before_gate).to(dtype)
    plain.load_state_dict(theirs.state_dict())
    assert not torch.equal(plain(x, *gates), expected)  # one rounding differs from two


@pytest.mark.parametrize("dtype", (*HALVES, torch.float32))
def test_cast_is_the_composition(dtype):
    x, z, w, b = (t.detach() for t in tensors((50, 60), dtype))
    # Without weight the result is xhat, rounded: the first rounding of the composition.
    xhat = F.rms_norm(x, [60], None, 1e-5)
    assert torch.equal(F.rms_norm(x, [60], w, 1e-5, cast_before_weight=True), xhat * w) or dtype == torch.float32
    if dtype != torch.float32:
        gated = F.rms_norm(x, [60], w, 1e-5, gate=z, cast_before_weight=True)
        expected = ((xhat * w).float() * functional.silu(z.float())).to(dtype)
        assert (gated == expected).double().mean() > 0.998 and ulps(gated, expected) <= 1
    layer = F.layer_norm(x, [60], w, b, 1e-5, cast_before_weight=True)
    expected = F.layer_norm(x, [60], None, None, 1e-5).float() * w.float() + b.float()
    torch.testing.assert_close(layer.float(), expected.to(dtype).float(), rtol=torch.finfo(dtype).eps, atol=1e-6)
    assert torch.equal(
        F.rms_norm(x.double(), [60], w.double(), 1e-5, cast_before_weight=True), F.rms_norm(x.double(), [60], w.double(), 1e-5)
    )


@pytest.mark.parametrize("gate", (False, True))
def test_cast_has_the_gradients_without_it(gate):
    x, z, w, _ = tensors((50, 60), torch.bfloat16)
    z = z if gate else None
    dy = torch.randn_like(x)
    used = [t for t in (x, z, w) if t is not None]
    cast, plain = (
        torch.autograd.grad(F.rms_norm(x, [60], w, 1e-5, gate=z, cast_before_weight=c), used, dy, create_graph=True)
        for c in (True, False)
    )
    for one, other in zip(cast, plain, strict=True):
        # The gradient of a gate is composed in one of the two if there is a graph: last bits can differ.
        torch.testing.assert_close(one, other, rtol=2**-7, atol=1e-5)


def test_cast_composes_with_weight_offset():
    x = torch.randn(5, 8).bfloat16()
    w = torch.randn(8).bfloat16()
    found = F.rms_norm(x, [8], w, 1e-6, weight_offset=1, cast_before_weight=True)
    expected = ((w.float() + 1) * F.rms_norm(x, [8], None, 1e-6).float()).bfloat16()
    assert torch.equal(found, expected)


@pytest.mark.parametrize("dtype", HALVES)
def test_convert_keeps_the_rounding(dtype):
    x = torch.randn(200, 96).to(dtype)
    for kind, casts in ((LlamaRMSNorm, True), (OnceRMSNorm, False)):
        model = nn.Sequential(kind(96)).to(dtype)
        expected = model(x)
        assert len(planish.convert(model, "planish", keep_rounding=True).changed) == 1
        assert type(model[0]) is planish.nn.RMSNorm and model[0].cast_before_weight is casts
        assert (model(x) == expected).double().mean() > 0.998
        if casts:
            assert planish.convert(model, "torch").left[0].reason == "it has cast_before_weight=True"
    model = nn.Sequential(LlamaRMSNorm(96))
    planish.convert(model, "planish")
    assert not model[0].cast_before_weight
    gated = nn.Sequential(planish.nn.RMSNorm(4, norm_before_gate=False))
    assert planish.convert(gated, "torch").left[0].reason == "it has norm_before_gate=False"
    with pytest.raises(ValueError, match='keep_rounding must be left out for "rms"'):
        planish.convert(model, "rms", keep_rounding=True)


def test_modules():
    norm = planish.nn.RMSNorm(8, groups=2, norm_before_gate=False, cast_before_weight=True)
    assert "norm_before_gate=False, cast_before_weight=True" in repr(norm)
    x, z = torch.randn(3, 8), torch.randn(3, 8)
    expected = composed("rms", x.view(3, 2, 4), z.view(3, 2, 4), None, None, False).view(3, 8)
    torch.testing.assert_close(norm(x, z), expected, rtol=1e-4, atol=1e-5)
    layer = planish.nn.LayerNorm(8, norm_before_gate=False)
    torch.testing.assert_close(layer(x, z), layer(x * functional.silu(z)), rtol=1e-4, atol=1e-5)
    assert torch.equal(layer(x), planish.nn.LayerNorm(8)(x))
    copy = pickle.loads(pickle.dumps(norm))
    assert copy.cast_before_weight and not copy.norm_before_gate


def test_nested_tensors():
    parts = [torch.randn(n, 8, requires_grad=True) for n in (2, 5)]
    gates = [torch.randn(n, 8) for n in (2, 5)]
    x = torch.nested.as_nested_tensor(parts, layout=torch.jagged)
    z = torch.nested.nested_tensor_from_jagged(torch.cat(gates), x.offsets())
    y = F.rms_norm(x, [8], gate=z)
    for ours, part, gate in zip(y.unbind(), parts, gates, strict=True):
        assert torch.equal(ours, F.rms_norm(part, [8], gate=gate))
    y.values().sum().backward()
    assert parts[0].grad.isfinite().all()


def test_errors():
    x, z = torch.randn(3, 8), torch.randn(3, 8)

    def expect(match, function, *args, **kwargs):
        with pytest.raises(ValueError, match=match):
            function(*args, **kwargs)

    expect(r"\[rms_norm\] gate must have x's sizes", F.rms_norm, x, [8], gate=z[:2])
    expect(r"\[layer_norm\] gate must have x's type", F.layer_norm, x, [8], gate=z.double())
    expect(r"\[RMSNorm\] gate must have x's sizes", planish.nn.RMSNorm(8, groups=2), x, z[:2])
    expect(r"norm must have a weight", ops.gated_norm_forward, x, z, None, None, "ada", 0, 1e-5, False, False, False)
    expect(r"over must be 0", ops.gated_norm_forward, x, z, None, None, "rms", 1, 1e-5, False, False, False)
    expect(r"\[rms_norm\] weight must have", F.rms_norm, x, [8], torch.ones(7), gate=z)
    expect(r"\[rms_norm\] normalized_shape must", F.rms_norm, x, [7], gate=z)
    statistics = torch.zeros(3, 3)
    backward = (z[:2], x, z, statistics, None, None, "rms", 0, 1e-5, False, [True, True, False, False])
    expect(r"\[gated_norm_backward\] dy must have x's sizes", ops.gated_norm_backward, *backward)
    backward = (z, x, z, statistics[:2], *backward[4:])
    expect(r"\[gated_norm_backward\] statistics must have", ops.gated_norm_backward, *backward)
