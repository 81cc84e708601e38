"""Norms under activation checkpointing, which runs a forward pass a second time in backward."""

import copy
import importlib

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from planish import nn as pnn

CHECKPOINTS = pytest.mark.parametrize("use_reentrant", [True, False])


def online(seed=0, schedule="constant"):
    torch.manual_seed(seed)
    norm = pnn.OnlineLayerNorm(6, alpha=0.5, schedule=schedule)
    return nn.Sequential(nn.Linear(4, 6), norm, nn.Tanh(), nn.Linear(6, 4))


class Sine(nn.Module):
    def forward(self, x):
        return x.sin()


def gradients(loss, module, *inputs):
    return torch.autograd.grad(loss, [*module.parameters(), *inputs])


def assert_equal(found, expected):
    for a, b in zip(found, expected, strict=True):
        assert torch.equal(a, b)


def batches(count):
    return [torch.randn(5, 4, requires_grad=True) for _ in range(count)]


@CHECKPOINTS
@pytest.mark.parametrize("schedule", ["constant", "inverse", "warmup"])
def test_gradients_match_those_without_a_checkpoint(use_reentrant, schedule):
    plain = online(schedule=schedule)
    module = copy.deepcopy(plain)
    xs = batches(3)
    for x in xs:  # the state changes at each step
        y, expected = checkpoint(module, x, use_reentrant=use_reentrant), plain(x)
        assert torch.equal(y, expected)
        y.square().sum().backward()
        found = [p.grad.clone() for p in module.parameters()] + [x.grad.clone()]
        x.grad = None
        module.zero_grad()
        assert_equal(found, gradients(expected.square().sum(), plain, x))
        assert torch.equal(module[1].state, plain[1].state)


@CHECKPOINTS
@pytest.mark.parametrize("same_input", [True, False])
def test_several_calls_before_one_backward(use_reentrant, same_input):
    plain = online()
    module = copy.deepcopy(plain)
    xs = batches(1) * 4 if same_input else batches(4)
    ys = [checkpoint(module, x, use_reentrant=use_reentrant) for x in xs]
    expected = [plain(x) for x in xs]
    sum((i + 1) * y.square().sum() for i, y in enumerate(expected)).backward()
    wanted = [p.grad for p in plain.parameters()] + [x.grad.clone() for x in xs]
    for x in xs:
        x.grad = None
    sum((i + 1) * y.square().sum() for i, y in enumerate(ys)).backward()
    assert_equal([p.grad for p in module.parameters()] + [x.grad for x in xs], wanted)
    assert torch.equal(module[1].state, plain[1].state)


@CHECKPOINTS
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_backward_in_any_order(use_reentrant, order):
    plain = online()
    module = copy.deepcopy(plain)
    (x,) = batches(1)
    ys = [checkpoint(module, x, use_reentrant=use_reentrant) for _ in range(3)]
    expected = [plain(x) for _ in range(3)]
    for i in order:
        wanted = gradients(expected[i].square().sum(), plain)
        module.zero_grad()
        ys[i].square().sum().backward()
        assert_equal([p.grad for p in module.parameters()], wanted)


@CHECKPOINTS
def test_several_calls_in_one_region(use_reentrant):
    plain = online()
    module = copy.deepcopy(plain)

    def twice(net):
        return lambda x: net(net(x))

    (x,) = batches(1)
    checkpoint(twice(module), x, use_reentrant=use_reentrant).square().sum().backward()
    assert_equal([p.grad for p in module.parameters()], gradients(twice(plain)(x).square().sum(), plain))
    assert torch.equal(module[1].state, plain[1].state)


@CHECKPOINTS
def test_equal_inputs_in_one_region_are_an_error(use_reentrant):
    module = online()
    (x,) = batches(1)
    y = checkpoint(lambda x: module(x) + module(x), x, use_reentrant=use_reentrant)
    with pytest.raises(RuntimeError, match=r"\[OnlineLayerNorm\] cannot run a checkpointed .* had this input"):
        y.sum().backward()


