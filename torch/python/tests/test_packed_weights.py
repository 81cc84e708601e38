"""Packed weights of recurrent modules. Results are always those of the present parameters."""

import concurrent.futures
import copy
import ctypes
import itertools
import pickle
import threading

import numpy
import pytest
import torch
import torch.fx.experimental.proxy_tensor
from torch import nn

import planish
from planish.nn import (
    LayerNormGRU,
    LayerNormGRUCell,
    LayerNormLSTM,
    LayerNormLSTMCell,
    LayerNormRNN,
    LayerNormRNNCell,
)
from planish.nn import recurrent

I, H = 5, 7  # noqa: E741
VARIANTS = [
    *((LayerNormLSTM, LayerNormLSTMCell, {"variant": v}) for v in recurrent._LSTMS),
    *((LayerNormGRU, LayerNormGRUCell, {"variant": v}) for v in recurrent._GRUS),
    *(
        (LayerNormRNN, LayerNormRNNCell, {"variant": v, "nonlinearity": f})
        for f, variants in recurrent._RNNS.items()
        for v in variants
    ),
]


def maker_of(module, options):
    name = " ".join([module.__name__, *options.values()])
    return pytest.param(lambda: module(I, H, **options), id=name)


LAYERS = [maker_of(layer, options) for layer, _, options in VARIANTS] + [
    pytest.param(lambda: LayerNormLSTM(I, H, 2, bidirectional=True), id="LayerNormLSTM deep"),
    pytest.param(lambda: LayerNormGRU(I, H, 2, batch_first=True), id="LayerNormGRU deep"),
    pytest.param(lambda: LayerNormLSTM(I, H, 2, proj_size=2), id="LayerNormLSTM projected"),
    pytest.param(lambda: LayerNormGRU(I, H, num_heads=H), id="LayerNormGRU heads"),
]
CELLS = [
    maker_of(cell, options) for _, cell, options in VARIANTS if options["variant"] != "batchnorm"
]
SOME_MODULES = [
    pytest.param(lambda: LayerNormLSTM(I, H), id="LayerNormLSTM"),
    pytest.param(lambda: LayerNormLSTMCell(I, H), id="LayerNormLSTMCell"),
    pytest.param(lambda: LayerNormLSTMCell(I, H, proj_size=2), id="LayerNormLSTMCell projected"),
    pytest.param(lambda: LayerNormGRUCell(I, H, variant="plain"), id="LayerNormGRUCell plain"),
]


def is_packed(module):
    return all(layer.packings() > 0 for layer in module._layers.values())


def drawn(module):
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.4)
        if getattr(module, "nonlinearity", "") == "relu":
            parameter.data.abs_()  # so that all units are active
    return module


def bits_of(result):
    """Returns the tensors of a result as integers, so that NaN and the sign of 0 count."""
    if isinstance(result, torch.Tensor):
        size = {2: torch.int16, 4: torch.int32, 8: torch.int64}[result.element_size()]
        return [result.detach().view(size)]
    return [bits for part in result for bits in bits_of(part)]


def expect_same(result, expected):
    for ours, theirs in zip(bits_of(result), bits_of(expected), strict=True):
        assert torch.equal(ours, theirs)


def inputs_of(module):
    """Returns the arguments of a call, with a state for a cell."""
    dtype = next(module.parameters()).dtype
    if not hasattr(module, "steps"):
        return (torch.rand(4, 3, I, dtype=dtype),)
    x = torch.rand(3, module.input_size, dtype=dtype)
    h = torch.rand(3, module.proj_size or H, dtype=dtype)
    if not isinstance(module, LayerNormLSTMCell):
        return x, h
    parts = 2 if module.variant == "slstm" else 1
    return x, (h, torch.rand(3, parts * H, dtype=dtype))


def expect_follows(module, write):
    """Checks that results equal those of a copy with the present parameters, and that writing
    changes them."""
    module.eval()
    x = inputs_of(module)
    with torch.no_grad():
        before = [module(*x), module(*x)][1]
        expect_same(before, copy.deepcopy(module)(*x))
    write(module)
    with torch.no_grad():
        after = module(*x)
        expect_same(after, copy.deepcopy(module)(*x))
        expect_same(module(*x), after)
    return before, after


def expect_changes(module, write):
    before, after = expect_follows(module, write)
    assert not torch.equal(bits_of(before)[0], bits_of(after)[0])


# ---- Writes that bump no version counter


def by_fused(optimizer, **options):
    def write(module):
        for parameter in module.parameters():
            parameter.grad = torch.randn_like(parameter)
        optimizer(module.parameters(), lr=0.1, fused=True, **options).step()

    return write


def by_polyak(module):
    for parameter in module.parameters():
        parameter.data.mul_(0.9).add_(0.1 * torch.randn_like(parameter))


def by_numpy(module):
    for parameter in module.parameters():
        parameter.detach().numpy()[...] *= 1.5


