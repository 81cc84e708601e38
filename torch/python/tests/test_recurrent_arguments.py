"""Arguments and attributes of the recurrent modules that other libraries use."""

import copy
import importlib.util
import itertools
import pickle
from typing import get_args

import numpy as np
import pytest
import torch
import torch.nn.utils.prune
from torch import nn
from torch._dynamo.testing import CompileCounter
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import planish
from planish.nn import (
    LayerNormGRU,
    LayerNormGRUCell,
    LayerNormLSTM,
    LayerNormLSTMCell,
    LayerNormRNN,
    LayerNormRNNCell,
    recurrent,
    reset_recurrent_parameters,
)

T, B, I, H = 6, 3, 4, 5
# Sums of a dozen float64 values of about 1 in another order than PyTorch's: a few units in the last
# place, 2e-16, over 6 steps.
CLOSE = {"rtol": 1e-12, "atol": 1e-13}
# Like CLOSE in float32, whose unit in the last place is 1.2e-7.
CLOSE_FLOAT = {"rtol": 1e-5, "atol": 1e-6}

LAYERS = [(LayerNormLSTM, nn.LSTM), (LayerNormGRU, nn.GRU), (LayerNormRNN, nn.RNN)]
CELLS = [
    (LayerNormLSTMCell, nn.LSTMCell),
    (LayerNormGRUCell, nn.GRUCell),
    (LayerNormRNNCell, nn.RNNCell),
]
VARIANTS = {
    LayerNormLSTM: recurrent.LSTMVariant,
    LayerNormLSTMCell: recurrent.LSTMCellVariant,
    LayerNormGRU: recurrent.GRUVariant,
    LayerNormGRUCell: recurrent.GRUCellVariant,
    LayerNormRNN: recurrent.RNNVariant,
    LayerNormRNNCell: recurrent.RNNCellVariant,
}


def name_of(value):
    return getattr(value, "__name__", None)


layers = pytest.mark.parametrize(("layer", "torchs"), LAYERS, ids=name_of)


def variants_of(module):
    """Returns the values of a Literal or of a union of Literals."""
    arguments = get_args(VARIANTS[module])
    return list(
        itertools.chain.from_iterable([a] if isinstance(a, str) else get_args(a) for a in arguments)
    )


def plain_pair(layer, torchs, **options):
    """Returns ours with the variant "plain" and PyTorch's, with the same weights, in float64."""
    module = layer(I, H, variant="plain", dtype=torch.float64, **options)
    other = torchs(I, H, dtype=torch.float64, **options)
    other.load_state_dict(module.state_dict())
    return module, other


def states_of(result):
    return result if isinstance(result, tuple) else (result,)


def inputs(batch_first=False):
    return torch.randn(*((B, T) if batch_first else (T, B)), I, dtype=torch.float64)


# ---- Lengths

LENGTHS = [4, 6, 1]
FORMS = {
    "list": lambda values: values,
    "tuple": tuple,
    "numpy": np.array,
    "numpy int16": lambda values: np.array(values, np.int16),
    "numpy uint64": lambda values: np.array(values, np.uint64),
    **{
        str(dtype).removeprefix("torch."): lambda values, dtype=dtype: torch.tensor(
            values, dtype=dtype
        )
        for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16)
    },
}


@layers
@pytest.mark.parametrize("form", FORMS)
def test_lengths_of_every_integer_type_match_packing(layer, torchs, form):
    module, other = plain_pair(layer, torchs)
    x = inputs()
    packed = pack_padded_sequence(x, torch.tensor(LENGTHS), enforce_sorted=False)
    expected, expected_states = other(packed)
    y, states = module(x, lengths=FORMS[form](LENGTHS))
    torch.testing.assert_close(y, pad_packed_sequence(expected)[0], **CLOSE)
    torch.testing.assert_close(states, expected_states, **CLOSE)


def error_of(call):
    with pytest.raises(ValueError) as caught:
        call()
    return str(caught.value).splitlines()[0]


@pytest.mark.parametrize("form", ["list", "int32", "numpy"])
@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([0, 6, 1], "[RnnForward] lengths[0] must be at least 1 and at most time, 6, got 0"),
        ([4, -6, 1], "[RnnForward] lengths[1] must be at least 1 and at most time, 6, got -6"),
        ([4, 6, 7], "[RnnForward] lengths[2] must be at least 1 and at most time, 6, got 7"),
        ([4, 6], "[LayerNormGRU] lengths must have [3], got [2]"),
        ([], "[LayerNormGRU] lengths must have [3], got [0]"),
    ],
)
def test_lengths_out_of_range_are_refused(form, values, message):
    module = LayerNormGRU(I, H).double()
    assert error_of(lambda: module(inputs(), lengths=FORMS[form](values))) == message


