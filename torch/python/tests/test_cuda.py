"""The norms and recurrent layers on a GPU, compared with the same modules on the CPU.

Skipped without a GPU.
"""

import copy

import pytest
import torch
from torch import nn

import planish

cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")

NORMS = {
    "layer": planish.nn.LayerNorm,
    "layer without parameters": lambda n: planish.nn.LayerNorm(n, elementwise_affine=False),
    "rms": planish.nn.RMSNorm,
    "simple": planish.nn.LayerNormSimple,
    "detach": planish.nn.DetachNorm,
    "detach mean": lambda n: planish.nn.DetachNorm(n, std=False),
    "ada": planish.nn.AdaNorm,
    "ada as coded": lambda n: planish.nn.AdaNorm(n, as_coded=True),
}
SHAPES = ((5, 3), (64, 64), (3, 7, 100), (300, 769), (128, 1024), (9, 4095), (40, 8192), (3, 65536), (2, 100001))
# Both sides round each result once, and sums over a row differ in their last bits.
TOLERANCES = {torch.float32: 2e-5, torch.float64: 1e-12, torch.bfloat16: 2e-2, torch.float16: 2e-3}


def filled(module):
    for parameter in module.parameters():
        nn.init.normal_(parameter, 1, 0.25)
    return module


def results(module, x, dy):
    x = x.clone().requires_grad_()
    y = module(x)
    y.backward(dy)
    return [y.detach(), x.grad, *(p.grad for p in module.parameters())]


def close(found, expected, tolerance):
    """Compares relative to the largest element of each result."""
    for one, other in zip(found, expected, strict=True):
        one, other = one.cpu().double(), other.cpu().double()
        assert (one - other).abs().max() <= tolerance * max(other.abs().max(), 1)