def test_backward_twice():
    plain = online()
    module = copy.deepcopy(plain)
    (x,) = batches(1)
    y, expected = checkpoint(module, x, use_reentrant=False), plain(x)
    for retain in (True, False):
        found = torch.autograd.grad(y.sum(), list(module.parameters()), retain_graph=retain)
        assert_equal(found, torch.autograd.grad(expected.sum(), list(plain.parameters()), retain_graph=retain))
    assert torch.equal(module[1].state, plain[1].state)


class Triple(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 3 * x

    @staticmethod
    def backward(ctx, dy):
        return 3 * dy


@CHECKPOINTS
def test_regions_with_python_functions_and_nested_regions(use_reentrant):
    """Checkpointed regions that contain Python functions and other regions."""
    plain = online()
    module = copy.deepcopy(plain)
    (x,) = batches(1)

    def region(net, run):
        return lambda x: run(net, Triple.apply(run(net, Triple.apply(x))))

    def again(net, x):
        return checkpoint(net, x, use_reentrant=use_reentrant)

    ys = [again(region(module, again), x) for _ in range(2)]
    expected = [region(plain, lambda net, x: net(x))(x) for _ in range(2)]
    (ys[0] - 2 * ys[1]).square().sum().backward()
    wanted = gradients((expected[0] - 2 * expected[1]).square().sum(), plain)
    assert_equal([p.grad for p in module.parameters()], wanted)
    assert torch.equal(module[1].state, plain[1].state)


@pytest.mark.long
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@CHECKPOINTS
def test_checkpoints_of_compiled_modules(use_reentrant, backend):
    torch._dynamo.reset()
    plain = online()
    module = copy.deepcopy(plain)
    compiled = torch.compile(module, backend=backend)
    for x in batches(3):
        y = checkpoint(compiled, x, use_reentrant=use_reentrant)
        expected = plain(x)
        module.zero_grad()
        y.square().sum().backward()
        for p, wanted in zip(module.parameters(), gradients(expected.square().sum(), plain)):
            torch.testing.assert_close(p.grad, wanted, rtol=1e-5, atol=1e-5)  # the compiler fuses sums
        torch.testing.assert_close(module[1].state, plain[1].state, rtol=1e-6, atol=1e-6)


@CHECKPOINTS
def test_compiled_checkpoints(use_reentrant):
    torch._dynamo.reset()
    plain = online()
    module = copy.deepcopy(plain)
    compiled = torch.compile(lambda x: checkpoint(module, x, use_reentrant=use_reentrant))
    for x in batches(3):
        y, expected = compiled(x), plain(x)
        module.zero_grad()
        y.square().sum().backward()
        for p, wanted in zip(module.parameters(), gradients(expected.square().sum(), plain)):
            torch.testing.assert_close(p.grad, wanted, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(module[1].state, plain[1].state, rtol=1e-6, atol=1e-6)


def test_logged_calls_end_with_their_graph():
    log = importlib.import_module("planish.nn._recomputation")._calls
    log.clear()
    module = online()
    for _ in range(3):
        (x,) = batches(1)
        checkpoint(module, x, use_reentrant=False).sum().backward()
        assert len(log) <= 2  # the two runs of the last call
    module(x).sum().backward()
    assert len(log) <= 2  # without a checkpoint nothing is logged


@CHECKPOINTS
@pytest.mark.parametrize("name", ["BatchNorm1d", "LayerNorm"])
def test_other_norms_match_torch_nn(name, use_reentrant):
    """Running estimates are updated twice, as those of torch.nn are."""
    ours, theirs = getattr(pnn, name)(4), getattr(nn, name)(4)
    (x,) = batches(1)
    results = []
    for module in (ours, theirs):
        # The sine saves its input, so that the second run includes the norm.
        region = nn.Sequential(module, Sine())
        checkpoint(region, x, use_reentrant=use_reentrant).sum().backward()
        results.append([x.grad, *(p.grad for p in module.parameters()), *module.buffers()])
        x.grad = None
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)  # float, a few roundings each
