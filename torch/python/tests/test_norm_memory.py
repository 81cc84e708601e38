"""Backward writes dx over dy only if nothing else uses dy."""

import planish
import pytest
import torch
import torch.autograd.forward_ad as forward_ad
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

CASES = {
    "layer_norm": (lambda: planish.nn.LayerNorm(24), (60, 24)),
    "rms_norm": (lambda: planish.nn.RMSNorm(24), (30, 2, 24)),
    "detach_norm": (lambda: planish.nn.DetachNorm(24), (60, 24)),
    "ada_norm": (lambda: planish.nn.AdaNorm(24), (60, 24)),
    "layer_norm_2d": (lambda: planish.nn.LayerNorm2d(24), (4, 24, 3, 5)),
    "batch_norm_2d": (lambda: planish.nn.BatchNorm2d(24), (4, 24, 3, 5)),
}


def normal(*shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def make(name, dtype=torch.float32):
    """Returns a module, x and factors w.

    The gradient of (w * y).sum() with respect to y is a copy of w.
    """
    module, shape = CASES[name]
    return module().to(dtype), normal(*shape, dtype=dtype).requires_grad_(), normal(*shape, seed=1, dtype=dtype)


def takes_new_memory(loss, x):
    """Runs backward. Returns whether the norm's node allocated as much memory as x has."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        loss.backward()
    taken = [event.self_cpu_memory_usage for event in profile.events() if event.name == "planish::norm_backward"]
    assert len(taken) == 1
    return taken[0] >= x.nbytes


def expected(module, x, w):
    """Returns the gradients of x and the parameters from a call whose dy the caller keeps."""
    wanted = [x, *module.parameters()]
    return torch.autograd.grad(module(x), wanted, w)


def gradients(module, x):
    return [x.grad, *[p.grad for p in module.parameters()]]


def assert_same(got, want):
    # The kernel and its inputs are the same, and so are the bits.
    assert all(torch.equal(g, e) for g, e in zip(got, want, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", CASES)
def test_dx_overwrites_dy(name, dtype):
    module, x, w = make(name, dtype)
    want = expected(module, x, w)
    assert not takes_new_memory((w * module(x)).sum(), x)
    assert_same(gradients(module, x), want)


@pytest.mark.parametrize("shape", [(40, 33), (7, 4099), (16400, 64), (300, 1031)])
def test_dx_overwrites_dy_in_all_loops(shape):
    """Narrow, odd and long rows, and large arrays, whose results otherwise use non-temporal
    stores."""
    module = planish.nn.LayerNorm(shape[1])
    x, w = normal(*shape).requires_grad_(), normal(*shape, seed=1)
    want = expected(module, x, w)
    for threads in (1, 2):
        x.grad = None
        module.zero_grad()
        torch.set_num_threads(threads)
        assert not takes_new_memory((w * module(x)).sum(), x)
        assert_same(gradients(module, x), want)


def test_channels_last():
    module = planish.nn.LayerNorm2d(24)
    x = normal(4, 24, 3, 5).to(memory_format=torch.channels_last).requires_grad_()
    w = normal(4, 24, 3, 5, seed=1).to(memory_format=torch.channels_last)
    want = expected(module, x, w)
    assert not takes_new_memory((w * module(x)).sum(), x)
    assert_same(gradients(module, x), want)


def test_a_sum_and_its_norm():
    x, residual = normal(60, 24).requires_grad_(), normal(60, 24, seed=2).requires_grad_()
    w, v = normal(60, 24, seed=1), normal(60, 24, seed=3)

    def outputs():
        return planish.functional.add_layer_norm(x, residual, (24,))

    want = torch.autograd.grad(outputs(), [x, residual], [w, v])
    y, total = outputs()
    assert not takes_new_memory((w * y).sum() + (v * total).sum(), x)
    assert x.grad.data_ptr() != residual.grad.data_ptr()
    assert_same([x.grad, residual.grad], want)


def test_a_gradient_that_a_hook_keeps():
    module, x, w = make("layer_norm")
    want, kept = expected(module, x, w), []
    y = module(x)
    y.register_hook(kept.append)
    assert takes_new_memory((w * y).sum(), x)
    assert torch.equal(kept[0], w)
    assert_same(gradients(module, x), want)


def test_a_gradient_that_the_output_retains():
    module, x, w = make("layer_norm")
    want = expected(module, x, w)
    y = module(x)
    y.retain_grad()
    (w * y).sum().backward()
    assert torch.equal(y.grad, w)
    assert_same(gradients(module, x), want)


def test_a_requested_gradient_is_kept():
    module, x, w = make("layer_norm")
    want = expected(module, x, w)
    y = module(x)
    dx, dy = torch.autograd.grad((w * y).sum(), [x, y])
    assert torch.equal(dy, w)
    assert_same([dx], want[:1])


def test_a_gradient_that_the_caller_gives():
    module, x, w = make("layer_norm")
    want, given = expected(module, x, w), w.clone()
    module(x).backward(given)
    assert torch.equal(given, w)
    assert_same(gradients(module, x), want)


def test_a_gradient_that_a_module_hook_gets():
    module, x, w = make("layer_norm")
    want, kept = expected(module, x, w), []
    module.register_full_backward_hook(lambda _, dx, dy: kept.append((dx[0].clone(), dy[0].clone())))
    (w * module(x)).sum().backward()
    assert_same(kept[0], [want[0], w])
    assert_same(gradients(module, x), want)


def test_a_gradient_of_two_norms():
    """The terms of a sum have one gradient: the first norm must not overwrite what the second one
    needs."""
    first, x, w = make("layer_norm")
    second, z = planish.nn.RMSNorm(24), normal(60, 24, seed=4).requires_grad_()
    want = [*expected(first, x, w), *expected(second, z, w)]
    (w * (first(x) + second(z))).sum().backward()
    assert_same([*gradients(first, x), *gradients(second, z)], want)


class Lent(torch.autograd.Function):
    """An operation whose gradient is a view of memory that another tensor uses."""

    @staticmethod
    def forward(ctx, y, lender):
        ctx.lender = lender
        return y.sum()

    @staticmethod
    def backward(ctx, _):
        return ctx.lender(), None


def views_of(owner):
    return {
        "a view": lambda: owner[:60],
        "an array of NumPy": lambda: torch.from_numpy(owner.numpy()[:60]),
        "detached": lambda: owner[:60].detach(),
    }


@pytest.mark.parametrize("kind", views_of(torch.empty(120, 24)))
def test_a_gradient_in_shared_memory(kind):
    module, x, w = make("layer_norm")
    owner = torch.cat([w, w])
    want, before = expected(module, x, w), owner.clone()
    Lent.apply(module(x), views_of(owner)[kind]).backward()
    assert torch.equal(owner, before)
    assert_same(gradients(module, x), want)


def test_a_gradient_with_strides():
    module, x, w = make("layer_norm")
    want = expected(module, x, w)
    y = module(x)
    (w.t().contiguous() * y.t()).sum().backward()
    assert_same(gradients(module, x), want)
    x.grad = None
    (module(x)).sum().backward()  # one element, expanded
    assert_same([x.grad], expected(module, x, torch.ones_like(x))[:1])


def test_derivatives_of_the_gradient():
    """With create_graph, dy is part of a graph."""
    module, x, w = make("layer_norm", torch.float64)
    w.requires_grad_()

    def gradient(x, w):
        return torch.autograd.grad((w * module(x)).sum(), x, create_graph=True)[0]

    assert torch.autograd.gradcheck(gradient, (x, w))


def test_a_tangent_of_the_gradient():
    module, x, w = make("layer_norm", torch.float64)
    u = normal(*x.shape, seed=5, dtype=torch.float64)
    plain = nn.LayerNorm(24, dtype=torch.float64)

    def tangent(module):
        with forward_ad.dual_level():
            factor = forward_ad.make_dual(w, u)
            dx = torch.autograd.grad((factor * module(x)).sum(), x)[0]
            return forward_ad.unpack_dual(dx).tangent

    assert torch.allclose(tangent(module), tangent(plain), rtol=0, atol=1e-13)  # sums of 24, in double


def test_modes_see_the_operator():
    module, x, w = make("layer_norm")
    want, names = expected(module, x, w), []

    class Names(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            names.append(str(function))
            return function(*args, **(kwargs or {}))

    with Names():
        (w * module(x)).sum().backward()
    assert "planish.norm_backward.default" in names
    assert_same(gradients(module, x), want)


def test_profiles_name_the_operator():
    module, x, w = make("layer_norm")
    with torch.profiler.profile() as profile:
        (w * module(x)).sum().backward()
    assert "planish::norm_backward" in {event.key for event in profile.key_averages()}


def test_backward_twice():
    module, x, w = make("layer_norm")
    want = expected(module, x, w)
    loss = (w * module(x)).sum()
    for _ in range(2):
        x.grad = None
        module.zero_grad()
        loss.backward(retain_graph=True)
        assert_same(gradients(module, x), want)
    assert torch.equal(w, make("layer_norm")[2])