@pytest.mark.parametrize(
    ("lengths", "dtype"),
    [
        ([4, 6.5, 1], "torch.float32"),
        (np.array([4.0, 6.0, 1.0]), "torch.float64"),
        (torch.tensor([True, True, True]), "torch.bool"),
        (torch.tensor([1j, 1j, 1j]), "torch.complex64"),
    ],
)
def test_lengths_of_other_types_are_refused(lengths, dtype):
    module = LayerNormGRU(I, H).double()
    assert error_of(lambda: module(inputs(), lengths=lengths)) == (
        f"[LayerNormGRU] lengths must be integers, got {dtype}"
    )


# ---- Resets

RESETS = torch.tensor([[0, 1, 0], [0, 0, 0], [0, 1, 1], [1, 0, 0], [0, 0, 0], [0, 1, 0]])
REAL_TYPES = [
    torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32, torch.int64,
    torch.float32, torch.float64, torch.float16, torch.bfloat16,
]  # fmt: skip


def run_episodes(module, x, resets):
    """Returns y of a module without state, computed for each episode separately."""
    y = torch.empty(T, B, H, dtype=torch.float64)
    for b in range(B):
        begins = [0, *[t for t in range(1, T) if resets[t, b]], T]
        for begin, end in itertools.pairwise(begins):
            y[begin:end, b] = module(x[begin:end, b])[0]
    return y


@layers
@pytest.mark.parametrize("dtype", [torch.bool, *REAL_TYPES], ids=str)
def test_resets_of_every_real_type_start_episodes(layer, torchs, dtype):
    module, other = plain_pair(layer, torchs)
    x = inputs()
    y = module(x, resets=RESETS.to(dtype))[0]
    torch.testing.assert_close(y, run_episodes(other, x, RESETS), **CLOSE)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.float32], ids=str)
def test_resets_can_have_a_last_dimension_of_one_and_be_an_array(dtype):
    module = LayerNormLSTM(I, H, batch_first=True).double()
    x, resets = inputs(batch_first=True), RESETS.T.to(dtype)
    expected = module(x, resets=resets.bool())[0]
    assert torch.equal(module(x, resets=resets[..., None])[0], expected)
    assert torch.equal(module(x, resets=resets.numpy())[0], expected)
    assert torch.equal(module(x[1], resets=resets[1, :, None])[0], expected[1])  # a single sequence
    assert "resets must have [3, 6], got [3, 6, 2]" in error_of(
        lambda: module(x, resets=resets[..., None].expand(-1, -1, 2))
    )


def other_values_of(dtype):
    """Returns values of a type that are neither 0 nor 1, and their text in errors."""
    values = {2: "2"}
    if dtype.is_signed:
        values[-1] = "-1"
    if dtype.is_floating_point:
        values |= {0.5: "0.5", float("nan"): "nan", float("inf"): "inf", 2.0**-14: "6.10352e-05"}
    return values.items()


@pytest.mark.parametrize("dtype", REAL_TYPES, ids=str)
def test_other_values_of_resets_are_refused(dtype):
    module = LayerNormLSTM(I, H).double()
    for value, shown in other_values_of(dtype):
        resets = RESETS.to(dtype, copy=True)
        resets[4, 1] = value
        assert error_of(lambda: module(inputs(), resets=resets)) == (  # noqa: B023
            f"[LayerNormLSTM] resets must be 0 or 1, got {shown}"
        )


def test_complex_resets_are_refused():
    module = LayerNormRNN(I, H).double()
    assert error_of(lambda: module(inputs(), resets=RESETS * 1j)) == (
        "[LayerNormRNN] resets must be bool, integers or floating point, got torch.complex64"
    )


def test_resets_that_require_gradients_get_none():
    module = LayerNormGRU(I, H).double()
    resets = RESETS.double().requires_grad_()
    module(inputs(), resets=resets)[0].sum().backward()
    assert resets.grad is None


# ---- Masks


@layers
@pytest.mark.parametrize("batch_first", [False, True], ids=["", "batch first"])
def test_a_mask_matches_lengths(layer, torchs, batch_first):
    module = layer(I, H, num_layers=2, batch_first=batch_first).double()
    x = inputs(batch_first)
    mask = torch.arange(T) < torch.tensor(LENGTHS)[:, None]
    y, states = module(x, mask=mask if batch_first else mask.T)
    expected, expected_states = module(x, lengths=LENGTHS)
    assert torch.equal(y, expected)
    for state, other in zip(states_of(states), states_of(expected_states), strict=True):
        assert torch.equal(state, other)


MASK = torch.arange(T)[:, None] < torch.tensor(LENGTHS)