def by_dlpack(module):
    for parameter in module.parameters():
        torch.from_dlpack(parameter.detach()).mul_(1.5)


def by_foreach(module):
    with torch.no_grad():
        torch._foreach_mul_([parameter.data for parameter in module.parameters()], 1.5)
        torch._foreach_add_(list(module.parameters()), 0.1)


def flip_bit(tensor, element=-1, bit=-8):
    """Flips a bit of an element in memory.

    By default this scales the last element by a power of 2, or by 1.5 or less in float16.
    """
    size = tensor.element_size()
    element, bit = element % tensor.numel(), bit % (8 * size)
    address = tensor.data_ptr() + element * size + bit // 8
    byte = ctypes.c_uint8.from_address(address)
    byte.value ^= 1 << bit % 8


def by_address(module):
    for parameter in module.parameters():
        flip_bit(parameter)


WRITERS = {
    "SGD": by_fused(torch.optim.SGD),
    "Adam": by_fused(torch.optim.Adam),
    "AdamW": by_fused(torch.optim.AdamW),
    "Adagrad": by_fused(torch.optim.Adagrad),
    "polyak": by_polyak,
    "numpy": by_numpy,
    "dlpack": by_dlpack,
    "foreach": by_foreach,
    "address": by_address,
}
writers = pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)


@writers
@pytest.mark.parametrize("make", SOME_MODULES)
def test_results_follow_every_writer(make, write):
    expect_changes(drawn(make()), write)


@pytest.mark.parametrize("make", LAYERS + CELLS)
def test_every_module_follows_a_fused_optimizer(make):
    expect_changes(drawn(make()), WRITERS["AdamW"])


