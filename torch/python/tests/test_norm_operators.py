"""The norm operators in all of PyTorch's machinery: autograd, transforms, compilers, autocast."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap

import planish  # noqa: F401  (registers the operators)

ops = torch.ops.planish
NORMS = {
    "row_norm": lambda x, w, b: ops.row_norm(x, [x.shape[-1]], "rms", w, b),
    "layer_norm": lambda x, w, b: ops.layer_norm(x, [x.shape[-1]], w, b),
    "layer_norm_2_dims": lambda x, w, b: ops.layer_norm(
        x, x.shape[-2:], w.expand(x.shape[-2:]), b.expand(x.shape[-2:])
    ),
    "layer_norm_no_weight": lambda x, w, b: ops.layer_norm(x, [x.shape[-1]], None, b),
    "affine_layer_norm": lambda x, w, b: ops.affine_layer_norm(x, w, b),
    "rms_norm": lambda x, w, b: ops.rms_norm(x, [x.shape[-1]], w),
    "affine_rms_norm": lambda x, w, b: ops.affine_rms_norm(x, w),
    "layer_norm_simple": lambda x, w, b: ops.layer_norm_simple(x, [x.shape[-1]]),
    "add_layer_norm": lambda x, w, b: ops.add_layer_norm(x, x.flip(0), [x.shape[-1]], w, b),
    "add_rms_norm": lambda x, w, b: ops.add_rms_norm(x, x.flip(0), [x.shape[-1]], w),
    "channel_layer_norm": lambda x, w, b: ops.channel_layer_norm(x.transpose(1, -1), w, b),
    "batch_norm": lambda x, w, b: ops.batch_norm(
        x.transpose(1, -1), w, b, None, None, True, 0.1, 1e-5
    ),
    "batch_norm_unbiased": lambda x, w, b: ops.batch_norm(
        x.transpose(1, -1), w, b, None, None, True, 0.1, 1e-5, True
    ),
    "batch_norm_evaluate": lambda x, w, b: ops.batch_norm(
        x.transpose(1, -1), w, b, 0 * w.detach() + 0.3, 0 * w.detach() + 1.7, False, 0.1, 1e-5
    ),
    "weight_norm": lambda x, w, b: ops.weight_norm(x, w, 2),
    "group_norm": lambda x, w, b: ops.group_norm(x.transpose(1, -1), 1, w, b),
    "instance_norm": lambda x, w, b: ops.instance_norm(x.transpose(1, -1), w, b),
    "dyt": lambda x, w, b: ops.dyt(x, [x.shape[-1]], w[:1], w, b),
    "derf": lambda x, w, b: ops.derf(x, [x.shape[-1]], w[:1], b[:1], w, b),
    "derf_2_dims": lambda x, w, b: ops.derf(
        x, x.shape[-2:], w[:1], None, w.expand(x.shape[-2:]), b.expand(x.shape[-2:])
    ),
}
# Norms whose backward is not the derivative of their forward. Finite differences cannot check them.
DETACHED = {
    "detach_norm": lambda x, w, b: ops.detach_norm(x, [x.shape[-1]]),
    "detach_norm_mean": lambda x, w, b: ops.detach_norm(x, [x.shape[-1]], True, False),
    "detach_norm_std": lambda x, w, b: ops.detach_norm(x, [x.shape[-1]], False, True),
    "ada_norm": lambda x, w, b: ops.ada_norm(x, [x.shape[-1]], 1.3, 0.2),
    "ada_norm_as_coded": lambda x, w, b: ops.ada_norm(x, [x.shape[-1]], 1.3, 0.2, True, 0.1),
    "online_layer_norm": lambda x, w, b: ops.online_layer_norm(x, state(), w, b, 0.3)[0],
    "online_layer_norm_warmup": lambda x, w, b: ops.online_layer_norm(x, state(2), w, b, 0.3, "warmup")[0],
}
ALL = NORMS | DETACHED


def state(*cases):
    return torch.tensor([0.3, 1.2, *cases], dtype=torch.float64)


def inputs(dtype=torch.float64, requires_grad=True, shape=(3, 2, 5), seed=0):
    generator = torch.Generator().manual_seed(seed)
    make = lambda *sizes: torch.randn(sizes, dtype=torch.float64, generator=generator)  # noqa: E731
    tensors = make(*shape), make(shape[-1]), make(shape[-1])
    return [t.to(dtype).requires_grad_(requires_grad) for t in tensors]


def outputs(y):
    return y if isinstance(y, tuple) else (y,)


def affine(xhat, w, b):
    return xhat * w + b


def composed(name):
    """Returns the norm over the last dimension, composed of PyTorch's differentiable operators."""

    def function(x, w, b):
        if name in ("layer_norm", "affine_layer_norm"):
            return affine(normalized(x), w, b)
        if name == "add_layer_norm":
            total = x + x.flip(0)
            return affine(normalized(total), w, b), total
        if name == "add_rms_norm":
            total = x + x.flip(0)
            eps = torch.finfo(x.dtype).eps
            return total * (total.square().mean(-1, keepdim=True) + eps).rsqrt() * w, total
        if name == "layer_norm_2_dims":
            flat = normalized(x.flatten(1)).view_as(x)
            return affine(flat, w, b)
        if name == "layer_norm_no_weight":
            return normalized(x) + b
        if name in ("rms_norm", "affine_rms_norm"):
            eps = torch.finfo(x.dtype).eps
            return x * (x.square().mean(-1, keepdim=True) + eps).rsqrt() * w
        if name == "row_norm":
            return affine(x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt(), w, b)
        if name == "layer_norm_simple":
            return normalized(x)
        if name == "channel_layer_norm":
            return affine(normalized(x), w, b).transpose(1, -1)
        if name.startswith("batch_norm"):
            if name == "batch_norm_evaluate":
                xhat = (x - 0.3) / math.sqrt(1.7 + 1e-5)
            else:
                centred = x - x.mean((0, 1))
                n = x.shape[0] * x.shape[1] - (name == "batch_norm_unbiased")
                xhat = centred / (centred.square().sum((0, 1)) / n + 1e-5).sqrt()
            return affine(xhat, w, b).transpose(1, -1)
        if name in ("group_norm", "instance_norm"):
            y = x.transpose(1, -1)  # [batch, channels, positions]
            groups = 1 if name == "group_norm" else y.shape[1]
            xhat = normalized(y.reshape(len(y), groups, -1)).reshape(y.shape)
            return affine(xhat.transpose(1, -1), w, b).transpose(1, -1)
        if name == "dyt":
            return affine((x * w[:1]).tanh(), w, b)
        if name == "derf":
            return affine((x * w[:1] + b[:1]).erf(), w, b)
        if name == "derf_2_dims":
            return affine((x * w[:1]).erf(), w, b)
        if name == "weight_norm":
            return x / x.norm(dim=(0, 1), keepdim=True) * w
        if name == "online_layer_norm":
            return online(x, w, b, lambda t: 0.3)
        if name == "online_layer_norm_warmup":
            return online(x, w, b, lambda t: max(0.3, 1 / t))
        return detached(name, x)

    return function