def with_hole():
    mask = MASK.clone()
    mask[1, 1] = False
    return mask


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"mask": MASK.flip(0)},
            "mask must be True at the first step of each sequence, got False",
        ),
        (
            {"mask": with_hole()},
            "mask must be True up to the end of a sequence and False after it, got True after "
            "False",
        ),
        ({"mask": MASK.T}, "mask must have [6, 3], got [3, 6]"),
        ({"mask": MASK.float()}, "mask must be bool, got torch.float32"),
        ({"mask": MASK, "lengths": LENGTHS}, "mask must be left out with lengths, got [6, 3]"),
    ],
)
def test_invalid_masks_are_refused(arguments, message):
    module = LayerNormGRU(I, H).double()
    assert error_of(lambda: module(inputs(), **arguments)) == f"[LayerNormGRU] {message}"


def test_lengths_masks_and_resets_are_refused_for_packed_sequences():
    module = LayerNormGRU(I, H).double()
    packed = pack_padded_sequence(inputs(), torch.tensor(LENGTHS), enforce_sorted=False)
    for arguments in ({"mask": MASK}, {"lengths": LENGTHS}, {"resets": RESETS.numpy()}):
        ((name, value),) = arguments.items()
        shape = list(np.shape(value))
        assert error_of(lambda: module(packed, **arguments)) == (  # noqa: B023
            f"[LayerNormGRU] {name} must be left out for a PackedSequence, got {shape}"
        )
        if name != "resets":
            assert error_of(lambda: module(inputs()[:, 0], **arguments)) == (  # noqa: B023
                f"[LayerNormGRU] {name} must be left out for x [T, I], got {shape}"
            )


# ---- Compilers and transforms

EVERY_FORM = [
    {"lengths": LENGTHS},
    {"lengths": tuple(LENGTHS)},
    {"lengths": np.array(LENGTHS)},
    {"lengths": torch.tensor(LENGTHS, dtype=torch.int32)},
    {"mask": MASK},
    {"resets": RESETS.to(torch.uint8)},
    {"resets": RESETS.float()[..., None]},
]


@pytest.mark.parametrize("arguments", EVERY_FORM, ids=lambda a: "-".join(a))
def test_every_form_compiles_in_one_graph(arguments):
    torch.compiler.reset()
    module = LayerNormLSTM(I, H).double()
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager", dynamic=True)
    x = inputs()
    assert torch.equal(compiled(x, **arguments)[0], module(x, **arguments)[0])


@pytest.mark.parametrize("form", ["list", "tuple", "numpy", "int32"])
def test_other_lengths_do_not_recompile(form):
    torch.compiler.reset()
    module = LayerNormGRU(I, H).double()
    counter = CompileCounter()
    compiled = torch.compile(module, fullgraph=True, backend=counter)
    x = inputs()
    for length in range(2, T + 1):
        lengths = FORMS[form]([length, T, 3])
        assert torch.equal(compiled(x, lengths=lengths)[0], module(x, lengths=lengths)[0])
    assert counter.frame_count <= 2  # an int becomes dynamic when it changes


def test_opcheck_of_the_operators_of_checks():
    for op, value in (("reset_flags", RESETS.float()), ("mask_lengths", MASK)):
        torch.library.opcheck(getattr(torch.ops.planish, op).default, (value, "LayerNormGRU"))


@pytest.mark.parametrize(
    ("good", "bad", "message"),
    [
        ({"resets": RESETS.float()}, {"resets": 2 * RESETS.float()}, "resets must be 0 or 1"),
        ({"mask": MASK}, {"mask": with_hole()}, "mask must be True up to the end"),
        (
            {"lengths": torch.tensor(LENGTHS, dtype=torch.int32)},
            {"lengths": torch.tensor([1, 0, 2], dtype=torch.int32)},
            "lengths[1] must be at least 1",
        ),
    ],
    ids=["resets", "mask", "lengths"],
)
def test_compiled_code_checks_values(good, bad, message):
    torch.compiler.reset()
    module = LayerNormLSTM(I, H).double()
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager", dynamic=True)
    x = inputs()
    compiled(x, **good)
    assert message in error_of(lambda: compiled(x, **bad))


def test_resets_of_another_type_export():
    module = LayerNormGRU(I, H).double()
    x, resets = inputs(), RESETS.to(torch.uint8)
    program = torch.export.export(module, (x,), {"resets": resets}).module()
    assert torch.equal(program(x, resets=resets)[0], module(x, resets=resets)[0])
    assert "resets must be 0 or 1, got 2" in error_of(lambda: program(x, resets=2 * resets))


def test_resets_and_masks_under_vmap():
    module = LayerNormGRU(I, H).double()
    x = torch.randn(2, T, B, I, dtype=torch.float64)
    resets, masks = torch.stack([RESETS, 1 - RESETS]), torch.stack([MASK, torch.ones_like(MASK)])
    for name, values in (("resets", resets), ("mask", masks)):
        both = torch.vmap(lambda x, value: module(x, **{name: value})[0])(x, values)  # noqa: B023
        for mine, one, value in zip(both, x, values, strict=True):
            torch.testing.assert_close(mine, module(one, **{name: value})[0], **CLOSE)


