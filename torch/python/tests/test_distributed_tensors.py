"""Modules under PyTorch's distributed engines, in two processes that share one run of all checks."""

import copy
import traceback

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import planish
import planish.functional as PF
from planish import nn as pnn

distributed = pytest.mark.skipif(
    not torch.distributed.is_available() or not torch.distributed.is_gloo_available(),
    reason="this PyTorch has no torch.distributed with gloo",
)
WORLD = 2
CHECKS = {}


def check(function):
    CHECKS[function.__name__] = function
    return function


def close(found, expected):
    if hasattr(found, "full_tensor"):
        found = found.full_tensor()
    # The kernels are the same. Sums over rows are two partial sums, each rounded to the parameter's
    # type; in 16 bits they are below 8.
    tolerance = 1e-5 if expected.dtype.itemsize > 2 else 8 * torch.finfo(expected.dtype).eps
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def draw(module):
    for i, parameter in enumerate(module.parameters()):
        nn.init.normal_(parameter, generator=torch.Generator().manual_seed(i))
    return module


def distribute(module, mesh):
    from torch.distributed.tensor import distribute_module

    return distribute_module(copy.deepcopy(module), mesh)  # parameters are replicated


def compare(module, x, mesh, placement):
    """Compares a module on a sharded x and on the whole x, with gradients."""
    from torch.distributed.tensor import distribute_tensor

    whole = x.clone().requires_grad_()
    y = module(whole)
    y.sin().sum().backward()
    expected = [y, whole.grad, *(p.grad for p in module.parameters())]
    module.zero_grad()
    sharded = distribute(module, mesh)
    part = distribute_tensor(x, mesh, [placement]).requires_grad_()
    z = sharded(part)
    z.sin().sum().backward()
    for a, b in zip([z, part.grad, *(p.grad for p in sharded.parameters())], expected, strict=True):
        close(a, b)
    return z


@check
def sequence_parallel_is_that_of_torch_nn(mesh):
    from torch.distributed.tensor import Partial, Shard, distribute_tensor
    from torch.distributed.tensor.parallel import SequenceParallel, parallelize_module

    x = normal(3, 6, 8)
    results = []
    for module in (
        nn.Sequential(nn.LayerNorm(8), nn.Dropout(0.0), nn.RMSNorm(8)),
        nn.Sequential(pnn.LayerNorm(8), nn.Dropout(0.0), pnn.RMSNorm(8)),
    ):
        plan = {"0": SequenceParallel(), "1": SequenceParallel(), "2": SequenceParallel()}
        parallel = parallelize_module(draw(module), mesh, plan)
        part = distribute_tensor(x, mesh, [Shard(1)]).requires_grad_()
        y = parallel(part)
        assert y.placements == (Shard(1),)
        y.sin().sum().backward()
        gradients = [p.grad for p in parallel.parameters()]
        assert all(g.placements == (Partial(),) for g in gradients)
        results.append([y, part.grad, *gradients])
    for ours, theirs in zip(*results, strict=True):
        close(ours, theirs.full_tensor())


ROWS = (pnn.LayerNorm, pnn.RMSNorm, pnn.LayerNormSimple, pnn.DetachNorm, pnn.AdaNorm,
        lambda shape: pnn.RowNorm(shape, "layer"), pnn.DyT, pnn.Derf)  # fmt: skip


@check
def rows_are_sharded(mesh):
    from torch.distributed.tensor import Replicate, Shard

    for make in ROWS:
        for placement in (Shard(0), Shard(1), Replicate()):
            y = compare(draw(make(8)), normal(5, 4, 8), mesh, placement)  # 5 rows are split into 3 and 2
            assert y.placements == (placement,), (make, placement)


@check
def a_sharded_row_is_put_together(mesh):
    from torch.distributed.tensor import Shard

    for make in ROWS:
        compare(draw(make(8)), normal(5, 4, 8), mesh, Shard(2))


@check
def several_normalized_dimensions(mesh):
    from torch.distributed.tensor import Shard

    compare(draw(pnn.LayerNorm((4, 8))), normal(6, 4, 8), mesh, Shard(0))


@check
def channels_are_normalized_where_positions_are_sharded(mesh):
    from torch.distributed.tensor import Shard

    for dim in (0, 2, 1):
        y = compare(draw(pnn.LayerNorm1d(4)), normal(6, 4, 8), mesh, Shard(dim))
        assert dim == 1 or y.placements == (Shard(dim),)