@pytest.mark.parametrize("make", LAYERS + CELLS)
def test_a_change_of_any_parameter_is_detected(make):
    module = drawn(make())
    for name, _ in module.named_parameters():
        expect_changes(module, lambda module, name=name: flip_bit(module.get_parameter(name)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_a_change_of_any_bit_is_detected(dtype):
    cell = drawn(LayerNormLSTMCell(I, H)).to(dtype)
    for bit in range(8 * cell.weight_hh.element_size()):
        expect_follows(cell, lambda cell, bit=bit: flip_bit(cell.weight_hh, 17, bit))
        expect_follows(cell, lambda cell, bit=bit: flip_bit(cell.ln_c_bias, 3, bit))


def test_changes_of_the_sign_of_zero_and_of_nan_payloads_are_detected():
    rnn = drawn(LayerNormRNNCell(I, H, variant="plain", nonlinearity="relu"))
    with torch.no_grad():
        rnn.bias_ih.zero_()
        rnn.bias_hh.zero_()
    expect_follows(rnn, lambda rnn: [flip_bit(rnn.bias_ih, k, -1) for k in range(H)])
    expect_follows(rnn, lambda rnn: rnn.weight_ih.data[1, 2].fill_(torch.nan))
    expect_follows(rnn, lambda rnn: flip_bit(rnn.weight_ih, I + 2, 0))


def test_a_parameter_in_the_memory_of_another_is_detected():
    memory = numpy.random.default_rng(1).normal(size=(4 * H, H)).astype(numpy.float32)
    cell = drawn(LayerNormLSTMCell(I, H))
    cell.weight_hh = nn.Parameter(torch.from_numpy(memory))

    def write(cell):
        memory[3:5] *= 2  # not all rows, because the norm would cancel that
        cell.weight_hh = nn.Parameter(torch.from_numpy(memory))

    before = cell.weight_hh.data_ptr()
    expect_changes(cell, write)
    assert cell.weight_hh.data_ptr() == before

    def write_data(cell):
        memory[3:5] *= 2  # not all rows, because the norm would cancel that
        cell.weight_hh.data = torch.from_numpy(memory)

    expect_changes(cell, write_data)


def train_and_act(rank, file, kinds):
    """Sends weights from rank 0 to rank 1, which evaluates them."""
    distributed = torch.distributed
    distributed.init_process_group("gloo", init_method=file, rank=rank, world_size=2)
    torch.manual_seed(rank)
    module = drawn(LayerNormLSTM(I, H))
    for kind in kinds:

        def write(module, kind=kind):
            for parameter in module.parameters():
                if kind == "broadcast":
                    distributed.broadcast(parameter.data, 0)
                elif kind == "all_reduce":
                    distributed.all_reduce(parameter.data)
                elif rank == 0:
                    distributed.send(parameter.data, 1)
                else:
                    distributed.recv(parameter.data, 0)

        if rank == 1 or kind == "all_reduce":
            expect_changes(module, write)
        else:
            write(module)
        drawn(module)
    distributed.destroy_process_group()


@pytest.mark.long
@pytest.mark.skipif(
    not (torch.distributed.is_available() and torch.distributed.is_gloo_available()),
    reason="this PyTorch is built without torch.distributed and gloo",
)
def test_results_follow_collectives(tmp_path):
    kinds = ["broadcast", "all_reduce", "recv"]
    torch.multiprocessing.spawn(train_and_act, ((tmp_path / "store").as_uri(), kinds), nprocs=2)


def test_an_optimizer_in_evaluation_mode_trains():
    """With stale weights, the loss would not change."""
    module = drawn(LayerNormGRU(I, H)).eval()
    adam = torch.optim.AdamW(module.parameters(), lr=0.01, fused=True)
    x, losses = inputs_of(module), []
    for _ in range(4):
        loss = module(*x)[0].square().mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
        with torch.no_grad():
            losses.append(module(*x)[0].square().mean().item())
    assert losses == sorted(losses, reverse=True) and losses[-1] < losses[0]


# ---- Kinds of parameters


def expect_follows_kind(module):
    for write in (by_polyak, by_address, WRITERS["Adam"]):
        expect_changes(module, write)


def test_non_contiguous_parameters():
    cell = drawn(LayerNormLSTMCell(I, H))
    cell.weight_ih = nn.Parameter(torch.randn(I, 4 * H).t())
    cell.weight_hh = nn.Parameter(torch.randn(8 * H, 2 * H)[::2, ::2])
    cell.ln_c_weight = nn.Parameter(torch.randn(1).expand(H))
    assert not cell.weight_hh.is_contiguous()
    expected = copy.deepcopy(cell)
    for parameter in expected.parameters():
        parameter.data = parameter.data.contiguous()
    x = inputs_of(cell)
    with torch.no_grad():
        expect_same(cell.eval()(*x), expected.eval()(*x))
    for name in ("weight_ih", "weight_hh", "ln_c_weight"):
        expect_changes(cell, lambda cell, name=name: flip_bit(cell.get_parameter(name), 0))
    expect_changes(cell, lambda cell: cell.weight_hh.data[3:5].mul_(2))


def test_tied_parameters():
    cell = drawn(LayerNormLSTMCell(H, H))
    cell.weight_hh = cell.weight_ih
    cell.ln_hh_weight = cell.ln_ih_weight
    expect_follows_kind(cell)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_types(dtype):
    expect_follows_kind(drawn(LayerNormGRU(I, H, variant="plain")).to(dtype))


def test_inference_tensors():
    with torch.inference_mode():
        module = drawn(LayerNormLSTM(I, H))
        for write in (by_polyak, by_address):
            expect_changes(module, write)
        assert is_packed(module)  # packed, although no version counter shows their changes


def test_parameters_of_a_subclass():
    class Own(nn.Parameter):
        pass

    cell = drawn(LayerNormLSTMCell(I, H))
    cell.weight_hh = Own(cell.weight_hh.detach())
    expect_follows_kind(cell)
    assert not is_packed(cell)


@pytest.mark.parametrize("variant", ["paper", "plain"])
def test_a_removed_bias_counts_as_zero(variant):
    cell = drawn(LayerNormLSTMCell(I, H, variant=variant))
    zeroed = copy.deepcopy(cell)
    names = [name for name, _ in cell.named_parameters() if name.startswith("bias")]
    for name in names:
        setattr(cell, name, None)
        zeroed.get_parameter(name).data.zero_()
    x = inputs_of(cell)
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            for call, expected in ((cell.eval(), zeroed.eval()), (cell.steps(), zeroed.steps())):
                torch.testing.assert_close(call(*x), expected(*x))


def test_meta_parameters():
    cell = LayerNormLSTMCell(I, H, device="meta").eval()
    cell.freeze()
    with torch.no_grad():
        assert cell(torch.empty(3, I, device="meta"))[0].shape == (3, H)
    cell.to_empty(device="cpu")
    expect_follows_kind(drawn(cell))


@pytest.mark.parametrize(
    "parametrize",
    [
        torch.nn.utils.parametrizations.weight_norm,
        torch.nn.utils.parametrizations.orthogonal,
        torch.nn.utils.parametrizations.spectral_norm,
    ],
    ids=lambda f: f.__name__,
)
def test_parametrized_weights(parametrize):
    cell = drawn(LayerNormGRUCell(I, H))
    x = inputs_of(cell)
    with torch.no_grad():
        cell.eval()(*x)  # packs weights that are not the module's own
    parametrize(cell, "weight_hh")
    expect_follows_kind(cell)
    with torch.no_grad(), torch.nn.utils.parametrize.cached():
        expect_same(cell(*x), cell(*x))
    step = cell.steps()
    expect_same(step(*x), cell(*x))
    flip_bit(next(cell.parametrizations.weight_hh.parameters()))
    with pytest.raises(ValueError, match=r"parametrizations\.weight_hh.* has changed since"):
        step(*x)


def test_functional_calls_use_the_tensors_that_they_get():
    cell = drawn(LayerNormGRUCell(I, H)).eval()
    others = [{k: torch.randn_like(p) for k, p in cell.named_parameters()} for _ in range(2)]
    x = inputs_of(cell)
    with torch.no_grad():
        expected = cell(*x)
        for _ in range(2):
            for other in others:
                loaded = copy.deepcopy(cell)
                loaded.load_state_dict(other)
                expect_same(torch.func.functional_call(cell, other, x), loaded(*x))
            expect_same(cell(*x), expected)


def test_threads_detect_writes():
    module = drawn(LayerNormLSTM(I, 32)).eval()
    x = (torch.randn(20, 3, I),)

    @torch.no_grad()
    def run(_):
        return module(*x)[0]

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for _ in range(10):
            list(pool.map(run, range(8)))
            by_polyak(module)
            expected = copy.deepcopy(module)(*x)[0]
            for result in pool.map(run, range(8)):
                expect_same(result, expected)


# ---- Steps


@writers
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("make", [p for p in SOME_MODULES if "Cell" in p.id])
def test_steps_after_every_writer_are_refused(make, write, training):
    cell = drawn(make()).train(training)
    x = inputs_of(cell)
    with torch.set_grad_enabled(training):
        step = cell.steps()
        step(*x)
        write(cell)
        for _ in range(2):
            with pytest.raises(ValueError, match="has changed since the steps began"):
                step(*x)
        expect_same(cell.steps()(*x), copy.deepcopy(cell)(*x))


@pytest.mark.parametrize("make", CELLS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("grad", [True, False], ids=["grad", "no grad"])
def test_steps_watch_every_parameter(make, dtype, grad):
    cell = drawn(make()).to(dtype)
    x = inputs_of(cell)
    with torch.set_grad_enabled(grad):
        step = cell.steps()
        for name, parameter in cell.named_parameters():
            step(*x)
            flip_bit(parameter)
            with pytest.raises(ValueError, match=f"{name} has changed since"):
                step(*x)
            flip_bit(parameter)  # flips it back
        step(*x)


def test_steps_between_fused_updates_are_refused():
    cell = drawn(LayerNormLSTMCell(I, H))
    adam = torch.optim.AdamW(cell.parameters(), lr=0.01, fused=True)
    x, step = inputs_of(cell), cell.steps()

    def update(step):
        adam.zero_grad()
        loss = step(*x)[0].square().mean()
        loss.backward()
        adam.step()
        return loss.item()

    first = update(step)
    with pytest.raises(ValueError, match="weight_ih has changed since the steps began"):
        update(step)
    losses = [first] + [update(cell.steps()) for _ in range(3)]
    assert losses == sorted(losses, reverse=True) and losses[-1] < losses[0]


# ---- Frozen modules


@pytest.mark.parametrize("make", LAYERS + CELLS)
def test_frozen_modules_compute_the_same(make):
    module = drawn(make()).eval()
    x = inputs_of(module)
    expected = copy.deepcopy(module)(*x)
    with torch.no_grad(), module.frozen():
        for _ in range(2):
            expect_same(module(*x), expected)


@pytest.mark.parametrize("make", SOME_MODULES)
def test_frozen_modules_pack_once(make):
    module = drawn(make()).eval()
    x = inputs_of(module)
    with torch.no_grad():
        module.freeze()
        frozen = module(*x)
        by_address(module)  # which the caller has promised not to do
        expect_same(module(*x), frozen)
        module.unfreeze()
        expect_same(module(*x), copy.deepcopy(module)(*x))
        assert not torch.equal(bits_of(module(*x))[0], bits_of(frozen)[0])


def in_place(module):
    with torch.no_grad():
        next(module.parameters()).mul_(2)


def by_data(module):
    parameter = next(module.parameters())
    parameter.data = parameter.data.clone()


def by_another_parameter(module):
    name, parameter = next(module.named_parameters())
    setattr(module, name, nn.Parameter(parameter.detach().clone()))


def by_a_parametrization(module):
    name, _ = next(module.named_parameters())
    torch.nn.utils.parametrizations.weight_norm(module, name)


@pytest.mark.parametrize(
    "change", [in_place, by_data, by_another_parameter, by_a_parametrization],
    ids=lambda f: f.__name__,
)  # fmt: skip
@pytest.mark.parametrize("make", SOME_MODULES)
def test_changes_of_frozen_modules_raise(make, change):
    module = drawn(make()).eval()
    x = inputs_of(module)
    module.freeze()
    with torch.no_grad():
        module(*x)
    change(module)
    with torch.no_grad():
        for _ in range(2):
            with pytest.raises(RuntimeError, match=r"while the module is frozen: call unfreeze\(\)"):
                module(*x)
        module.unfreeze()
        expect_same(module(*x), copy.deepcopy(module)(*x))


def test_frozen_modules_detect_a_transposed_parameter():
    rnn = drawn(LayerNormRNN(I, H)).eval()
    x = inputs_of(rnn)
    rnn.freeze()
    with torch.no_grad():
        rnn(*x)
        rnn.weight_hh_l0.data = rnn.weight_hh_l0.data.t()  # the address stays the same
        with pytest.raises(RuntimeError, match="weight_hh_l0 has changed while the module is froz"):
            rnn(*x)


def test_changes_of_frozen_modules_name_the_parameter():
    module = drawn(LayerNormLSTM(I, H, 2, bidirectional=True)).eval()
    module.freeze()
    with torch.no_grad():
        module(*inputs_of(module))
        module.ln_c_bias_l1_reverse.add_(1)
        with pytest.raises(RuntimeError, match=r"\[LayerNormLSTM\] ln_c_bias_l1_reverse has chang"):
            module(*inputs_of(module))


@pytest.mark.parametrize(
    "unfreezing",
    [
        lambda module: module.train(),
        lambda module: nn.Sequential(module).train(),
        lambda module: module.load_state_dict(module.state_dict()),
        lambda module: nn.Sequential(module).load_state_dict(
            nn.Sequential(module).state_dict(), assign=True
        ),
        lambda module: module.double().float(),
        lambda module: module.to(torch.float64).to(torch.float32),
        lambda module: module.share_memory(),
    ],
    ids=["train", "train of the model", "load", "assign", "double", "to", "share"],
)
@pytest.mark.parametrize("make", SOME_MODULES)
def test_replacing_parameters_unfreezes(make, unfreezing):
    module = drawn(make()).eval()
    x = inputs_of(module)
    module.freeze()
    with torch.no_grad():
        module(*x)
    unfreezing(module)
    module.eval()
    with torch.no_grad():
        module(*x)
        by_address(module)
        expect_same(module(*x), copy.deepcopy(module)(*x))


def test_copies_are_not_frozen():
    module = drawn(LayerNormLSTM(I, H)).eval()
    x = inputs_of(module)
    module.freeze()
    with torch.no_grad():
        module(*x)
        copies = [copy.deepcopy(module), copy.copy(module), pickle.loads(pickle.dumps(module))]
        for other in copies:
            other(*x)
            by_address(other)
            expect_same(other(*x), copy.deepcopy(other)(*x))
        module.eval()
        frozen = module(*x)
        by_address(module)
        expect_same(module(*x), frozen)  # the module itself is still frozen


def test_copies_of_parametrized_modules_are_not_frozen():
    module = drawn(LayerNormLSTM(I, H)).eval()
    x = inputs_of(module)
    module.freeze()
    with torch.no_grad():
        module(*x)
        torch.nn.utils.parametrizations.weight_norm(module, "weight_hh_l0")
        other = copy.deepcopy(module)
        by_address(other)
        expect_same(other(*x), copy.deepcopy(other)(*x))


def test_frozen_scopes_nest():
    cell = drawn(LayerNormGRUCell(I, H)).eval()
    x = inputs_of(cell)

    def is_frozen():
        before = cell(*x)
        flip_bit(cell.weight_hh)
        return torch.equal(cell(*x), before)

    with torch.no_grad():
        with cell.frozen():
            with cell.frozen():
                assert is_frozen()
            assert is_frozen()
        assert not is_frozen()
        with pytest.raises(KeyError), cell.frozen():
            raise KeyError
        assert not is_frozen()
        cell.freeze()
        with cell.frozen():
            pass
        assert is_frozen()


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_steps_of_frozen_cells_compare_versions(training):
    cell = drawn(LayerNormLSTMCell(I, H)).train(training)
    x = inputs_of(cell)
    with torch.set_grad_enabled(training):
        cell.freeze()
        step = cell.steps()
        expected = step(*x)
        expect_same(expected, cell(*x))
        flip_bit(cell.weight_hh)  # which the caller has promised not to do
        expect_same(step(*x), expected)
        in_place(cell)
        with pytest.raises(ValueError, match="weight_ih has changed since the steps began"):
            step(*x)


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("again", [True, False], ids=["frozen again", ""])
def test_steps_of_a_cell_that_was_frozen_compare_bytes(training, again):
    cell = drawn(LayerNormGRUCell(I, H)).train(training)
    x = inputs_of(cell)
    with torch.set_grad_enabled(training):
        with cell.frozen():
            step = cell.steps()
            step(*x)
        step(*x)
        flip_bit(cell.weight_hh)
        if again:
            cell.freeze()
        for _ in range(2):
            with pytest.raises(ValueError, match="weight_hh has changed since the steps"):
                step(*x)


@pytest.mark.parametrize("frozen", [True, False], ids=["frozen", ""])
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_steps_after_a_parameter_was_replaced_are_refused(training, frozen):
    def by_loading(cell):
        cell.load_state_dict({k: v + 1 for k, v in cell.state_dict().items()}, assign=True)

    for replace in (by_another_parameter, by_a_parametrization, by_loading):
        cell = drawn(LayerNormLSTMCell(I, H)).train(training)
        x = inputs_of(cell)
        with torch.set_grad_enabled(training):
            if frozen:
                cell.freeze()
            step = cell.steps()
            step(*x)
            replace(cell)
            with pytest.raises(ValueError, match="have been replaced since the steps began"):
                step(*x)
            cell.unfreeze()
            expect_same(cell.steps()(*x), copy.deepcopy(cell)(*x))


def test_frozen_modules_train_and_work_in_transforms():
    module = drawn(LayerNormGRU(I, H)).eval()
    (x,) = inputs_of(module)
    expected = module(x)[0]
    with torch.no_grad():
        vmapped = torch.func.vmap(lambda x: module(x)[0])(x[None])[0]
    module.freeze()
    expect_same(module(x)[0], expected)
    module(x)[0].sum().backward()
    assert module.weight_hh_l0.grad is not None
    with torch.no_grad():
        module(x)
        expect_same(torch.func.vmap(lambda x: module(x)[0])(x[None])[0], vmapped)
        compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(x)[0], expected)
        program = torch.export.export(module, (x,))
        torch.testing.assert_close(program.module()(x)[0], expected)


@pytest.mark.parametrize("make", SOME_MODULES)
def test_transforms_of_frozen_modules_use_the_parameters(make):
    """A write that frozen modules do not detect shows whether packed weights are used."""
    module = drawn(make()).eval()
    x, *hx = inputs_of(module)
    module.freeze()

    def call(x):
        y = module(x, *hx)
        return y if isinstance(y, torch.Tensor) else y[0]

    def first_bits(y):  # outside of vmap, which cannot view bits before PyTorch 2.13
        return bits_of(y)[0]

    with torch.no_grad():
        old = first_bits(call(x))
        by_address(module)
        assert torch.equal(first_bits(call(x)), old)
        new = first_bits(copy.deepcopy(module)(x, *hx))
        assert torch.equal(first_bits(torch.func.vmap(call)(x[None])[0]), new)
        make_fx = torch.fx.experimental.proxy_tensor.make_fx
        for pre_dispatch in (False, True):
            traced = make_fx(call, pre_dispatch=pre_dispatch)(x)
            assert torch.equal(first_bits(traced(x)), new)
        traced = torch.jit.trace(module, (x, *hx), check_trace=False)
        assert torch.equal(first_bits(traced(x, *hx)), new)
        assert torch.equal(first_bits(call(x)), old)


@pytest.mark.parametrize("make", SOME_MODULES)
def test_tangents_pass_in_inference(make):
    module = drawn(make()).eval()
    x, *hx = inputs_of(module)
    dx = torch.randn_like(x)
    tangents = {k: torch.randn_like(p) for k, p in module.named_parameters()}
    forward_ad = torch.autograd.forward_ad
    results = []
    for grad in (True, False):
        with torch.set_grad_enabled(grad), forward_ad.dual_level():
            duals = {
                k: forward_ad.make_dual(p.detach(), tangents[k])
                for k, p in module.named_parameters()
            }
            for parameters, dual in ((duals, x), ({}, forward_ad.make_dual(x, dx))):
                result = torch.func.functional_call(module, parameters, (dual, *hx))
                result = result if isinstance(result, torch.Tensor) else result[0]
                results.append(forward_ad.unpack_dual(result).tangent.detach())
    for ours, theirs in zip(results[2:], results[:2], strict=True):
        torch.testing.assert_close(ours, theirs)


def test_packed_weights_of_the_operators_are_copies():
    cell = drawn(LayerNormGRUCell(I, H))
    params = {k: p.detach() for k, p in cell.named_parameters()}
    packed = torch.ops.planish.rnn_pack("ln_gru", **params)
    x, h = inputs_of(cell)

    def step():
        weights = {k: params[k] for k in ("weight_ih", "weight_hh")}
        return torch.ops.planish.rnn_step("ln_gru", x, **weights, h0=h, packed=packed)[0]

    before = step()
    by_address(cell)
    expect_same(step(), before)


def test_variants_are_all_cells_of_the_library():
    with pytest.raises(ValueError, match="cell must be one of") as error:
        torch.classes.planish.RnnLayer("", True, "", "")
    cells = str(error.value).partition("one of ")[2].partition(", got")[0].split(", ")
    tables = [recurrent._LSTMS, recurrent._GRUS, *recurrent._RNNS.values()]
    assert sorted(cells) == sorted({v.cell for table in tables for v in table.values()})


def test_all_modules_of_the_package_are_tested():
    assert {c.__name__ for case in VARIANTS for c in case[:2]} == {
        name for name in planish.nn.__all__ if name in recurrent.__all__
    }


def test_a_writer_in_another_thread_leaves_no_old_weights():
    """A thread that writes other weights, and then the first ones again, while they are packed,
    must leave no effect."""
    for _ in range(40):
        cell = planish.nn.LayerNormLSTMCell(64, 64).eval()
        first = cell.ln_ih_weight.detach().clone()
        stop = threading.Event()

        def write(weight=cell.ln_ih_weight.data, first=first, stop=stop):
            while not stop.is_set():
                weight.copy_(first + 1)
                weight.copy_(first)

        writer = threading.Thread(target=write)
        x = torch.randn(1, 64)
        with torch.inference_mode():
            writer.start()
            for _ in range(20):
                cell(x)
            stop.set()
            writer.join()
            for got, want in zip(cell(x), copy.deepcopy(cell)(x), strict=True):
                assert torch.equal(got, want)


def test_steps_use_the_parameters_that_they_compare():
    """A thread changes a weight and changes it back while steps are created.

    The steps have one of the two states, and raise in the other.
    """
    refused = 0
    for gradients, training in itertools.product((True, False), repeat=2):
        cell = planish.nn.LayerNormLSTMCell(64, 64).train(training)
        x = torch.randn(1, 64)
        expected = copy.deepcopy(cell)(x)
        for _ in range(25):
            first = cell.ln_ih_weight.detach().clone()
            running, stop = threading.Event(), threading.Event()

            def write(weight=cell.ln_ih_weight.data, first=first, running=running, stop=stop):
                while not stop.is_set():
                    weight.copy_(first + 1)
                    weight.copy_(first)
                    running.set()

            writer = threading.Thread(target=write)
            writer.start()
            running.wait()
            with torch.set_grad_enabled(gradients):
                step = cell.steps()
            stop.set()
            writer.join()
            try:
                expect_same(step(x), expected)
            except ValueError as error:
                assert "has changed since the steps began" in str(error)
                refused += 1
    assert refused < 100


@pytest.mark.parametrize("steps", [True, False], ids=["steps", "module"])
def test_module_unfrozen_while_it_packs_compares_again(steps):
    """Another thread unfreezes and freezes the module while this thread packs."""
    for _ in range(50):
        cell = drawn(LayerNormLSTMCell(64, 64)).eval()
        x = torch.randn(1, 64)
        running, stop = threading.Event(), threading.Event()

        def change(cell=cell, running=running, stop=stop):
            while not stop.is_set():
                cell.freeze()
                cell.unfreeze()
                running.set()

        thread = threading.Thread(target=change)
        thread.start()
        running.wait()
        with torch.no_grad():
            for _ in range(5):
                call = cell.steps() if steps else cell
                call(x)
            stop.set()
            thread.join()
            flip_bit(cell.weight_ih)
            if steps:
                with pytest.raises(ValueError, match="weight_ih has changed since"):
                    call(x)
            expect_same(cell(x), copy.deepcopy(cell)(x))


def test_exchanged_tensors_are_detected():
    cell, other = (drawn(LayerNormLSTMCell(I, H)).eval() for _ in range(2))
    x = inputs_of(cell)
    with torch.no_grad():
        expected = other(*x)
        cell(*x)
        step = cell.steps()
        # Does the same as torch.utils.swap_tensors, which rejects tensors with other references.
        for one, two in zip(cell.parameters(), other.parameters(), strict=True):
            torch._C._swap_tensor_impl(one, two)
        expect_same(cell(*x), expected)
        with pytest.raises(ValueError, match="have been replaced since the steps began"):
            step(*x)


def test_replicas_have_their_own_packed_weights():
    module = drawn(LayerNormLSTM(I, H)).eval()
    (x,) = inputs_of(module)
    with torch.no_grad():
        module.freeze()
        expected = module(x)[0]
        replica = module._replicate_for_data_parallel()
        for name, parameter in module.named_parameters():
            setattr(replica, name, parameter.detach() * 2)
        twice = copy.deepcopy(module)
        for parameter in twice.parameters():
            parameter.mul_(2)
        expect_same(replica(x)[0], twice(x)[0])
        expect_same(module(x)[0], expected)


def test_loading_with_swapped_parameters():
    cell = planish.nn.LayerNormLSTMCell(3, 4).eval()
    other = planish.nn.LayerNormLSTMCell(3, 4).eval()
    x = torch.randn(2, 3)
    with torch.no_grad():
        cell(x)
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        cell.load_state_dict(other.state_dict())
    finally:
        torch.__future__.set_swap_module_params_on_conversion(before)
    with torch.no_grad():
        for got, want in zip(cell(x), other(x), strict=True):
            assert torch.equal(got, want)


# ---- Types of packed weights


def rounded_to_bfloat16(module):
    """Returns a copy of a module whose weight matrices are rounded to bfloat16."""
    other = copy.deepcopy(module)
    for name, parameter in other.named_parameters():
        if name.startswith("weight_"):
            parameter.data.copy_(parameter.detach().bfloat16().float())
    return other


def rounded_to_int8(module):
    """Returns a copy of a module whose weight matrices are rounded as int8 weights are."""
    other = copy.deepcopy(module)
    for name, parameter in other.named_parameters():
        if name.startswith("weight_"):
            scale = parameter.detach().abs().amax(1, keepdim=True) / 127
            parameter.data.copy_((parameter.detach() / scale).round() * scale)
    return other


@pytest.mark.parametrize("make", LAYERS + CELLS)
def test_bfloat16_weights_give_the_bits_of_rounded_parameters(make):
    module = drawn(make()).eval()
    x = inputs_of(module)
    with torch.no_grad():
        expected = rounded_to_bfloat16(module)(*x)
        expect_same(module.quantize_("bfloat16")(*x), expected)
        assert module.weight_type == "bfloat16"
        assert "weight_type=bfloat16" in repr(module)


@pytest.mark.parametrize("make", LAYERS + CELLS)
def test_int8_weights_are_close_to_rounded_parameters(make):
    module = drawn(make()).eval()
    x = inputs_of(module)
    with torch.no_grad():
        expected = rounded_to_int8(module)(*x)
        result = module.quantize_("int8")(*x)
    # Only inputs and states are rounded further, to 1.5e-5 of the largest. Norms of seven elements,
    # two layers and four steps multiply that by 100 at most.
    for ours, theirs in zip(flat(result), flat(expected), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=2e-3, atol=2e-3)


def flat(result):
    if isinstance(result, torch.Tensor):
        return [result]
    return [tensor for part in result for tensor in flat(part)]


@pytest.mark.parametrize("make", SOME_MODULES)
def test_training_and_gradients_use_the_parameters(make):
    module = drawn(make())
    x = inputs_of(module)
    expected = flat(module(*x))[0]
    module.quantize_("int8")
    assert torch.equal(flat(module(*x))[0], expected)
    assert torch.equal(flat(module.eval()(*x))[0], expected)  # with gradients
    flat(module(*x))[0].sum().backward()
    with torch.no_grad():
        assert not torch.equal(flat(module(*x))[0], expected)
        module.quantize_("full")
        assert torch.equal(flat(module(*x))[0], expected)
    assert "weight_type" not in repr(module)


@pytest.mark.parametrize("make", SOME_MODULES)
def test_copies_keep_the_type_of_weights(make):
    module = drawn(make()).eval().quantize_("int8")
    x = inputs_of(module)
    with torch.no_grad():
        expected = module(*x)
        for other in (
            copy.deepcopy(module),
            copy.copy(module),
            pickle.loads(pickle.dumps(module)),
            module._replicate_for_data_parallel(),
        ):
            assert other.weight_type == "int8"
            if list(other.parameters()):
                expect_same(other(*x), expected)
    module.load_state_dict(module.state_dict())
    module.freeze()
    module.train().eval()
    assert module.weight_type == "int8"


def test_modules_pickled_without_a_type_have_full_weights():
    module = LayerNormGRUCell(I, H).quantize_("int8")
    state = module.__getstate__()
    del state["_weight_type"]
    other = LayerNormGRUCell.__new__(LayerNormGRUCell)
    other.__setstate__(state)
    assert other.weight_type == "full"


@pytest.mark.parametrize("weight_type", ["bfloat16", "int8"])
def test_quantized_weights_follow_writes_and_freeze(weight_type):
    module = drawn(LayerNormLSTM(I, H)).quantize_(weight_type)
    expect_changes(module, by_polyak)
    module.freeze()
    x = inputs_of(module)
    with torch.no_grad():
        before = module(*x)
        expect_same(module(*x), before)
        module.quantize_("full")  # a frozen module packs again
        assert not torch.equal(flat(module(*x))[0], flat(before)[0])
        by_address(module)
        module.quantize_(weight_type)


def test_parameters_in_bfloat16_have_int8_weights():
    module = drawn(LayerNormLSTM(I, H)).eval().bfloat16()
    x = inputs_of(module)
    with torch.no_grad():
        in_float = copy.deepcopy(module).float().quantize_("int8")(x[0].float())
        result = module.quantize_("int8")(*x)
        expect_same(result[0], in_float[0].bfloat16())


def test_compiled_modules_use_the_parameters():
    module = drawn(LayerNormGRUCell(I, H)).eval()
    x = inputs_of(module)
    with torch.no_grad():
        expected = module(*x)
        program = torch.export.export(module.quantize_("int8"), x).module()
        torch.testing.assert_close(program(*x), expected)


def test_bad_types_of_weights():
    cell = LayerNormLSTMCell(I, H)
    with pytest.raises(
        ValueError,
        match=r"\[LayerNormLSTMCell\] weight_type must be one of full, bfloat16, int8, got int4",
    ):
        cell.quantize_("int4")
    with pytest.raises(ValueError, match="weight_type must be full for float64 parameters"):
        LayerNormLSTMCell(I, H, dtype=torch.float64).quantize_("int8")
    params = {name: p.detach() for name, p in LayerNormGRUCell(I, H).named_parameters()}
    params = {name: p for name, p in params.items() if not name.startswith("bias")}
    with pytest.raises(ValueError, match=r"\[rnn_pack\] weight_type must be one of full"):
        torch.ops.planish.rnn_pack("ln_gru", **params, weight_type="float8")