# ---- Variants and eps


@pytest.mark.parametrize("module", VARIANTS, ids=name_of)
def test_annotations_name_all_variants(module):
    for variant in variants_of(module):
        module(2, 3, variant=variant)
    message = error_of(lambda: module(2, 3, variant="lasagne"))
    assert f"must be one of {', '.join(variants_of(module))}, got lasagne" in message


@pytest.mark.long
def test_mypy_knows_the_variants_of_each_class(mypy_errors, tmp_path):
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is not installed")
    lines = [
        "import numpy as np",
        "import planish",
        "from torch import zeros",
        "lstm = planish.nn.LayerNormLSTM(3, 4, variant='tfa', eps=None)",
        "lstm(zeros(5, 2, 3), lengths=[5, 3], resets=np.zeros((5, 2)))",
        "lstm(zeros(5, 2, 3), lengths=np.array([5, 3]), mask=None)",
    ]
    wrong = {
        "planish.nn.LayerNormLSTM(3, 4, variant='lasagne')",
        "planish.nn.LayerNormLSTMCell(3, 4, variant='batchnorm')",
        "planish.nn.LayerNormGRU(3, 4, variant='tfa')",
        "planish.nn.LayerNormGRUCell(3, 4, variant='draw')",
        "planish.nn.LayerNormRNN(3, 4, variant='draw')",
        "planish.nn.LayerNormRNNCell(3, 4, nonlinearity='sin')",
    }
    user = tmp_path / "user.py"
    user.write_text("\n".join([*lines, *sorted(wrong)]))
    errors = mypy_errors("torch/python/planish/nn", user)
    expected = range(len(lines) + 1, len(lines) + len(wrong) + 1)
    assert [error.split(":")[1] for error in errors] == list(map(str, expected)), errors
    assert all("[arg-type]" in error and "Literal" in error for error in errors)


# Sources: norm_epsilon of TensorFlow Addons' LayerNormLSTMCell (tfa), variance_epsilon of
# layer_norm (contrib), kLayerNormEpsilon (tflite), sheeprl and dreamerv3-torch (dreamer),
# layer_norm.h (haste), torch.nn.LayerNorm (fastrnns, nemo, torchaudio), layer_norm of the paper's
# authors (paper, draw), torch.nn.BatchNorm1d (batchnorm).
OWN_EPS = {"tfa": 1e-3, "contrib": 1e-12, "tflite": 1e-8, "dreamer": 1e-3}