def normalized(x, eps=1e-5):
    centred = x - x.mean(-1, keepdim=True)
    return centred * (centred.square().mean(-1, keepdim=True) + eps).rsqrt()


def detached(name, x):
    mean = x.mean(-1, keepdim=True)
    centred = x - (mean.detach() if name in ("detach_norm", "detach_norm_mean") else mean)
    squares = centred.square()
    if name == "ada_norm_as_coded":
        deviation = (squares.sum(-1, keepdim=True) / (x.shape[-1] - 1)).sqrt() + 0.1
    else:
        deviation = (squares.mean(-1, keepdim=True) + 1e-5).sqrt()
    if name in ("detach_norm", "detach_norm_std"):
        deviation = deviation.detach()
    xhat = centred / deviation
    return 1.3 * (1 - 0.2 * xhat).detach() * xhat if name.startswith("ada") else xhat


def online(x, w, b, alpha_of):
    mean, deviation = state().to(x.dtype)
    cases = []
    for t, case in enumerate(x.flatten(0, -2).unbind(0), start=3):
        alpha = alpha_of(t)
        mean = alpha * case.mean() + (1 - alpha) * mean.detach()
        own = ((case - mean).square().sum() / (case.numel() - 1)).sqrt()
        deviation = alpha * own + (1 - alpha) * deviation.detach()
        cases.append(affine((case - mean) / deviation, w, b))
    return torch.stack(cases).view_as(x)


# Both sides compute in double. Sums of at most 30 terms of about 1 have another order, and each
# derivative multiplies by 1/deviation, here at most 10. 1e-11 is 1e5 roundings of 2^-53.
CLOSE = {"rtol": 1e-11, "atol": 1e-11}


@pytest.mark.parametrize("name", ALL)
def test_values_and_three_derivatives(name):
    tensors = inputs()
    seeds = [torch.randn(3, 2, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(i))
             for i in range(3)]  # fmt: skip

    def derivatives(function):
        results = list(outputs(function(*tensors)))
        levels = sum((y.cos() * dy.view_as(y)).sum() for y, dy in zip(results, seeds))
        for _ in range(3):
            found = torch.autograd.grad(
                levels, tensors, create_graph=True, materialize_grads=True, allow_unused=True
            )
            results += found
            levels = sum((g.sin() * (1 + g.detach())).sum() for g in found)
            if not levels.requires_grad:
                break
        return results

    ours, theirs = derivatives(ALL[name]), derivatives(composed(name))
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs):
        torch.testing.assert_close(a, b, **CLOSE)