@check
def groups_are_normalized_where_samples_are_sharded(mesh):
    from torch.distributed.tensor import Shard

    for make in (lambda: pnn.GroupNorm(2, 4), lambda: pnn.InstanceNorm1d(4, affine=True)):
        for dim in (0, 1, 2):
            y = compare(draw(make()), normal(6, 4, 8), mesh, Shard(dim))
            assert dim != 0 or y.placements == (Shard(0),)


@check
def batch_norm_is_sharded_over_channels(mesh):
    from torch.distributed.tensor import Shard

    for dim in (0, 1):
        compare(draw(pnn.BatchNorm1d(4, track_running_stats=False)), normal(6, 4, 8), mesh, Shard(dim))


@check
def sums_with_a_residual(mesh):
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    x, residual, weight, bias = normal(5, 4, 8), normal(5, 4, 8, seed=1), normal(8, seed=2), normal(8, seed=3)
    whole = [t.clone().requires_grad_() for t in (x, residual, weight, bias)]
    ys = PF.add_layer_norm(*whole[:2], [8], *whole[2:])
    expected = torch.autograd.grad(ys[0].sin().sum() + ys[1].cos().sum(), whole)
    with torch.no_grad():
        parts = [distribute_tensor(t, mesh, [Shard(1)]) for t in (x, residual)]
        parts += [distribute_tensor(t, mesh, [Replicate()]) for t in (weight, bias)]
        for a, b in zip(PF.add_layer_norm(*parts[:2], [8], *parts[2:]), ys):
            close(a, b)
    leaves = [t.requires_grad_() for t in parts]
    zs = PF.add_layer_norm(*leaves[:2], [8], *leaves[2:])
    for a, b in zip([*zs, *torch.autograd.grad(zs[0].sin().sum() + zs[1].cos().sum(), leaves)], [*ys, *expected]):
        close(a, b)


@check
def gates(mesh):
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    x, gate, weight, bias = normal(5, 4, 8), normal(5, 4, 8, seed=1), normal(8, seed=2), normal(8, seed=3)
    for before in (True, False):

        def norm(x, gate, weight, bias, before=before):
            return PF.layer_norm(x, [8], weight, bias, gate=gate, norm_before_gate=before)

        whole = [t.clone().requires_grad_() for t in (x, gate, weight, bias)]
        y = norm(*whole)
        expected = torch.autograd.grad(y.sin().sum(), whole)
        with torch.no_grad():
            parts = [distribute_tensor(t, mesh, [Shard(1)]) for t in (x, gate)]
            parts += [distribute_tensor(t, mesh, [Replicate()]) for t in (weight, bias)]
            close(norm(*parts), y)
        leaves = [t.requires_grad_() for t in parts]
        z = norm(*leaves)
        for a, b in zip([z, *torch.autograd.grad(z.sin().sum(), leaves)], [y, *expected]):
            close(a, b)


@check
def several_gains(mesh):
    """A weight or bias that broadcasts to x is sharded or replicated."""
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    for shape, placement in (
        ((5, 1, 8), Shard(0)),  # a gain for each sample
        ((5, 1, 8), Replicate()),
        ((4, 8), Shard(0)),  # a gain for each head
        ((4, 8), Replicate()),
    ):
        x, weight, bias = normal(5, 4, 8), normal(*shape, seed=2), normal(*shape, seed=3)
        for has_weight in (True, False):
            for dim in (0, 1):
                whole = [t.clone().requires_grad_() for t in (x, weight, bias)]
                leaves = [
                    distribute_tensor(x, mesh, [Shard(dim)]).requires_grad_(),
                    *(distribute_tensor(t, mesh, [placement]).requires_grad_() for t in (weight, bias)),
                ]
                if not has_weight:
                    whole[1] = leaves[1] = None
                y, z = PF.layer_norm(whole[0], [8], *whole[1:]), PF.layer_norm(leaves[0], [8], *leaves[1:])
                close(z, y)
                wanted, found = ([t for t in some if t is not None] for some in (whole, leaves))
                for a, b in zip(
                    torch.autograd.grad(z.sin().sum(), found), torch.autograd.grad(y.sin().sum(), wanted), strict=True
                ):
                    close(a, b)