@pytest.mark.parametrize(
    "layer", [LayerNormLSTM, LayerNormLSTMCell, LayerNormGRU, LayerNormGRUCell], ids=name_of
)
def test_default_eps_is_that_of_the_variant(layer):
    for variant in variants_of(layer):
        own = OWN_EPS.get(variant, 1e-5)
        module = layer(I, H, variant=variant, eps=None)
        assert module.eps == own
        assert layer(I, H, variant=variant).eps == 1e-5
        shown = "" if own == 1e-5 else f", eps={own}"
        named = "" if variant == "paper" else f", variant={variant}"
        assert repr(module) == f"{layer.__name__}(4, 5{named}{shown})"
        same = layer(I, H, variant=variant, eps=own)
        same.load_state_dict(module.state_dict())
        is_cell = layer in (LayerNormLSTMCell, LayerNormGRUCell)
        x = torch.randn(B, I) if is_cell else torch.randn(T, B, I)
        for other in (same, copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
            assert other.eps == own
            assert torch.equal(other(x)[0], module(x)[0])


def test_eps_of_converted_modules_is_that_of_their_library():
    for variant, layer in (("tfa", LayerNormLSTM), ("contrib", LayerNormLSTM)):
        options = {"input_size": I, "hidden_size": H, "variant": variant, "eps": OWN_EPS[variant]}
        converted = planish.converters.Converted(layer.__name__, options, {})
        assert converted.options["eps"] == layer(I, H, variant=variant, eps=None).eps
    model = nn.Sequential(nn.LSTM(I, H))
    planish.convert(model, "layer_norm_rnn", variant="tfa", eps=1e-3)
    assert model[0].eps == 1e-3


# ---- The interface of torch.nn


@layers
def test_public_attributes_of_torch_nn_exist(layer, torchs):
    module, other = layer(I, H, variant="plain"), torchs(I, H)
    missing = {name for name in dir(other) if not name.startswith("_")} - set(dir(module))
    # Undocumented helpers of PyTorch's own forward: see docs/python.md.
    assert missing == {
        "check_forward_args",
        "check_hidden_size",
        "check_input",
        "get_expected_hidden_size",
        "permute_hidden",
    } | ({"get_expected_cell_size"} if torchs is nn.LSTM else set())
    for name in torchs.__constants__:
        assert getattr(module, name) == getattr(other, name), name


@pytest.mark.parametrize(("cell", "torchs"), CELLS, ids=name_of)
def test_public_attributes_of_torch_cells_exist(cell, torchs):
    module, other = cell(I, H, variant="plain"), torchs(I, H)
    assert not {name for name in dir(other) if not name.startswith("_")} - set(dir(module))
    for name in torchs.__constants__:
        assert getattr(module, name) == getattr(other, name), name


@pytest.mark.parametrize("nonlinearity", ["tanh", "relu"])
def test_the_mode_of_an_rnn_names_its_nonlinearity(nonlinearity):
    module = LayerNormRNN(I, H, nonlinearity=nonlinearity)
    assert module.mode == nn.RNN(I, H, nonlinearity=nonlinearity).mode


@layers
def test_initial_states_get_the_gradients_of_torch(layer, torchs):
    module, other = plain_pair(layer, torchs)
    x = inputs()
    h = torch.randn(1, B, H, dtype=torch.float64)
    states = (h, torch.randn_like(h)) if layer is LayerNormLSTM else (h,)
    gradients = []
    for part in (module, other):
        own = [state.clone().requires_grad_() for state in states]
        y, _ = part(x, tuple(own) if layer is LayerNormLSTM else own[0])
        gradients.append(torch.autograd.grad(y.square().sum(), own))
    torch.testing.assert_close(*gradients, **CLOSE)


@layers
@pytest.mark.parametrize("batch_first", [False, True], ids=["", "batch first"])
def test_helpers_of_packing_work_as_with_torch(layer, torchs, batch_first):
    module, other = plain_pair(layer, torchs, batch_first=batch_first)
    lengths = torch.tensor([4, 6, 2])
    sequences = [torch.randn(length, I, dtype=torch.float64) for length in lengths]
    padded = nn.utils.rnn.pad_sequence(sequences, batch_first=batch_first)
    results = []
    for part in (module, other):
        y, _ = part(nn.utils.rnn.pack_sequence(sequences, enforce_sorted=False))
        results.append((nn.utils.rnn.unpack_sequence(y), [part(x)[0] for x in sequences]))
    torch.testing.assert_close(*results, **CLOSE)
    y, _ = module(padded, lengths=lengths)
    outputs = nn.utils.rnn.unpad_sequence(y, lengths, batch_first=batch_first)
    torch.testing.assert_close(outputs, results[1][1], **CLOSE)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: LayerNormLSTM(3, 4, proj_size=4),
            "[LayerNormLSTM] proj_size must be less than hidden_size, 4, got 4",
        ),
        (
            lambda: LayerNormGRU(3, 4, num_heads=3),
            "[LayerNormGRU] num_heads must divide hidden_size, 4, got 3",
        ),
        (
            lambda: LayerNormRNN(3, 4, num_heads=0),
            "[LayerNormRNN] num_heads must be at least 1, got 0",
        ),
        (
            lambda: LayerNormLSTM(3, 4, proj_size=2, num_heads=2),
            "[LayerNormLSTM] num_heads must be 1 with proj_size, got 2",
        ),
        (
            lambda: LayerNormLSTM(3, 4, proj_size=True),
            "[LayerNormLSTM] proj_size must be an integer, got True",
        ),
        (
            lambda: LayerNormLSTM(3.0, 4),
            "[LayerNormLSTM] input_size must be an integer, got 3.0",
        ),
        (
            lambda: LayerNormGRUCell(3, "4"),
            "[LayerNormGRUCell] hidden_size must be an integer, got '4'",
        ),
        (
            lambda: LayerNormGRU(3, 4, 2, 0.5),
            "[LayerNormGRU] bias must be True or False, got 0.5",
        ),
        (
            lambda: LayerNormLSTM(3, 4, batch_first=None),
            "[LayerNormLSTM] batch_first must be True or False, got None",
        ),
        (
            lambda: LayerNormLSTM(3, 4, bidirectional="no"),
            "[LayerNormLSTM] bidirectional must be True or False, got 'no'",
        ),
        (
            lambda: LayerNormLSTM(3, 4, 2, dropout=True),
            "[LayerNormLSTM] dropout must be a number, got True",
        ),
        (
            lambda: LayerNormRNN(3, 4, 2, True),
            "[LayerNormRNN] nonlinearity must be one of tanh, relu, got True",
        ),
    ],
)
def test_options_of_another_type_are_refused(call, message):
    assert error_of(call) == message


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    ("options", "name", "shape", "message"),
    [
        ({}, "weight_hh_l0", (24, 3), "weight_hh_l0 must have [24, 6], got [24, 3]"),
        ({"num_heads": 2}, "weight_hh_l0", (24, 6), "weight_hh_l0 must have [24, 3], got [24, 6]"),
        ({"proj_size": 3}, "weight_hr_l0", None, "weight_hr_l0 must have [3, 6], got None"),
        ({"proj_size": 3}, "weight_hr_l0", (3, 5), "weight_hr_l0 must have [3, 6], got [3, 5]"),
    ],
)
def test_a_weight_of_another_kind_of_layer_is_refused(options, name, shape, message, training):
    """A dense layer, heads and a projection differ only in the shapes of weight_hh and weight_hr."""
    module = LayerNormLSTM(5, 6, **options).train(training)
    setattr(module, name, None if shape is None else nn.Parameter(torch.ones(shape)))
    with torch.set_grad_enabled(training):
        assert error_of(lambda: module(torch.ones(3, 2, 5))) == f"[LayerNormLSTM] {message}"
    plain = LayerNormLSTM(5, 6, variant="plain", **options)
    setattr(plain, name, getattr(module, name))
    report = planish.convert(nn.Sequential(plain), "torch")
    assert not report.changed