@pytest.mark.parametrize("name", NORMS)
def test_gradcheck_and_gradgradcheck(name):
    arguments = inputs()
    assert gradcheck(NORMS[name], arguments, check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(NORMS[name], arguments, check_fwd_over_rev=True)


@pytest.mark.parametrize("name", ALL)
def test_functional_transforms(name):
    x, w, b = inputs(requires_grad=False)
    tangents = inputs(requires_grad=False, seed=1)
    ours, theirs = ALL[name], composed(name)

    def loss(function):
        return lambda x: sum(y.pow(3).sum() for y in outputs(function(x, w, b)))

    def each(function):  # one case as vmap's function gets it: without its first dimension
        return lambda x: loss(function)(x[None].expand(2, -1, -1) * x.new_tensor([1, 2])[:, None, None])

    for transform in (
        lambda f: jvp(f, (x, w, b), tuple(tangents))[1],
        lambda f: grad(loss(f))(x),
        lambda f: hessian(loss(f))(x),
        lambda f: jacrev(jacrev(loss(f)))(x),
        lambda f: jacfwd(jacfwd(loss(f)))(x),
        lambda f: vmap(grad(each(f)))(x),
        lambda f: vmap(lambda s: loss(f)(x * s))(x.new_tensor([1.0, 2.0])),
    ):
        torch.testing.assert_close(transform(ours), transform(theirs), **CLOSE)


RULES = ("row_norm", "layer_norm", "affine_layer_norm", "rms_norm", "layer_norm_simple", "add_layer_norm",
         "channel_layer_norm", "batch_norm", "batch_norm_unbiased", "detach_norm", "ada_norm_as_coded",
         "dyt", "derf", "group_norm", "instance_norm")  # fmt: skip


@pytest.mark.filterwarnings("error:There is a performance drop")
@pytest.mark.parametrize("mapped", [(0, None, None), (2, None, None), (None, 0, 0), (1, 0, 1)])
@pytest.mark.parametrize("name", RULES)
def test_vmap_matches_a_loop(name, mapped):
    x, w, b = inputs(requires_grad=False)
    cases = [
        t if dim is None else torch.stack([t, 2 - t, t * t], dim)
        for t, dim in zip((x, w, b), mapped)
    ]

    def results(x, w, b):
        def loss(x, w, b):
            ys = outputs(ALL[name](x, w, b))
            return sum(y.sin().sum() for y in ys), ys

        gradients, ys = grad(loss, (0, 1, 2), has_aux=True)(x, w, b)
        return *ys, *gradients

    ours = vmap(results, mapped)(*cases)
    for i in range(3):
        alone = results(*(t if dim is None else t.select(dim, i) for t, dim in zip(cases, mapped)))
        for a, z in zip(ours, alone):
            torch.testing.assert_close(a[i], z, **CLOSE)
    twice = vmap(vmap(lambda x: ALL[name](x, w, b)))(x.expand(2, 3, 3, 2, 5))
    for a, z in zip(outputs(twice), outputs(ALL[name](x, w, b))):
        torch.testing.assert_close(a, z.expand_as(a), **CLOSE)


def test_forward_mode_keeps_what_is_detached_constant():
    x, tangent = inputs(requires_grad=False)[0], inputs(requires_grad=False, seed=1)[0]
    with forward_ad.dual_level():
        y = ops.detach_norm(forward_ad.make_dual(x, tangent), [5])
        rstd = (x.var(-1, correction=0, keepdim=True) + 1e-5).rsqrt()
        torch.testing.assert_close(forward_ad.unpack_dual(y).tangent, tangent * rstd, **CLOSE)


PRIMITIVES = {
    "row": lambda x, w, b: (x, w, b, "layer", 0, 1e-5, 1.0, 0.1, False, True),
    "channels": lambda x, w, b: (x[..., :2], w[:2], b[:2], "rms", 1, 1e-5, 1.0, 0.1, False, True),
    "batch": lambda x, w, b: (x[..., :2], w[:2], b[:2], "layer", 2, 1e-5, 1.0, 0.1, True, True),
    "ada": lambda x, w, b: (x, None, None, "ada_as_coded", 0, 1e-5, 1.3, 0.2, False, False),
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("name", PRIMITIVES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_opcheck_of_norm_forward_and_backward(name, dtype):
    arguments = PRIMITIVES[name](*inputs(dtype))
    torch.library.opcheck(ops.norm_forward.default, arguments)
    arguments = PRIMITIVES[name](*inputs(dtype, requires_grad=False))
    x, w, b, norm, over, *settings, _ = arguments
    _, statistics = ops.norm_forward(*arguments[:-1], True)
    mask = [True, w is not None, b is not None]
    x.requires_grad_(True)
    arguments = (torch.randn_like(x), None, x, statistics, w, norm, over, *settings, mask)
    # opcheck would also compare the derivatives of the statistics. Those of norm_backward are checked
    # above.
    torch.library.opcheck(
        ops.norm_backward.default, arguments,
        test_utils=("test_schema", "test_faketensor", "test_autograd_registration"),
    )  # fmt: skip


@pytest.mark.long
def test_opcheck_of_the_other_operators():
    x, w, b = inputs()
    check = torch.library.opcheck
    check(ops.add_norm_forward.default, (x, x.detach().flip(0), w, b, "layer", 0, 1e-5, True))
    check(ops.weight_norm_forward.default, (x[:, 0], w[:3]))
    check(ops.pointwise_norm_forward.default, (x, w[:1], b[:1], w, b, "erf"))
    channels = x.detach().transpose(1, 2).requires_grad_()
    check(ops.group_norm_forward.default, (channels, w, b, 5, 1e-5, True))
    _, statistics = ops.group_norm_forward(channels.detach(), None, None, 0, 1e-5, True)
    check(ops.group_norm_backward.default,
          (torch.randn_like(channels), channels, statistics, w, 5, 1e-5, [True] * 3),
          test_utils=("test_schema", "test_faketensor", "test_autograd_registration"))  # fmt: skip
    check(ops.pointwise_norm_forward.default, (x, w[:1], None, None, None, "tanh"))
    check(ops.pointwise_norm_backward.default,
          (torch.randn_like(x), x, w[:1], b[:1], w, "erf", [True] * 5))  # fmt: skip
    check(ops.online_norm_forward.default, (x, state(), w, b, 0.3))
    cases = x[..., 0].numel()
    check(ops.online_norm_forward.default, (x, state(), w, b, 0.3, torch.rand(cases).double()))
    estimates = torch.zeros(2).double(), torch.ones(2).double()
    check(ops.batch_norm_evaluate.default, (x, w[:2], b[:2], *estimates, 1e-5))
    for function in (
        lambda: (ops.layer_norm.default, (x, [2, 5], w.expand(2, 5), b.expand(2, 5))),
        lambda: (ops.rms_norm.default, (x, [5], w)),
        lambda: (ops.ada_norm.default, (x, [5])),
        lambda: (ops.detach_norm.default, (x, [5])),
        lambda: (ops.add_layer_norm.default, (x, x.detach().flip(0), [5], w, b)),
        lambda: (ops.channel_layer_norm.default, (x, w[:2], b[:2])),
        lambda: (ops.weight_norm.default, (x, w[:3])),
        lambda: (ops.dyt.default, (x, [5], w[:1], w, b)),
        lambda: (ops.group_norm.default, (channels, 1, w, b)),
        lambda: (ops.instance_norm.default, (channels, w, b, 0 * w.detach(), 0 * b.detach() + 1)),
        lambda: (ops.derf.default, (x, [2, 5], w[:1], b[:1])),
        lambda: (ops.online_layer_norm.default, (x, state(), w, b)),
        lambda: (ops.online_layer_norm.default, (x, state(0), w, b, 0.3, "inverse")),
        lambda: (ops.batch_norm.default, (x, w[:2], b[:2], *estimates, True, 0.1, 1e-5)),
    ):
        operator, arguments = function()
        # opcheck's test of autograd registration does not apply to composite operators.
        check(operator, arguments, test_utils=("test_schema", "test_faketensor", "test_aot_dispatch_dynamic"))


@pytest.mark.parametrize("name", ALL)
def test_compiles_in_one_graph_with_dynamic_shapes(name):
    compiled = torch.compile(ALL[name], fullgraph=True, dynamic=True, backend="aot_eager")
    for rows in (3, 4, 7):
        arguments = inputs(torch.float32, shape=(rows, 2, 5))
        results = []
        for function in (compiled, ALL[name]):
            ys = outputs(function(*arguments))
            total = sum(y.sin().sum() for y in ys)
            results.append((ys, torch.autograd.grad(total, arguments, allow_unused=True)))
        (ours, our_gradients), (eager, gradients) = results
        assert all(torch.equal(y, z) for y, z in zip(ours, eager))
        for a, b in zip(our_gradients, gradients):
            # Compiled code returns None or zeros where there is no gradient. The two add parts of a
            # gradient in different order, which rounds once.
            if a is not None and b is not None:
                torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)
            else:
                assert all(t is None or not t.any() for t in (a, b))


def test_compiles_with_inductor():
    function = torch.compile(NORMS["layer_norm"], fullgraph=True, dynamic=True)
    arguments = inputs(torch.float32)
    y = function(*arguments)
    assert torch.equal(y, NORMS["layer_norm"](*arguments))
    y.sum().backward()
    assert all(t.grad is not None for t in arguments)


@pytest.mark.parametrize("name", ALL)
def test_exports(name):
    class Module(torch.nn.Module):
        def forward(self, x, w, b):
            return ALL[name](x, w, b)

    arguments = tuple(inputs(torch.float32, requires_grad=False))
    rows = torch.export.Dim("rows", min=2)
    program = torch.export.export(Module(), arguments, dynamic_shapes=({0: rows}, None, None))
    more = inputs(torch.float32, requires_grad=False, shape=(6, 2, 5))
    for a, b in zip(outputs(program.module()(*more)), outputs(ALL[name](*more))):
        assert torch.equal(a, b)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sixteen_bits_with_parameters_in_float(name, dtype):
    x, w, b = inputs(dtype, shape=(4, 3, 33))
    w, b = w.detach().float().requires_grad_(), b.detach().float().requires_grad_()
    arguments = [x, w, b]
    exact = [t.detach().double().requires_grad_() for t in arguments]
    # Results round once, to a unit of the type; so does the gradient of x, and twice that of the
    # inputs of add_... The default eps of rms_norm is float's here and double's in the reference,
    # both negligible.
    unit = torch.finfo(dtype).eps
    ys, exact_ys = outputs(ALL[name](*arguments)), outputs(composed(name)(*exact))
    for y, z in zip(ys, exact_ys):
        assert y.dtype == dtype
        assert (y - z).abs().max() <= unit * z.abs().max()
    gradients = torch.autograd.grad(sum(y.double().sin().sum() for y in ys), arguments, allow_unused=True)
    expected = torch.autograd.grad(sum(y.sin().sum() for y in exact_ys), exact, allow_unused=True)
    for a, z, argument in zip(gradients, expected, arguments):
        assert (a is None) == (z is None)
        if a is not None:
            assert a.dtype == argument.dtype
            # dy = cos(y) is computed from a rounded y, which is below 8 here, with an error of up
            # to a unit of y.
            assert (a - z).abs().max() <= 16 * unit * max(z.abs().max(), 1)


# Parameters of every other floating type. The results equal those with parameters in the type of
# the arithmetic bit for bit: 16-bit values convert exactly, float64 ones are rounded first.
FLOATS = [torch.bfloat16, torch.float16, torch.float32, torch.float64]
WITH_PARAMETERS = {
    name: ALL[name]
    for name in ("layer_norm", "layer_norm_no_weight", "affine_layer_norm", "rms_norm", "affine_rms_norm",
                 "add_layer_norm", "add_rms_norm", "channel_layer_norm", "batch_norm", "online_layer_norm")
} | {
    "batch_norm_evaluate": lambda x, w, b: ops.batch_norm(
        x.transpose(1, -1), w, b, torch.full([5], 0.3), torch.full([5], 1.7), False, 0.1, 1e-5
    )
}  # fmt: skip


def with_second_gradients(function, arguments):
    ys = outputs(function(*arguments))
    total = sum(y.double().sin().sum() for y in ys)
    first = torch.autograd.grad(total, arguments, create_graph=True, allow_unused=True)
    total = sum(g.double().sin().sum() for g in first if g is not None)
    return ys, first, torch.autograd.grad(total, arguments, allow_unused=True)


@pytest.mark.parametrize("parameters", FLOATS)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", WITH_PARAMETERS)
def test_parameters_of_any_floating_type(name, dtype, parameters):
    x, w, b = (t.detach() for t in inputs(dtype))
    computed = torch.float64 if dtype == torch.float64 else torch.float32
    w, b = w.to(parameters), b.to(parameters)
    function = WITH_PARAMETERS[name]
    found = with_second_gradients(function, [t.requires_grad_() for t in (x, w, b)])
    plain = [x.detach(), w.detach().to(computed), b.detach().to(computed)]
    expected = with_second_gradients(function, [t.requires_grad_() for t in plain])
    assert all(y.dtype == dtype for y in found[0])
    for gradients in found[1:]:
        for g, argument in zip(gradients, (x, w, b)):
            assert g is None or g.dtype == argument.dtype
    if parameters == dtype and dtype.itemsize == 2:
        return  # has its own kernel: test_sixteen_bits_with_parameters_in_float and others
    for ours, theirs in zip(sum(found[:2], ()), sum(expected[:2], ())):
        assert (ours is None) == (theirs is None)
        assert ours is None or torch.equal(ours, theirs.to(ours.dtype))
    for ours, theirs in zip(found[2], expected[2]):
        # First gradients, of size up to 20, are rounded to 16 bits before their sine is computed.
        units = max(torch.finfo(dtype).eps, torch.finfo(parameters).eps)
        if ours is not None:
            assert (ours - theirs).abs().max() <= 256 * units * max(1, theirs.abs().max())


@pytest.mark.parametrize("parameters", FLOATS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_rms_norm_has_the_types_of_pytorch(dtype, parameters):
    x, w, _ = (t.detach() for t in inputs(dtype, shape=(4, 33)))
    w = w.to(parameters)
    results = []
    for function in (ops.affine_rms_norm, lambda x, w: F.rms_norm(x, [33], w)):
        leaves = [x.clone().requires_grad_(), w.clone().requires_grad_()]
        y = function(*leaves)
        results.append([y, *torch.autograd.grad(y.sum(), leaves)])
    for ours, theirs in zip(*results):
        assert ours.dtype == theirs.dtype
        # Each side rounds to the smaller of the two types a few times.
        unit = max(torch.finfo(dtype).eps, torch.finfo(parameters).eps)
        assert (ours.double() - theirs.double()).abs().max() <= 4 * unit * max(1, theirs.abs().max())


def test_weight_and_bias_of_two_types():
    x, w, b = inputs(torch.bfloat16, requires_grad=False)
    b = b.float()
    assert torch.equal(ops.layer_norm(x, [5], w, b), ops.layer_norm(x, [5], w.float(), b))
    assert torch.equal(ops.weight_norm(x, w, 2), ops.weight_norm(x, w.float(), 2))


def test_sixteen_bit_parameters_under_vmap_compile_and_export():
    x, w, _ = inputs(torch.float32, requires_grad=False)
    w = w.bfloat16()
    y = ops.affine_rms_norm(x, w)
    assert torch.equal(vmap(lambda row: ops.affine_rms_norm(row, w))(x), y)
    each = vmap(lambda w: ops.affine_rms_norm(x, w))(torch.stack([w, 2 * w]))
    torch.testing.assert_close(each, torch.stack([y, 2 * y]), rtol=1e-6, atol=1e-6)

    class Module(torch.nn.Module):
        def forward(self, x, w):
            return ops.affine_rms_norm(x, w)

    assert torch.equal(torch.export.export(Module(), (x, w)).module()(x, w), y)
    compiled = torch.compile(Module(), fullgraph=True, dynamic=True, backend="aot_eager")
    leaves = [x.clone().requires_grad_(), w.clone().requires_grad_()]
    found = compiled(*leaves)
    assert found.dtype == torch.float32 and torch.equal(found, y)
    dx, dw = torch.autograd.grad(found.sum(), leaves)
    assert dx.dtype == torch.float32 and dw.dtype == torch.bfloat16
    expected = torch.autograd.grad(ops.affine_rms_norm(*leaves).sum(), leaves)
    assert torch.equal(dx, expected[0]) and torch.equal(dw, expected[1])


def test_autocast_keeps_the_type_of_x():
    linear = torch.nn.Linear(5, 5)
    x, w, b = inputs(torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        h = linear(x)
        assert h.dtype == torch.bfloat16
        y = ops.layer_norm(h, [5], w, b)
        assert y.dtype == torch.bfloat16
        assert ops.layer_norm(x, [5], w, b).dtype == torch.float32
        z, total = ops.add_layer_norm(h, x, [5], w, b)
        assert z.dtype == total.dtype == torch.float32
    assert torch.equal(y, ops.layer_norm(h, [5], w, b))
    assert torch.equal(total, h + x)
    (y.float().sum() + z.sum()).backward()
    assert w.grad.dtype == x.grad.dtype == torch.float32


@pytest.mark.parametrize("name", ALL)
def test_inference_mode_gives_the_same_bits(name):
    arguments = inputs(torch.float32)
    with torch.inference_mode():
        inferred = outputs(ALL[name](*arguments))
    for a, b in zip(inferred, outputs(ALL[name](*arguments))):
        assert torch.equal(a, b.detach()) and not a.requires_grad


@pytest.mark.parametrize("name", ALL)
def test_any_strides_give_the_same_bits(name):
    x, w, b = inputs(torch.float32, requires_grad=False)
    dy = [torch.randn_like(y) for y in outputs(ALL[name](x, w, b))]
    wide = torch.randn(6, 2, 10)
    wide[::2, :, 2:7] = x
    variants = {
        "contiguous": (x, w, b),
        "columns and rows of a larger tensor": (wide[::2, :, 2:7], w, b),
        "transposed": (x.permute(2, 0, 1).contiguous().permute(1, 2, 0), w, b),
        "strided weights": (x, torch.stack([w, w], 1)[:, 0], torch.stack([b, b], 1)[:, 1]),
    }
    results = {}
    for key, arguments in variants.items():
        leaves = [t.detach().requires_grad_() for t in arguments]
        ys = outputs(ALL[name](*leaves))
        expanded = torch.autograd.grad(ys, leaves, dy, retain_graph=True, allow_unused=True)
        sums = torch.autograd.grad([y.sum() for y in ys], leaves, allow_unused=True)
        results[key] = [*ys, *expanded, *sums]
    for key, tensors in results.items():
        for a, b in zip(results["contiguous"], tensors):
            assert (a is None) == (b is None), key
            assert a is None or torch.equal(a, b), key


def test_channels_last_in_gives_channels_last_out():
    x = torch.randn(2, 6, 5, 3).to(memory_format=torch.channels_last).requires_grad_()
    w, b = torch.randn(6), torch.randn(6)
    y = ops.channel_layer_norm(x, w, b)
    assert y.is_contiguous(memory_format=torch.channels_last)
    (dx,) = torch.autograd.grad(y.square().sum(), x)
    assert dx.is_contiguous(memory_format=torch.channels_last)
    expected = F.layer_norm(x.detach().permute(0, 2, 3, 1), (6,), w, b).permute(0, 3, 1, 2)
    # Float values below 5 with a few roundings of 2^-24 each, from two orders of summation.
    torch.testing.assert_close(y.detach(), expected, rtol=1e-5, atol=3e-6)
    plain = ops.channel_layer_norm(x.detach().contiguous(), w, b)
    torch.testing.assert_close(y.detach(), plain, rtol=1e-5, atol=3e-6)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("threads", [2, 3])
def test_same_bits_for_any_number_of_threads(name, threads):
    arguments = inputs(torch.float32, shape=(700, 4, 65))
    before = torch.get_num_threads()

    def results():
        ys = outputs(ALL[name](*arguments))
        total = sum(y.sin().sum() for y in ys)
        return [*ys, *torch.autograd.grad(total, arguments, allow_unused=True)]

    try:
        torch.set_num_threads(1)
        one = results()
        torch.set_num_threads(threads)
        several = results()
    finally:
        torch.set_num_threads(before)
    for a, b in zip(one, several):
        assert (a is None) == (b is None)
        assert a is None or torch.equal(a, b)


@pytest.mark.parametrize("shape", [(0, 2, 5), (3, 0, 5)])
@pytest.mark.parametrize("name", ALL)
def test_no_rows(name, shape):
    if name == "weight_norm":
        pytest.skip("weights without a number have no norm")
    if name == "layer_norm_2_dims" and shape[1] == 0:
        pytest.skip("PyTorch gives NaN gradients for rows without a number")
    arguments = inputs(torch.float32, shape=shape)
    ys = outputs(ALL[name](*arguments))
    assert all(y.numel() == 0 for y in ys)
    gradients = torch.autograd.grad(sum(y.sum() for y in ys), arguments, allow_unused=True)
    for gradient, argument in zip(gradients, arguments):
        assert gradient is None or torch.equal(gradient, torch.zeros_like(argument))


def test_a_scalar_row():
    x = torch.tensor([[3.0], [4.0]], requires_grad=True)
    y = ops.layer_norm(x, [1], torch.tensor([2.0]), torch.tensor([5.0]))
    assert y.flatten().tolist() == [5.0, 5.0]
    assert torch.autograd.grad(y.sum(), x)[0].flatten().tolist() == [0.0, 0.0]


def test_running_estimates_match_torch():
    for momentum in (0.1, 1.0):
        theirs = torch.nn.BatchNorm1d(4, momentum=momentum, dtype=torch.float64)
        mean, var = torch.zeros(4).double(), torch.ones(4).double()
        for seed in range(3):
            x = inputs(requires_grad=False, shape=(6, 4, 5), seed=seed)[0] + 3
            theirs(x)
            ops.batch_norm(x, None, None, mean, var, True, momentum, 1e-5)
        torch.testing.assert_close(mean, theirs.running_mean, **CLOSE)
        torch.testing.assert_close(var, theirs.running_var, **CLOSE)
        before = mean.clone()
        ops.batch_norm(torch.zeros(0, 4).double(), None, None, mean, var, True, momentum, 1e-5)
        assert torch.equal(mean, before)  # an empty batch changes no estimate


def samples(name, dtype=torch.float32):
    methods = pytest.importorskip("torch.testing._internal.common_methods_invocations")
    (info, *_) = [entry for entry in methods.op_db if entry.name == name]
    found = list(info.sample_inputs("cpu", dtype, requires_grad=True))
    assert found
    return found


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "name", ["nn.functional.layer_norm", "nn.functional.rms_norm", "native_layer_norm"]
)
def test_samples_of_pytorch(name, dtype):
    """PyTorch's own samples of its operators, with inputs from -9 to 9."""
    compared = 0
    for sample in samples(name, dtype):
        shape, *rest = sample.args
        if name.endswith("rms_norm"):
            weight = rest[0] if rest else sample.kwargs.get("weight")
            eps = sample.kwargs.get("eps")
            tensors = [sample.input, weight]
            ours = lambda x, w: ops.rms_norm(x, shape, w, eps)  # noqa: B023, E731
            theirs = lambda x, w: F.rms_norm(x, shape, w, eps)  # noqa: B023, E731
        else:
            rest = list(rest)
            eps = rest.pop() if rest and isinstance(rest[-1], float) else sample.kwargs.get("eps", 1e-5)
            weight, bias = (rest + [None, None])[:2]
            tensors = [sample.input, weight, bias]
            ours = lambda x, w, b: ops.layer_norm(x, shape, w, b, eps)  # noqa: B023, E731
            theirs = lambda x, w, b: F.layer_norm(x, shape, w, b, eps)  # noqa: B023, E731
        if eps is not None and eps < 0:  # PyTorch allows it
            with pytest.raises(ValueError, match="eps must be finite and at least 0, got -0.5"):
                ours(*tensors)
            continue
        compared += 1
        given = [t for t in tensors if t is not None]
        y, expected = ours(*tensors), theirs(*tensors)
        assert y.dtype == expected.dtype and y.shape == expected.shape
        # A few units in the last place of the largest element; factors are up to 9.
        tolerance = 8 * torch.finfo(dtype).eps * max(1.0, expected.abs().max().item() if expected.numel() else 1)
        torch.testing.assert_close(y, expected, rtol=0, atol=tolerance)
        wide = [t if t is None else t.detach().double().requires_grad_() for t in tensors]
        # PyTorch's double is no oracle here: for rows of one element, the weight's gradient is
        # 5e-14.
        dims = tuple(range(-len(shape), 0))
        centred = wide[0] - (0 if name.endswith("rms_norm") else wide[0].mean(dims, keepdim=True))
        added = torch.finfo(dtype if dtype.itemsize > 2 else torch.float32).eps if eps is None else eps
        exact = centred * (centred.square().mean(dims, keepdim=True) + added).rsqrt()
        if len(wide) > 1 and wide[1] is not None:
            exact = exact * wide[1]
        if len(wide) > 2 and wide[2] is not None:
            exact = exact + wide[2]
        dy = torch.rand(y.shape, dtype=torch.float64).to(dtype)
        ours_g = torch.autograd.grad(y, given, dy)
        exact_g = torch.autograd.grad(exact, [t for t in wide if t is not None], dy.double())
        for a, z in zip(ours_g, exact_g):
            assert a.dtype == dtype
            if a.numel():
                scale = max(z.abs().max().item(), 1)
                # 16-bit results round once, because sums are in float. In float and double, sums of
                # at most 100 terms of size up to scale * 9 * rstd cancel.
                assert (a.double() - z).abs().max() <= 64 * torch.finfo(dtype).eps * scale
    assert compared >= 3


def message(function, *arguments):
    with pytest.raises((ValueError, RuntimeError)) as caught:
        function(*arguments)
    return type(caught.value), str(caught.value).split("\n")[0]


X = torch.ones(2, 3)
ERRORS = [
    (lambda: ops.layer_norm(X, [4]),
     "[layer_norm] normalized_shape must be the last dimensions of x, which has [2, 3], got [4]"),
    (lambda: ops.layer_norm(X, []),
     "[layer_norm] normalized_shape must be the last dimensions of x, which has [2, 3], got []"),
    (lambda: ops.layer_norm(X, [3], torch.ones(2)),
     "[layer_norm] weight must have normalized_shape, [3], got [2]"),
    (lambda: ops.layer_norm(X, [3], None, torch.ones(2)),
     "[layer_norm] bias must have normalized_shape, [3], got [2]"),
    (lambda: ops.layer_norm(X, [3], torch.ones(3).int()),
     "[layer_norm] weight must have x's type or Float, and x's device, Float on cpu, got Int on cpu"),
    (lambda: ops.layer_norm(X, [3], torch.ones(3, device="meta")),
     "[layer_norm] weight must have x's type or Float, and x's device, Float on cpu, got Float on meta"),
    (lambda: ops.norm_forward(X.bfloat16(), torch.ones(3), torch.ones(3).bfloat16(), "layer", 0, 1e-5, 1.0, 0.1,
                              False, False),
     "[layer_norm] bias must have weight's type, Float, got BFloat16"),
    (lambda: ops.affine_layer_norm(X, torch.ones(2)),
     "[layer_norm] normalized_shape must be the last dimensions of x, which has [2, 3], got [2]"),
    (lambda: ops.affine_rms_norm(X, torch.ones(())),
     "[rms_norm] normalized_shape must be the last dimensions of x, which has [2, 3], got []"),
    (lambda: ops.layer_norm(X.int(), [3]),
     "[layer_norm] x must be float, double, bfloat16 or half, got Int"),
    (lambda: ops.layer_norm(X, [3], None, None, -1.0),
     "[layer_norm] eps must be finite and at least 0, got -1"),
    (lambda: ops.rms_norm(X, [3], None, float("nan")),
     "[rms_norm] eps must be finite and at least 0, got nan"),
    (lambda: ops.row_norm(X, [3], "layers"),
     f"[row_norm] norm must be one of {', '.join(ops.row_norm_names())}, got layers"),
    (lambda: ops.row_norm(X, [3], "detach", torch.ones(3)),
     "[detach_norm] weight and bias must be left out, got a tensor"),
    (lambda: ops.ada_norm(X, [3], float("inf")), "[ada_norm] C must be finite, got inf"),
    (lambda: ops.ada_norm(X, [3], 1.0, float("nan")), "[ada_norm] k must be finite, got nan"),
    (lambda: ops.ada_norm(torch.ones(2, 1), [1], 1.0, 0.1, True),
     "[ada_norm] x must have at least 2 elements in a row for the unbiased deviation, got [2, 1]"),
    (lambda: ops.add_layer_norm(X, torch.ones(2, 2), [3]),
     "[add_layer_norm] residual must have x's sizes, [2, 3], got [2, 2]"),
    (lambda: ops.channel_layer_norm(X, torch.ones(2)),
     "[channel_layer_norm] weight must have [3], got [2]"),
    (lambda: ops.channel_layer_norm(torch.ones(3)),
     "[channel_layer_norm] x must have at least 2 dimensions, got 1"),
    (lambda: ops.online_layer_norm(X, state(), None, None, 0.0),
     "[online_layer_norm] alpha must be above 0 and at most 1, got 0"),
    (lambda: ops.online_layer_norm(X, state(), None, None, 1.5),
     "[online_layer_norm] alpha must be above 0 and at most 1, got 1.5"),
    (lambda: ops.online_layer_norm(torch.ones(2, 1), state()),
     "[online_layer_norm] x must have at least 2 elements in a case, got [2, 1]"),
    (lambda: ops.online_layer_norm(X, torch.ones(2)),
     "[online_layer_norm] state must have [2] Double on cpu, got [2] Float on cpu"),
    (lambda: ops.online_layer_norm(X, state(), schedule="inverse"),
     "[online_layer_norm] state must have [3] Double on cpu, got [2] Double on cpu"),
    (lambda: ops.online_layer_norm(X, state(), schedule="linear"),
     "[online_layer_norm] schedule must be one of constant, inverse, warmup, got linear"),
    (lambda: ops.online_layer_norm(X, state(0), None, None, 1.5, "warmup"),
     "[online_layer_norm] alpha must be above 0 and at most 1, got 1.5"),
    (lambda: ops.online_norm_forward(X, state(), None, None, 0.5, torch.ones(1).double()),
     f"[online_layer_norm] alphas must have [{X[..., 0].numel()}] Double on cpu, got [1] Double on cpu"),
    (lambda: ops.weight_norm(X, torch.ones(3)), "[weight_norm] g must have 2 elements, got [3]"),
    (lambda: ops.weight_norm(X, torch.ones(2), 2), "[weight_norm] dim must be from -1 to 1, got 2"),
    (lambda: ops.batch_norm(X, None, None, None, None, False, 0.1, 1e-5),
     "[batch_norm] running_mean must be a tensor in evaluation, got none"),
    (lambda: ops.batch_norm(X, None, None, torch.ones(3), None, True, 0.1, 1e-5),
     "[batch_norm] running_mean and running_var must be given together, got only one"),
    (lambda: ops.batch_norm(X, None, None, torch.ones(2), torch.ones(3), True, 0.1, 1e-5),
     "[batch_norm] running_mean must have [3], got [2]"),
    (lambda: ops.batch_norm(X, None, None, None, None, True, 1.5, 1e-5),
     "[batch_norm] momentum must be from 0 to 1, got 1.5"),
    (lambda: ops.batch_norm(X[:1], None, None, torch.ones(3), torch.ones(3), True, 0.1, 1e-5),
     "[batch_norm] x must have at least 2 elements in each channel in training, got [1, 3]"),
    (lambda: ops.norm_forward(X, None, None, "layers", 0, 1e-5, 1.0, 0.1, False, False),
     f"[norm_forward] norm must be one of {', '.join(ops.row_norm_names())}, got layers"),
    (lambda: ops.norm_forward(X, None, None, "layer", 3, 1e-5, 1.0, 0.1, False, False),
     "[norm_forward] over must be 0 (rows), 1 (channels) or 2 (the batch), got 3"),
    (lambda: ops.add_norm_forward(X, X, None, None, "layer", 1, 1e-5, False),
     "[add_norm_forward] over must be 0 (rows), got 1"),
    (lambda: ops.norm_backward(X, None, X, X, None, "layer", 0, 1e-5, 1.0, 0.1, False, [True] * 3),
     "[norm_backward] statistics must have [3, 2] Float on cpu, got [2, 3] Float on cpu"),
]  # fmt: skip


@pytest.mark.parametrize("function, expected", ERRORS, ids=[text for _, text in ERRORS])
def test_errors(function, expected):
    kind, text = message(function)
    assert text == expected
    assert kind is ValueError


def test_exact_at_a_large_mean():
    x = torch.randn(64, 256, generator=torch.Generator().manual_seed(0)) + 1e6
    exact = normalized(x.double())
    error = (ops.layer_norm(x, [256]) - exact).abs() / exact.abs().clamp(min=1)
    assert error.max() < 5e-7  # four roundings to float
    assert (F.layer_norm(x, (256,)) - exact).abs().max() > 1e-3  # the error that this test would detect


def test_cpu_threads_of_the_caller():
    """Several threads can call at once."""
    from concurrent.futures import ThreadPoolExecutor

    def work(seed):
        arguments = inputs(torch.float32, shape=(50, 3, 65), seed=seed)
        y = NORMS["layer_norm"](*arguments)
        return [y, *torch.autograd.grad(y.sin().sum(), arguments)]

    with ThreadPoolExecutor(4) as pool:
        several = list(pool.map(work, range(16)))
    for seed, results in enumerate(several):
        for a, b in zip(results, work(seed)):
            assert torch.equal(a, b)


@pytest.mark.parametrize("eps", [1e-5, 1e-3])
@pytest.mark.parametrize("gradient", [False, True])
def test_calls_that_skip_the_dispatcher_have_the_same_bits(eps, gradient):
    # Calls that a profiler observes go through the dispatcher, and must appear in it.
    x = torch.randn(5, 37, requires_grad=gradient)
    weight, bias = torch.randn(37), torch.randn(37)
    past = planish.functional.layer_norm(x, (37,), weight, bias, eps)
    with torch.profiler.profile() as profile:
        through = planish.functional.layer_norm(x, (37,), weight, bias, eps)
    assert "planish::norm_forward" in {event.key for event in profile.key_averages()}
    assert torch.equal(past, through)
    assert past.requires_grad == gradient
    # PyTorch's and our errors are a few units in the last place of values of a few units.
    assert torch.allclose(past, F.layer_norm(x, (37,), weight, bias, eps), rtol=2e-6, atol=2e-6)