@check
def inference_and_training_alternate(mesh):
    """PyTorch caches its findings about an operator by the shapes of its inputs."""
    from torch.distributed.tensor import Shard, distribute_tensor

    module = draw(pnn.LayerNorm(8))
    x = normal(7, 8)
    sharded = distribute(module, mesh)
    part = distribute_tensor(x, mesh, [Shard(0)])
    for _ in range(2):
        with torch.no_grad():
            close(sharded(part), module(x))
        compare(module, x, mesh, Shard(0))
        frozen = distribute(module, mesh).requires_grad_(False)
        leaf = distribute_tensor(x, mesh, [Shard(0)]).requires_grad_()
        (dx,) = torch.autograd.grad(frozen(leaf).sin().sum(), leaf)
        whole = x.clone().requires_grad_()
        close(dx, torch.autograd.grad(module(whole).sin().sum(), whole)[0])
        inputs = distribute_tensor(x, mesh, [Shard(0)])
        gradients = torch.autograd.grad(sharded(inputs).sin().sum(), list(sharded.parameters()))
        for a, b in zip(gradients, torch.autograd.grad(module(x).sin().sum(), list(module.parameters()))):
            close(a, b)


@check
def a_gradient_with_another_placement(mesh):
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    module, x, dy = draw(pnn.LayerNorm(8)), normal(4, 6, 8), normal(4, 6, 8, seed=5)
    whole = x.clone().requires_grad_()
    expected = torch.autograd.grad(module(whole), [whole, *module.parameters()], dy)
    sharded = distribute(module, mesh)
    for placement in (Shard(0), Shard(1), Replicate()):
        for other in (Replicate(), Shard(0), Shard(1), Shard(2)):
            part = distribute_tensor(x, mesh, [placement]).requires_grad_()
            gradient = distribute_tensor(dy, mesh, [other])
            found = torch.autograd.grad(sharded(part), [part, *sharded.parameters()], gradient)
            for a, b in zip(found, expected, strict=True):
                close(a, b)


@check
def compiled_modules(mesh):
    from torch.distributed.tensor import Shard, distribute_tensor

    module = draw(nn.Sequential(pnn.LayerNorm(8), pnn.RMSNorm(8)))
    sharded = torch.compile(distribute(module, mesh), backend="aot_eager", fullgraph=True)
    x = normal(6, 4, 8)
    whole = x.clone().requires_grad_()
    part = distribute_tensor(x, mesh, [Shard(1)]).requires_grad_()
    y, z = sharded(part), module(whole)
    close(y, z)
    found = torch.autograd.grad(y.sin().sum(), [part, *sharded.parameters()])
    for a, b in zip(found, torch.autograd.grad(z.sin().sum(), [whole, *module.parameters()]), strict=True):
        close(a, b)


@check
def sixteen_bit_weights(mesh):
    from torch.distributed.tensor import Shard

    compare(draw(pnn.RMSNorm(8)).bfloat16(), normal(5, 8), mesh, Shard(0))


class Tagger(nn.Module):
    """Norms, a recurrent layer and a projection: x [B, T, 6] -> [B, T, 3]."""

    def __init__(self, recompute=False):
        super().__init__()
        self.recompute = recompute
        self.norm = pnn.RMSNorm(6)
        self.rnn = pnn.LayerNormLSTM(6, 5, batch_first=True)
        self.out = nn.Sequential(pnn.LayerNorm(5), nn.Linear(5, 3), pnn.AdaNorm(3))

    def forward(self, x):
        x = self.norm(x)
        y = checkpoint(self.rnn, x, use_reentrant=False)[0] if self.recompute else self.rnn(x)[0]
        return self.out(y)


def share(x):
    """Returns the part of a batch that this process has."""
    return x.chunk(WORLD)[torch.distributed.get_rank()]