def test_small_integers_do_not_overflow():
    module = LayerNormLSTM(3, 300, 2, bidirectional=True, proj_size=np.int8(100))
    assert module.weight_ih_l1.shape == (1200, 200) and type(module.proj_size) is int
    gru = LayerNormGRU(3, np.int8(100), variant="dreamer")
    assert gru.ln_bias_l0.sum() == 100


def test_sizes_can_be_numpy_integers():
    assert repr(LayerNormLSTM(np.int64(3), np.int32(4), proj_size=0)) == "LayerNormLSTM(3, 4)"


# ---- Initialization


def kinds_of(module):
    """Groups the parameters by their initialization: matrices, gains and biases."""
    kinds = {"matrix": [], "gain": [], "bias": []}
    for name, parameter in module.named_parameters():
        kind = "matrix" if parameter.dim() == 2 else "gain" if "_weight" in name else "bias"
        kinds[kind].append((name, parameter))
    return kinds


ALL_MODULES = [(module, variant) for module in VARIANTS for variant in variants_of(module)]


@pytest.mark.parametrize(("module", "variant"), ALL_MODULES, ids=name_of)
def test_matrices_become_orthogonal_and_gains_stay_one(module, variant):
    model = nn.Sequential(nn.Linear(I, I), module(I, H, variant=variant))
    before = copy.deepcopy(model[0].state_dict())
    with torch.no_grad():
        for parameter in model[1].parameters():
            parameter.add_(torch.randn_like(parameter))
    reset_recurrent_parameters(model, lambda w: nn.init.orthogonal_(w, 2.0))
    for key, value in model[0].state_dict().items():
        assert torch.equal(value, before[key])
    kinds = kinds_of(model[1])
    assert len(kinds["matrix"]) == 2
    for name, matrix in kinds["matrix"]:
        # Products of columns of at most 20 rows in float32.
        product = matrix.T @ matrix / 4
        torch.testing.assert_close(product, torch.eye(len(product)), **CLOSE_FLOAT, msg=name)
    assert all((gain == 1).all() for _, gain in kinds["gain"])
    assert all((bias == 0).all() for _, bias in kinds["bias"])


@pytest.mark.parametrize(
    "module",
    [
        lambda: LayerNormLSTM(I, H, 2, bidirectional=True),
        lambda: LayerNormGRUCell(I, H),
        lambda: nn.LSTM(I, H, 2, bidirectional=True, proj_size=2),
        lambda: nn.GRUCell(I, H),
    ],
    ids=["ours", "our cell", "torch's", "torch's cell"],
)
def test_each_gate_can_be_initialized_separately(module):
    module, seen = module(), []

    def fn(block):
        seen.append(tuple(block.shape))
        block.fill_(len(seen))

    reset_recurrent_parameters(module, fn, fn_hh=nn.init.zeros_, per_gate=True)
    assert {shape[0] for shape in seen if shape != (2, H)} == {H}
    for name, matrix in kinds_of(module)["matrix"]:
        blocks = matrix.detach().split(H)
        if "_hh" in name:
            assert (matrix == 0).all()
        else:  # blocks are constant
            assert all((block == block[0, 0]).all() for block in blocks)
            assert len({float(block[0, 0]) for block in blocks}) == len(blocks)


def test_errors_of_initialization():
    name = "[reset_recurrent_parameters]"
    call = reset_recurrent_parameters
    assert error_of(lambda: call(nn.Linear(2, 3), nn.init.orthogonal_)) == (
        f"{name} module must be or contain a recurrent layer, got Linear"
    )
    computed = LayerNormGRU(I, H)
    torch.nn.utils.parametrizations.weight_norm(computed, "weight_hh_l0")
    assert error_of(lambda: call(computed, nn.init.orthogonal_)).startswith(
        f"{name} module must not be parametrized, got"
    )
    pruned = nn.LSTM(I, H)
    nn.utils.prune.random_unstructured(pruned, "weight_hh_l0", 0.5)
    before = copy.deepcopy(pruned.state_dict())
    assert error_of(lambda: call(pruned, nn.init.orthogonal_)) == (
        f"{name} module must not compute its parameters from others, got weight_hh_l0_orig"
    )
    assert all(torch.equal(value, before[key]) for key, value in pruned.state_dict().items())