def in_a_graph(step):
    """Captures a graph of step() after one run of it. Returns the graph and its results."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    return graph, captured


@cuda
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("name", NORMS)
def test_agrees_with_the_cpu(name, dtype):
    for shape in SHAPES:
        module = filled(NORMS[name](shape[-1])).to(dtype)
        x, dy = torch.randn(shape, dtype=dtype), torch.randn(shape, dtype=dtype)
        expected = results(copy.deepcopy(module), x, dy)
        found = results(module.cuda(), x.cuda(), dy.cuda())
        close(found, expected, TOLERANCES[dtype])


@cuda
def test_parameters_of_float_for_halves():
    x, dy = torch.randn(33, 768, dtype=torch.bfloat16), torch.randn(33, 768, dtype=torch.bfloat16)
    module = filled(planish.nn.LayerNorm(768))
    expected = results(copy.deepcopy(module), x, dy)
    close(results(module.cuda(), x.cuda(), dy.cuda()), expected, 2e-2)


@cuda
def test_sum_and_norm_match_torch():
    x, residual = torch.randn(65, 1000, device="cuda"), torch.randn(65, 1000, device="cuda")
    x.requires_grad_(), residual.requires_grad_()
    weight = torch.randn(1000, device="cuda", requires_grad=True)
    y, total = planish.functional.add_layer_norm(x, residual, (1000,), weight)
    assert torch.equal(total, x + residual)
    expected = nn.functional.layer_norm(x + residual, (1000,), weight)
    loss = lambda y, total: (y * y.detach().sin() + total * total.detach().cos()).sum()  # noqa: E731
    found = torch.autograd.grad(loss(y, total), (x, residual, weight))
    other = torch.autograd.grad(loss(expected, x + residual), (x, residual, weight))
    close([y.detach(), *found], [expected.detach(), *other], 2e-5)


IMAGES = {
    "layer over channels": planish.nn.LayerNorm2d,
    "batch": planish.nn.BatchNorm2d,
    "batch, unbiased": lambda n: planish.nn.BatchNorm2d(n, unbiased=True),
}


@cuda
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("name", IMAGES)
def test_images_agree_with_the_cpu(name, dtype):
    for shape in ((2, 3, 5, 7), (8, 96, 28, 28), (4, 256, 14, 14), (3, 1, 1, 9), (64, 33, 1, 1)):
        for layout in (torch.contiguous_format, torch.channels_last):
            module = filled(IMAGES[name](shape[1])).to(dtype)
            there = copy.deepcopy(module).cuda()
            x, dy = (torch.randn(shape, dtype=dtype).contiguous(memory_format=layout) for _ in range(2))
            close(results(there, x.cuda(), dy.cuda()), results(module, x, dy), TOLERANCES[dtype])
            close(there.buffers(), module.buffers(), TOLERANCES[dtype])
            module.eval(), there.eval()
            close(results(there, x.cuda(), dy.cuda()), results(module, x, dy), TOLERANCES[dtype])


@cuda
@pytest.mark.parametrize("dtype", (torch.float32, torch.float64), ids=str)
def test_online_and_weight_norm_agree_with_the_cpu(dtype):
    x, dy = torch.randn(17, 33, dtype=dtype), torch.randn(17, 33, dtype=dtype)
    module = filled(planish.nn.OnlineLayerNorm(33)).to(dtype)
    there = copy.deepcopy(module).cuda()
    close(results(there, x.cuda(), dy.cuda()), results(module, x, dy), TOLERANCES[dtype])
    close(there.buffers(), module.buffers(), TOLERANCES[dtype])
    for dim in (0, 1, -1):
        module = nn.Linear(33, 65, dtype=dtype)
        there = copy.deepcopy(module).cuda()
        for each in (module, there):
            nn.utils.parametrize.register_parametrization(each, "weight", planish.nn.WeightNorm(dim))
        dy = torch.randn(17, 65, dtype=dtype)
        close(results(there, x.cuda(), dy.cuda()), results(module, x, dy), TOLERANCES[dtype])


RECURRENT = {
    "rnn": planish.nn.LayerNormRNN,
    "lstm": planish.nn.LayerNormLSTM,
    "haste": lambda *sizes: planish.nn.LayerNormLSTM(*sizes, variant="haste"),
    "two layers, both directions": lambda *sizes: planish.nn.LayerNormLSTM(*sizes, num_layers=2, bidirectional=True),
    "gru": planish.nn.LayerNormGRU,
    "slstm": lambda *sizes: planish.nn.LayerNormLSTM(*sizes, variant="slstm"),
}


@cuda
@pytest.mark.parametrize("dtype", (torch.float32, torch.float64), ids=str)
@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_layers_agree_with_the_cpu(name, dtype):
    # Norms of a few elements amplify a rounding, here up to a hundredfold.
    tolerance = 100 * TOLERANCES[dtype]
    for time, batch, inputs, hidden in ((1, 1, 3, 5), (12, 3, 7, 33), (20, 16, 64, 256), (6, 80, 20, 40)):
        module = RECURRENT[name](inputs, hidden).to(dtype)
        there = copy.deepcopy(module).cuda()
        x, dy = torch.randn(time, batch, inputs, dtype=dtype), None
        for training in (True, False):
            module.train(training), there.train(training)
            y, found = module(x)[0], there(x.cuda())[0]
            dy = torch.randn_like(y)
            expected = torch.autograd.grad(y, [*module.parameters()], dy)
            close(torch.autograd.grad(found, [*there.parameters()], dy.cuda()), expected, tolerance)
            close([found.detach()], [y.detach()], tolerance)


@cuda
def test_recurrent_lengths_resets_and_steps_agree_with_the_cpu():
    module = planish.nn.LayerNormLSTM(7, 20)
    there = copy.deepcopy(module).cuda()
    x, lengths, resets = torch.randn(9, 4, 7), torch.tensor([9, 3, 1, 5]), torch.rand(9, 4) < 0.2
    expected = module(x, lengths=lengths, resets=resets)[0]
    close([there(x.cuda(), lengths=lengths.cuda(), resets=resets.cuda())[0]], [expected], 2e-4)
    packed = nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
    close([there(packed.to("cuda"))[0].data], [module(packed)[0].data], 2e-4)
    cell = planish.nn.LayerNormGRUCell(7, 20)
    expected = cell(x[0])
    close([cell.cuda()(x[0].cuda())], [expected], 2e-4)


@cuda
@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float16), ids=str)
def test_recurrent_layers_of_sixteen_bits_agree_with_the_cpu(dtype):
    # Both sides compute in float and round. The norms' sums have another order, which changes the
    # last place.
    for batch_first in (False, True):
        module = planish.nn.LayerNormLSTM(24, 40, batch_first=batch_first).to(dtype)
        there = copy.deepcopy(module).cuda()
        x = torch.randn(12, 6, 24, dtype=dtype)
        y, found = module(x)[0], there(x.cuda())[0]
        dy = torch.randn_like(y)
        expected = torch.autograd.grad(y, [*module.parameters()], dy)
        close([found.detach()], [y.detach()], TOLERANCES[dtype])
        close(torch.autograd.grad(found, [*there.parameters()], dy.cuda()), expected, 2 * TOLERANCES[dtype])


# Many steps of the persistent kernel, whose blocks run in any order, and more sequences than its
# backward can take.
@cuda
@pytest.mark.parametrize("batch", (16, 48))
@pytest.mark.parametrize("name", ("rnn", "lstm", "gru"))
def test_recurrence_repeats_its_bits(name, batch):
    module = RECURRENT[name](64, 256).cuda()
    x = torch.randn(200, batch, 64, device="cuda", requires_grad=True)
    step = lambda: torch.autograd.grad(module(x)[0].square().sum(), [x, *module.parameters()])  # noqa: E731
    first = step()
    for _ in range(5):
        assert all(torch.equal(a, b) for a, b in zip(first, step()))


@cuda
def test_recurrence_in_a_graph():
    module = planish.nn.LayerNormLSTM(32, 64).cuda()
    x = torch.randn(5, 8, 32, device="cuda")
    step = lambda: torch.autograd.grad(module(x)[0].square().sum(), [*module.parameters()])  # noqa: E731
    graph, captured = in_a_graph(step)
    x.normal_()
    graph.replay()
    assert all(torch.equal(a, b) for a, b in zip(captured, step()))


@cuda
def test_exact_at_any_mean():
    for mean in (1e3, 1e5, 1e6):
        x = torch.randn(64, 1024, device="cuda") + mean
        expected = nn.functional.layer_norm(x.double(), (1024,))
        close([planish.functional.layer_norm(x, (1024,))], [expected], 1e-5)


@cuda
def test_rows_with_a_stride():
    x = torch.randn(40, 130, device="cuda")[:, :128]
    close([planish.functional.layer_norm(x, (128,))], [nn.functional.layer_norm(x, (128,))], 2e-5)
    x = torch.randn(6, 128, 5, device="cuda").transpose(1, 2)
    close([planish.functional.layer_norm(x, (128,))], [nn.functional.layer_norm(x, (128,))], 2e-5)


@cuda
@pytest.mark.parametrize("shape", ((100_000, 64), (4096, 1024), (4, 65536)))
def test_repeated_calls_have_the_same_bits(shape):
    module = filled(planish.nn.LayerNorm(shape[-1])).cuda()
    x, dy = torch.randn(shape, device="cuda"), torch.randn(shape, device="cuda")
    first = results(copy.deepcopy(module), x, dy)
    for _ in range(5):
        again = results(copy.deepcopy(module), x, dy)
        assert all(torch.equal(a, b) for a, b in zip(first, again))


@cuda
def test_on_another_stream():
    x = torch.randn(1 << 14, 1024, device="cuda")
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(10_000_000)
        z = x * 2
        y = planish.functional.layer_norm(z, (1024,))  # must wait for z, which is computed late
    stream.synchronize()
    close([y], [nn.functional.layer_norm(x * 2, (1024,))], 2e-5)


@cuda
@pytest.mark.parametrize("cols", (100, 1024, 65536))
def test_in_a_graph(cols):
    x = torch.randn(64, cols, device="cuda", requires_grad=True)
    module = filled(planish.nn.LayerNorm(cols)).cuda()
    step = lambda: torch.autograd.grad(module(x).square().sum(), (x, module.weight))  # noqa: E731
    graph, captured = in_a_graph(step)
    with torch.no_grad():
        x.normal_()
    graph.replay()
    assert all(torch.equal(a, b) for a, b in zip(captured, step()))


@cuda
def test_compiles_and_opcheck():
    module = filled(planish.nn.LayerNorm(256)).cuda()
    x = torch.randn(64, 256, device="cuda", requires_grad=True)
    close([torch.compile(module, fullgraph=True)(x).detach()], [module(x).detach()], 2e-5)
    for op, args in (
        (torch.ops.planish.layer_norm.default, (x, [256], module.weight, module.bias)),
        (torch.ops.planish.rms_norm.default, (x, [256], module.weight)),
        (torch.ops.planish.detach_norm.default, (x, [256])),
    ):
        torch.library.opcheck(op, args)


@cuda
def test_autocast():
    module = nn.Sequential(nn.Linear(64, 128), planish.nn.LayerNorm(128)).cuda()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        y = module(torch.randn(32, 64, device="cuda"))
    assert y.dtype == torch.bfloat16
    y.float().sum().backward()
    assert module[1].weight.grad.dtype == torch.float32


@cuda
def test_more_than_2_to_32_elements():
    rows, cols = (1 << 32) // 1024 + 3, 1024
    x = torch.ones(rows, cols, dtype=torch.bfloat16, device="cuda")
    x[-1].copy_(torch.randn(cols))
    y = planish.functional.layer_norm(x, (cols,))
    assert y[:-1].count_nonzero() == 0
    close([y[-1]], [nn.functional.layer_norm(x[-1], (cols,))], 2e-2)


@cuda
def test_devices_must_be_one():
    module = planish.nn.LayerNorm(8)
    with pytest.raises(ValueError, match=r"\[layer_norm\] weight must have x's type or Float, and x's device"):
        module(torch.randn(3, 8, device="cuda"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_pytorch_says_so():
    with pytest.raises((AssertionError, RuntimeError)) as expected:
        torch.nn.LayerNorm(8).cuda()
    with pytest.raises(type(expected.value)) as error:
        planish.nn.LayerNorm(8).cuda()
    assert str(error.value) == str(expected.value)