def train(model, x, updates=3):
    """Returns the parameters by name after some updates on x."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(updates):
        optimizer.zero_grad()
        model(x).sin().mean().backward()
        optimizer.step()
    return {name.removeprefix("module."): p.detach() for name, p in model.named_parameters()}


def assert_trains_alike(make, module, x):
    """Compares training by both processes, each on its half of x, with that on the whole x."""
    expected = train(copy.deepcopy(module), x)
    found = train(make(copy.deepcopy(module)), share(x))
    assert found.keys() == expected.keys()
    for name, value in found.items():
        close(value, expected[name])


@check
def data_parallel_training(mesh):
    from torch.nn.parallel import DistributedDataParallel

    for recompute in (False, True):
        for options in ({}, {"gradient_as_bucket_view": True, "static_graph": True}):
            make = lambda module, options=options: DistributedDataParallel(module, **options)
            assert_trains_alike(make, draw(Tagger(recompute)), normal(6, 4, 6))


@check
def fully_sharded_training(mesh):
    from torch.distributed.fsdp import fully_shard

    def shard(module, reshard):
        for part in (module.rnn, module.out):
            fully_shard(part, mesh=mesh, reshard_after_forward=reshard)
        return fully_shard(module, mesh=mesh, reshard_after_forward=reshard)

    for recompute in (False, True):
        for reshard in (True, False):
            assert_trains_alike(lambda module, r=reshard: shard(module, r), draw(Tagger(recompute)), normal(6, 4, 6))


@check
def data_parallel_autocast(mesh):
    from torch.nn.parallel import DistributedDataParallel

    module, x = draw(Tagger()), normal(6, 4, 6)
    with torch.autocast("cpu", torch.bfloat16):
        expected = module(x)
    expected.float().sin().mean().backward()
    parallel = DistributedDataParallel(copy.deepcopy(module))
    parallel.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        y = parallel(share(x))
    assert y.dtype == expected.dtype
    torch.testing.assert_close(y, share(expected))
    y.float().sin().mean().backward()
    for a, b in zip(parallel.parameters(), module.parameters(), strict=True):
        # Products of 16 bits with other numbers of rows; each gradient is a mean of two.
        torch.testing.assert_close(a.grad, b.grad, rtol=0.05, atol=2e-3)


@check
def averaged_weights_of_a_data_parallel_model(mesh):
    from torch.nn.parallel import DistributedDataParallel
    from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

    parallel = DistributedDataParallel(draw(Tagger()))
    average = AveragedModel(parallel.module, multi_avg_fn=get_ema_multi_avg_fn(0.75))
    expected = None
    for step in range(3):
        train(parallel, share(normal(6, 4, 6, seed=step)), updates=1)
        average.update_parameters(parallel.module)
        now = [p.detach().clone() for p in parallel.parameters()]
        expected = [0.75 * e + 0.25 * n for e, n in zip(expected, now, strict=True)] if expected else now
    for a, b in zip(average.module.parameters(), expected, strict=True):
        close(a, b)
    x = normal(2, 4, 6)
    state = average.module.state_dict()
    other = Tagger()
    other.load_state_dict(state)
    with torch.no_grad():
        close(average(x), other(x))


def worker(rank, folder):
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=WORLD
    )
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (WORLD,))
    results = {}
    for name, function in CHECKS.items():
        try:
            function(mesh)
            results[name] = None
        except Exception:
            results[name] = traceback.format_exc()
    torch.save(results, f"{folder}/{rank}.pt")
    torch.distributed.destroy_process_group()


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("processes")
    torch.multiprocessing.spawn(worker, (str(folder),), nprocs=WORLD)
    return [torch.load(folder / f"{rank}.pt") for rank in range(WORLD)]


@pytest.mark.long
@distributed
@pytest.mark.parametrize("name", CHECKS)
def test_two_processes(name, outcomes):
    for rank, results in enumerate(outcomes):
        assert results[name] is None, f"rank {rank}: {results[name]}"


@pytest.mark.long
@distributed
@pytest.mark.parametrize(
    "order",
    [
        "import planish, torch.distributed.tensor",
        "import torch.distributed.tensor, planish",
        "import planish, importlib.util; importlib.util.find_spec('torch.distributed.tensor')",
    ],
)
def test_rules_are_registered_for_any_order_of_imports(python, order):
    program = f"""
import sys, torch
{order}
from torch.distributed.tensor import DTensor
known = DTensor._op_dispatcher.sharding_propagator.op_strategy_funcs
assert torch.ops.planish.norm_forward.default in known
"""
    assert python(program).returncode == 0


@pytest.mark.long
def test_importing_the_package_does_not_import_dtensor(python):
    program = "import planish, sys; assert 'torch.distributed.tensor' not in sys.modules"
    assert python(program).returncode == 0
    assert planish.__version__