def test_marks_of_loaded_parameters_hold_for_each_gate():
    # transformers replaces functions of torch.nn.init by ones that skip marked tensors.
    module, seen = nn.GRU(I, H), []
    module.weight_hh_l0._is_hf_initialized = True
    reset_recurrent_parameters(
        module, lambda block: seen.append(hasattr(block, "_is_hf_initialized")), per_gate=True
    )
    assert seen == [False] * 3 + [True] * 3


def test_parameters_of_subclasses_stay_as_they_are():
    class Scaled(LayerNormGRU):
        def __init__(self):
            super().__init__(I, H)
            self.scale = nn.Parameter(torch.full((H,), 3.0))

    module = Scaled()
    reset_recurrent_parameters(module, nn.init.orthogonal_)
    assert (module.scale == 3).all()


# ---- transformers


@pytest.fixture
def pretrained():
    """Returns a class of PreTrainedModel with all recurrent modules."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")

    class Config(transformers.PretrainedConfig):
        model_type = "planish-test"

        def __init__(self, variant="paper", more=False, **others):
            self.variant, self.more = variant, more
            super().__init__(**others)

    class Model(transformers.PreTrainedModel):
        config_class = Config

        def __init__(self, config):
            super().__init__(config)
            self.lstm = LayerNormLSTM(I, H, 2, variant=config.variant)
            self.gru, self.rnn = LayerNormGRU(H, H), LayerNormRNN(H, H)
            self.cells = nn.ModuleList(cell(H, H) for cell, _ in CELLS)
            self.torchs = nn.GRU(H, H)
            self.norms = nn.ModuleList(
                [
                    planish.nn.LayerNorm(H),
                    planish.nn.RMSNorm(H),
                    planish.nn.LayerNormSimple(H),
                    planish.nn.LayerNorm1d(H),
                    planish.nn.LayerNorm2d(H),
                    planish.nn.BatchNorm1d(H),
                    planish.nn.OnlineLayerNorm(H),
                    planish.nn.AdaNorm(H),
                    planish.nn.RecurrentBatchNorm(H, T),
                ]
            )
            if config.more:
                self.more = LayerNormGRU(I, H)
            self.drawn = copy.deepcopy(self.state_dict())
            self.post_init()

    return lambda **options: Model(Config(**options))


def draw_anew(model):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter))


def test_transformers_keeps_drawn_parameters(pretrained):
    model = pretrained()
    for name, value in model.state_dict().items():
        assert torch.equal(value, model.drawn[name]), name
        if name.startswith(("norms", "torchs")):
            continue
        if value.dim() == 2:
            assert 0 < value.abs().max() <= H**-0.5
        elif "ln_" in name:
            assert (value == (1 if "_weight" in name else 0)).all()


def test_transformers_saves_and_loads(pretrained, tmp_path):
    model = pretrained()
    draw_anew(model)
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path)
    expected = model.state_dict()
    for name, value in loaded.state_dict().items():
        assert torch.equal(value, expected[name]), name
    x = torch.randn(T, B, I)
    assert torch.equal(loaded.lstm(x)[0], model.lstm(x)[0])


def test_transformers_draws_parameters_missing_in_a_checkpoint(pretrained, tmp_path):
    model = pretrained(variant="plain")
    draw_anew(model)
    model.save_pretrained(tmp_path)
    config = type(model.config)(variant="fastrnns", more=True)
    loaded = type(model).from_pretrained(tmp_path, config=config)
    saved, state = model.state_dict(), loaded.state_dict()
    for name, value in state.items():
        if name in saved:
            assert torch.equal(value, saved[name]), name
        elif "ln_" in name:
            assert (value == (1 if "_weight" in name else 0)).all(), name
        else:
            assert 0 < value.abs().max() <= H**-0.5, name
    assert sum(name not in saved for name in state) == 12 + 6  # parameters of lstm and more


def test_transformers_does_not_initialize_loaded_parameters(pretrained, tmp_path):
    model = pretrained()
    draw_anew(model)
    model.save_pretrained(tmp_path)

    class WithOwn(type(model)):
        def __init__(self, config):
            super().__init__(config)
            reset_recurrent_parameters(self, nn.init.orthogonal_)

        def _init_weights(self, module):
            if isinstance(module, nn.GRU):
                reset_recurrent_parameters(module, nn.init.orthogonal_, per_gate=True)

    own = WithOwn(model.config)
    assert (own.lstm.bias_ih_l0 == 0).all() and (own.torchs.bias_ih_l0 == 0).all()
    loaded = WithOwn.from_pretrained(tmp_path).state_dict()
    for name, value in model.state_dict().items():
        assert torch.equal(loaded[name], value), name


# ---- TorchRL


class AsTorchRL(nn.Module):
    """Calls a layer, and reads its attributes, like TorchRL's LSTMModule and GRUModule."""

    def __init__(self, rnn):
        super().__init__()
        assert rnn.batch_first
        self.rnn = rnn

    def zeros(self, batch):
        rnn = self.rnn
        layers = rnn.num_layers * (2 if rnn.bidirectional else 1)
        size = rnn.proj_size if rnn.proj_size > 0 else rnn.hidden_size
        h = torch.zeros(layers, batch, size, dtype=torch.float64)
        return (h, torch.zeros_like(h)) if rnn.mode == "LSTM" else h

    def forward(self, x, is_init):
        """Runs each episode of [B, T] as a separate row, then restores the layout of the
        outputs."""
        is_init = is_init.squeeze(-1).clone()
        is_init[:, 0] = True
        begins = is_init.flatten().nonzero().squeeze(1)
        splits = torch.cat([begins, torch.tensor([is_init.numel()])]).diff()
        rows = list(x.flatten(0, 1).split(splits.tolist()))
        padded = nn.utils.rnn.pad_sequence(rows, batch_first=True)
        hidden = self.zeros(len(rows))
        mask = torch.arange(padded.shape[1]).unsqueeze(0) < splits.unsqueeze(1)
        if isinstance(self.rnn, nn.RNNBase):
            packed = pack_padded_sequence(padded, splits, batch_first=True, enforce_sorted=False)
            y = pad_packed_sequence(self.rnn(packed, hidden)[0], batch_first=True)[0]
        else:
            y, _ = self.rnn(padded, hidden, mask=mask)
        return y[mask].view(*x.shape[:2], -1)


IS_INIT = RESETS.T[..., None].bool()


@layers
def test_layers_are_used_like_those_of_torchrl(layer, torchs):
    module, other = plain_pair(layer, torchs, num_layers=2, batch_first=True)
    x = inputs(batch_first=True)
    y = AsTorchRL(module)(x, IS_INIT)
    torch.testing.assert_close(y, AsTorchRL(other)(x, IS_INIT), **CLOSE)
    torch.testing.assert_close(y, module(x, resets=IS_INIT)[0], **CLOSE)


@pytest.mark.parametrize(("layer", "torchs"), LAYERS[:2], ids=name_of)
@pytest.mark.parametrize("variant", ["plain", "paper"])
def test_modules_of_torchrl_accept_the_layers(layer, torchs, variant):
    torchrl = pytest.importorskip("torchrl.modules", reason="torchrl is not installed")
    tensordict = pytest.importorskip("tensordict", reason="tensordict is not installed")
    lstm = layer is LayerNormLSTM
    states = ["h", "c"] if lstm else ["h"]
    keys = {"in_keys": ["x", *states], "out_keys": ["y", *(("next", key) for key in states)]}
    wrapper, name = (torchrl.LSTMModule, "lstm") if lstm else (torchrl.GRUModule, "gru")

    rnn = layer(I, H, 2, batch_first=True, variant=variant, dtype=torch.float64)
    data = {"x": inputs(batch_first=True), "is_init": IS_INIT}
    data |= {key: torch.zeros(B, T, 2, H, dtype=torch.float64) for key in states}
    batch = tensordict.TensorDict(data, [B, T])
    module = wrapper(**{name: rnn}, **keys)
    assert module.make_tensordict_primer().primers["h"].shape == (2, H)
    with torchrl.set_recurrent_mode(True):
        y = module(batch.clone())
    torch.testing.assert_close(y["y"], rnn(data["x"], resets=IS_INIT)[0], **CLOSE)
    with torchrl.set_recurrent_mode(False):
        step = module(batch[:, 0].clone())
    torch.testing.assert_close(step["y"], y["y"][:, 0], **CLOSE)
    if variant == "plain":
        other = torchs(I, H, 2, batch_first=True, dtype=torch.float64)
        other.load_state_dict(rnn.state_dict())
        with torchrl.set_recurrent_mode(True):
            expected = wrapper(**{name: other}, **keys)(batch.clone())
        for key in ("y", *(("next", key) for key in states)):
            torch.testing.assert_close(y[key], expected[key], **CLOSE)

    # The other backends compute torch.nn's equations from the weights, so they must fail.
    scan = wrapper(**{name: rnn}, **keys, recurrent_backend="scan")
    with torchrl.set_recurrent_mode(True), pytest.raises(AttributeError, match="_all_weights"):
        scan(batch.clone())
