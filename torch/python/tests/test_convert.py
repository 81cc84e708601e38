"""planish.convert on layers of torch.nn and on models of Hugging Face's transformers."""

import copy
import functools
import importlib
import importlib.util
import os
import pickle
import shutil
import sys
import warnings

import planish
import planish.nn as pnn
import pytest
import torch
from planish._convert import TARGETS
from torch import nn
from torch.nn.utils import prune


def normal(*shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def randomise(model):
    """Gives norms random weights and biases."""
    with torch.no_grad():
        for i, (name, parameter) in enumerate(model.named_parameters()):
            if parameter.dim() == 1:
                parameter.add_(normal(*parameter.shape, seed=i) * 0.2)
    return model


def encoder(norm_first=False, layers=2, **options):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(
        16, 2, 32, dropout=0.0, batch_first=True, norm_first=norm_first, **options
    )
    net = nn.TransformerEncoder(
        layer, layers, norm=nn.LayerNorm(16), enable_nested_tensor=not norm_first
    )
    return randomise(net)


def distance(a, b):
    return float((a - b).detach().abs().max())


def assert_same_numbers(before, after, inputs, tolerance):
    """Compares outputs and gradients, relative to the largest element of each tensor."""
    results = []
    for model in (before, after):
        model.zero_grad()
        y = inputs(model)
        (y * normal(*y.shape, seed=5)).sum().backward()
        results.append([y.detach(), *[p.grad for p in model.parameters()]])
    assert len(results[0]) == len(results[1])
    for expected, got in zip(*results):
        if expected is None:  # compiled code can return zeros instead
            assert got is None or not got.any()
            continue
        scale = max(float(expected.abs().max()), 1e-3)
        assert float((got - expected).abs().max()) <= tolerance * scale


# A few float32 layers round values of up to 10 at 6e-8; gradients sum 15 positions.
FLOAT = 1e-5
ALL_TYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


@pytest.mark.parametrize("norm_first", [False, True])
def test_transformer_encoder(norm_first):
    before = encoder(norm_first)
    after = copy.deepcopy(before)
    parameters = dict(after.named_parameters())
    report = planish.convert(after, "planish")
    assert [change.names[0] for change in report.changed] == [
        "layers.0.norm1",
        "layers.0.norm2",
        "layers.1.norm1",
        "layers.1.norm2",
        "norm",
    ]
    assert report.left == []
    assert all(isinstance(after.get_submodule(c.names[0]), pnn.LayerNorm) for c in report.changed)
    # The parameters are the same objects, so an optimizer keeps working.
    assert all(parameters[name] is p for name, p in after.named_parameters())
    assert after.state_dict().keys() == before.state_dict().keys()
    assert_same_numbers(before, after, lambda model: model(normal(3, 5, 16)), FLOAT)


@pytest.mark.parametrize("to", [to for to in TARGETS if to not in ("torch", "layer_norm_rnn")])
def test_transformer_encoder_uses_its_norms_in_evaluation(to):
    """torch.nn's fast path would compute LayerNorm itself."""
    model = encoder().eval()
    x = normal(3, 5, 16)
    padding = torch.zeros(3, 5, dtype=torch.bool)
    padding[1, 3:] = True
    assert model.use_nested_tensor  # the fast path is on
    with torch.no_grad():
        plain = model(x)
    report = planish.convert(model, to)
    assert len(report.changed) == 5
    assert "TransformerEncoderLayer" in report.notes[0]
    with torch.no_grad():
        fast = model(x)
        padded = model(x, src_key_padding_mask=padding)
    slow = model.train()(x).detach()  # dropout is 0, so training computes the same
    short = model(x[1:2, :3]).detach()[0]
    assert distance(fast, slow) < 1e-5  # attention also has a fast path
    assert distance(padded[1, :3], short) < 1e-5  # equals the sequence without padding
    if to in ("planish", "layer"):
        assert distance(fast, plain) < 1e-5
    else:
        assert distance(fast, plain) > 1e-2  # another norm gives other results


def test_fast_path_of_an_encoder_layer_in_a_later_encoder():
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True).eval()
    planish.convert(layer, "ada")
    net = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    x = normal(2, 4, 16)
    with torch.no_grad():
        assert distance(net(x), net.train()(x)) < 1e-5


@pytest.mark.parametrize(
    ("to", "expected"),
    [
        ("layer", pnn.LayerNorm),
        ("rms", pnn.RMSNorm),
        ("simple", pnn.LayerNormSimple),
        ("detach", pnn.DetachNorm),
        ("detach_mean", pnn.DetachNorm),
        ("detach_std", pnn.DetachNorm),
        ("ada", pnn.AdaNorm),
        ("ada_as_coded", pnn.AdaNorm),
        ("none", nn.Identity),
    ],
)
@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.LayerNorm((3, 4), eps=1e-3),
        lambda: nn.LayerNorm((3, 4), bias=False),
        lambda: nn.LayerNorm((3, 4), elementwise_affine=False),
        lambda: nn.RMSNorm((3, 4), eps=1e-3),
        lambda: pnn.AdaNorm((3, 4), C=7.0),
        lambda: pnn.DetachNorm((3, 4), mean=False, std=False),
        lambda: pnn.LayerNormSimple((3, 4), eps=1e-3),
    ],
)
def test_every_row_norm_to_every_target(make, to, expected):
    model = randomise(nn.Sequential(nn.Linear(4, 4), make()))
    before = model[1]
    report = planish.convert(model, to)
    after = model[1]
    if report.left:
        assert report.left[0].reason == "it is one already"
        assert after is before
        return
    assert type(after) is expected
    if to == "none":
        return
    assert after.normalized_shape == (3, 4)
    assert after.eps == before.eps
    own = dict(before.named_parameters())
    for name, parameter in after.named_parameters():
        if name in own:
            assert parameter is own[name]
        else:
            assert torch.equal(parameter, torch.full((3, 4), float(name == "weight")))
    change = report.changed[0]
    assert set(change.dropped) == own.keys() - dict(after.named_parameters()).keys()
    assert set(change.added) == dict(after.named_parameters()).keys() - own.keys()
    affine = getattr(before, "elementwise_affine", True)
    if to in ("layer", "rms"):
        assert (after.weight is not None) == affine
    if to == "layer":
        unbiased = isinstance(before, nn.LayerNorm) and before.bias is None
        assert (after.bias is not None) == (affine and not unbiased)
    if to.startswith("detach"):
        assert (after.mean, after.std) == (to != "detach_std", to != "detach_mean")
    if to.startswith("ada"):
        assert (after.C, after.k, after.as_coded) == (1.0, 0.1, to == "ada_as_coded")


def test_options_reach_the_new_modules():
    model = nn.Sequential(nn.LayerNorm(4))
    planish.convert(model, "ada", C=2.0, k=0.25, eps=1e-3)
    assert str(model[0]) == "AdaNorm((4,), C=2.0, k=0.25, as_coded=False, eps=0.001)"
    planish.convert(model, "layer", eps=1e-4)
    assert model[0].eps == 1e-4


def test_batch_norms():
    model = randomise(
        nn.Sequential(nn.BatchNorm2d(4, momentum=None), nn.Flatten(2), nn.BatchNorm1d(4, eps=1e-3))
    )
    twin = copy.deepcopy(model)
    model(normal(5, 4, 3, 2))
    twin(normal(5, 4, 3, 2))
    tensors = model.state_dict(keep_vars=True)
    report = planish.convert(model, "planish")
    assert [type(m) for m in model] == [pnn.BatchNorm2d, nn.Flatten, pnn.BatchNorm1d]
    assert all(tensors[key] is value for key, value in model.state_dict(keep_vars=True).items())
    for _ in range(2):
        x = normal(5, 4, 3, 2, seed=1)
        torch.testing.assert_close(model(x), twin(x), rtol=0, atol=1e-5)  # elements up to 4
        model.eval(), twin.eval()
    assert [str(model[i]) for i in (0, 2)] == [str(twin[i]) for i in (0, 2)]

    report = planish.convert(model, "ada")
    assert report.changed == []
    reason = 'it normalizes channels, "ada" normalizes rows'
    assert {left.reason for left in report.left} == {reason}
    weight = model[0].weight
    report = planish.convert(model, "layer")
    assert [type(m) for m in model] == [pnn.LayerNorm2d, nn.Flatten, pnn.LayerNorm1d]
    assert report.changed[0].dropped == ("running_mean", "running_var", "num_batches_tracked")
    assert model[0].weight is weight
    assert model[2].eps == 1e-3
    model(normal(5, 4, 3, 2))


def test_flags_types_hooks_and_sharing_are_kept():
    """Training flag, type, device, hooks and shared modules are kept."""
    shared = nn.LayerNorm(4, dtype=torch.float64).requires_grad_(False).eval()
    tied = nn.LayerNorm(4, dtype=torch.float64)
    tied.weight = shared.weight
    model = nn.ModuleDict({"a": shared, "b": nn.ModuleList([shared, tied])})
    seen = []
    handle = shared.register_forward_hook(lambda module, args, y: seen.append(type(module)))
    shared.register_forward_pre_hook(
        lambda module, args, kwargs: (tuple(2 * a for a in args), kwargs), with_kwargs=True
    )
    report = planish.convert(model, "planish")
    assert [change.names for change in report.changed] == [("a", "b.0"), ("b.1",)]
    assert "a = b.0, b.1" in str(report)
    after = model["a"]
    assert type(after) is pnn.LayerNorm
    assert after is model["b"][0]
    assert model["b"][1].weight is after.weight
    assert not after.training
    assert model["b"][1].training
    assert after.weight.dtype == torch.float64
    assert not after.weight.requires_grad
    x = normal(3, 4, dtype=torch.float64)
    expected = nn.functional.layer_norm(2 * x, [4])
    assert float((after(x) - expected).abs().max()) < 1e-13  # float64, a few roundings
    assert seen == [pnn.LayerNorm]
    handle.remove()
    after(x)
    assert len(seen) == 1
    on_meta = nn.Sequential(nn.LayerNorm(4, device="meta"))
    planish.convert(on_meta, "rms")
    assert on_meta[0].weight.is_meta


class Subclass(nn.LayerNorm):
    pass


class PlusThree(nn.Module):
    """A norm that multiplies by 3 + weight."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(4))
        self.eps = 1e-6

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, True) + self.eps) * (3 + self.weight)


class EpsOutside(PlusThree):
    def forward(self, x):
        return x / (x.square().mean(-1, True).sqrt() + self.eps) * self.weight


class InAllButName(PlusThree):
    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.square().mean(-1, True) + self.eps))


PlusThree.__name__ = "PlusThreeRMSNorm"
EpsOutside.__name__ = "EpsOutsideRMSNorm"
InAllButName.__name__ = "InAllButNameRMSNorm"


def test_unsupported_modules_are_left():
    parametrised = nn.utils.parametrizations.weight_norm(nn.LayerNorm((4, 4)))
    replaced = nn.LayerNorm(4)
    replaced.forward = lambda x: x
    hooked = nn.LayerNorm(4)
    hooked.register_state_dict_post_hook(lambda *arguments: None)
    more = nn.LayerNorm(4)
    more.register_parameter("adapter", nn.Parameter(torch.ones(4)))
    weight = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))
    model = nn.ModuleList(
        [
            Subclass(4), parametrised, replaced, hooked, more, nn.LocalResponseNorm(2), PlusThree(),
            EpsOutside(), nn.BatchNorm3d(4), nn.SyncBatchNorm(4), pnn.LayerNorm(4), weight,
        ]
    )  # fmt: skip
    before = list(model)
    report = planish.convert(model, "planish")
    assert report.changed == []
    assert all(a is b for a, b in zip(model, before, strict=True))
    unknown = "unknown class, not judged to be an RMSNorm: its forward is not understood: "
    assert [(left.names[0], left.kind, left.reason) for left in report.left] == [
        ("0", "Subclass", "it is a LayerNorm of another class"),
        ("1", "ParametrizedLayerNorm", "it is parametrized"),
        ("2", "LayerNorm", "its forward is replaced"),
        ("3", "LayerNorm", "it has state-dict hooks"),
        ("4", "LayerNorm", "it also holds adapter"),
        ("5", "LocalResponseNorm", "there is no replacement for LocalResponseNorm"),
        ("6", "PlusThreeRMSNorm", f"{unknown}3 + self.weight"),
        ("7", "EpsOutsideRMSNorm", f"{unknown}x.square().mean(-1, True).sqrt()"),
        ("8", "BatchNorm3d", "there is no replacement for BatchNorm3d"),
        ("9", "SyncBatchNorm", "there is no replacement for SyncBatchNorm"),
        ("10", "planish.nn.LayerNorm", "it is this library's already"),
    ]


def test_an_rmsnorm_of_another_class_is_replaced():
    model = nn.Sequential(InAllButName())
    weight = model[0].weight
    state = torch.get_rng_state()
    report = planish.convert(model, "planish")
    assert torch.equal(torch.get_rng_state(), state)
    assert str(report) == (
        'convert to "planish": 1 changed, 0 left\n'
        "  1 x InAllButNameRMSNorm -> planish.nn.RMSNorm\n"
        "      0"
    )
    assert model[0].weight is weight
    assert model[0].eps == 1e-6


@pytest.mark.parametrize(
    ("filter", "names"),
    [
        (nn.LayerNorm, ["a", "b.0"]),
        ("b.*", ["b.0", "b.1"]),
        (["a", nn.RMSNorm], ["a", "b.1"]),
        (lambda name, module: module.normalized_shape == (3,), ["b.0"]),
        ((), []),
    ],
)
def test_filter_selects_modules(filter, names):
    model = nn.ModuleDict(
        {"a": nn.LayerNorm(4), "b": nn.ModuleList([nn.LayerNorm(3), nn.RMSNorm(2)])}
    )
    report = planish.convert(model, "simple", filter=filter)
    assert [change.names[0] for change in report.changed] == names
    assert len(report.left) == 3 - len(names)
    assert {left.reason for left in report.left} <= {"excluded by the filter"}
    for name in ("a", "b.0", "b.1"):
        assert isinstance(model.get_submodule(name), pnn.LayerNormSimple) == (name in names)


def test_recurrent_layers():
    """Weights are the same, and the two biases of an LSTM are added."""
    torch.manual_seed(0)
    model = nn.ModuleDict(
        {
            "lstm": nn.LSTM(3, 4, 2, bidirectional=True, batch_first=True),
            "gru": nn.GRU(3, 4, bias=False),
            "rnn": nn.RNN(3, 4, nonlinearity="relu"),
            "projected": nn.LSTM(3, 4, proj_size=2),
        }
    ).eval()
    before = copy.deepcopy(model)
    own = dict(model.named_parameters())
    state = torch.get_rng_state()
    report = planish.convert(model, "layer_norm_rnn")
    assert torch.equal(torch.get_rng_state(), state)
    assert [change.after for change in report.changed] == [
        "planish.nn.LayerNormLSTM",
        "planish.nn.LayerNormGRU",
        "planish.nn.LayerNormRNN",
        "planish.nn.LayerNormLSTM",
    ]
    assert not report.left
    for name, parameter in model.named_parameters():
        assert not parameter.is_meta
        if "lstm.bias" in name or "projected.bias" in name:
            both = own[name] + own[name.replace("bias_ih", "bias_hh")]
            assert torch.equal(parameter, both)
        elif ".ln_" in name:
            assert torch.equal(parameter, torch.full_like(parameter, float("_weight" in name)))
        else:
            assert parameter is own[name]
    # Equals a new module that loads the state dict of the old one.
    fresh = pnn.LayerNormLSTM(3, 4, 2, bidirectional=True, batch_first=True).eval()
    fresh.load_state_dict(before["lstm"].state_dict(), strict=False)
    x = normal(2, 5, 3)
    assert torch.equal(model["lstm"](x)[0], fresh(x)[0])
    assert not model["lstm"].training
    for name in ("lstm", "projected"):
        plain = nn.Sequential(copy.deepcopy(before[name]))
        planish.convert(plain, "layer_norm_rnn", variant="plain")
        assert distance(plain[0](x)[0], before[name](x)[0]) < 1e-6  # outputs below 1
        planish.convert(plain, "torch")
        assert type(plain[0]) is nn.LSTM and plain[0].proj_size == before[name].proj_size
        assert torch.equal(plain[0](x)[0], before[name](x)[0])


COMPUTED = "is not a parameter: a hook or a wrapper computes it"


def old_weight_norm(lstm):
    with warnings.catch_warnings():  # PyTorch deprecates it
        warnings.simplefilter("ignore")
        return nn.utils.weight_norm(lstm, "weight_hh_l0")


def weight_drop(lstm):
    """Like AWD-LSTM, computes the weight before each call in a wrapper."""
    weight = lstm._parameters.pop("weight_hh_l0")
    lstm.register_parameter("weight_hh_l0_raw", weight)
    lstm.weight_hh_l0 = weight * 0.5
    return lstm


def plain_tensor(lstm):
    lstm._parameters["weight_hh_l0"] = lstm.weight_hh_l0.detach()
    return lstm


def with_hook(lstm):
    lstm.register_forward_pre_hook(lambda module, args: module.weight_hh_l0.data.mul_(0.5))
    return lstm


def with_forward(lstm):
    lstm.forward = lambda x: x
    return lstm


def with_flatten(lstm):
    lstm.flatten_parameters = lambda: None
    return lstm


def with_other_flat_weights(lstm):
    lstm._flat_weights = [weight.detach().clone() for weight in lstm._flat_weights]
    return lstm


def with_child(lstm):
    lstm.adapter = nn.Linear(3, 3)
    return lstm


def with_own_tie(lstm):
    lstm.bias_ih_l0 = lstm.bias_hh_l0
    return lstm


def with_quantized_weight(lstm):
    lstm.weight_hh_l0 = nn.Parameter(lstm.weight_hh_l0.to(torch.int8), requires_grad=False)
    return lstm


def with_state_hook(lstm):
    lstm.register_state_dict_post_hook(lambda *arguments: None)
    return lstm


class SubclassedLSTM(nn.LSTM):
    pass


@pytest.mark.parametrize(
    ("alter", "reason"),
    [
        (old_weight_norm, f"its weight_hh_l0 {COMPUTED}"),
        (lambda m: nn.utils.spectral_norm(m, "weight_hh_l0"), f"its weight_hh_l0 {COMPUTED}"),
        (lambda m: prune.random_unstructured(m, "weight_hh_l0", 0.5), f"its weight_hh_l0 {COMPUTED}"),
        (lambda m: prune.identity(m, "bias_ih_l0"), f"its bias_ih_l0 {COMPUTED}"),
        (lambda m: nn.utils.parametrizations.weight_norm(m, "weight_hh_l0"), "it is parametrized"),
        (lambda m: nn.utils.parametrizations.spectral_norm(m, "weight_ih_l0"), "it is parametrized"),
        (weight_drop, f"its weight_hh_l0 {COMPUTED}"),
        (plain_tensor, "its weight_hh_l0 is a Tensor, not a plain parameter"),
        (with_hook, "it has a forward pre-hook, which can rewrite its weights"),
        (with_forward, "its forward is replaced"),
        (with_flatten, "its flatten_parameters is replaced"),
        (with_other_flat_weights, "its flat weights are not its parameters"),
        (with_child, "it also holds adapter"),
        (with_own_tie, "its bias_hh_l0 is its bias_ih_l0"),
        (with_quantized_weight, "its weight_hh_l0 has type torch.int8"),
        (with_state_hook, "it has state-dict hooks"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_an_altered_recurrent_layer_is_left(kind, alter, reason):
    model = nn.Sequential(kind(3, 4))
    alter(model[0])
    before = model[0]
    attributes = dict(vars(before))
    report = planish.convert(model, "layer_norm_rnn")
    assert report.changed == []
    assert [left.reason for left in report.left] == [reason]
    assert model[0] is before
    assert vars(before) == attributes


def test_other_recurrent_classes_are_left():
    model = nn.ModuleDict(
        {
            "subclass": SubclassedLSTM(3, 4),
            "compiled": torch.compile(nn.GRU(3, 4), backend="eager"),
            "a": nn.LSTM(3, 4),
            "b": nn.LSTM(3, 4),
            "cell": nn.LSTMCell(3, 4),
            "tied": nn.RNN(3, 4),
            "view": nn.RNN(3, 4),
        }
    )
    model["b"].weight_hh_l0 = model["a"].weight_hh_l0
    model["c"] = nn.Linear(4, 4)
    model["c"].weight = model["tied"].weight_hh_l0
    model["d"] = nn.Linear(4, 4, bias=False)
    model["d"].weight.data = model["view"].weight_hh_l0.data[:2]
    report = planish.convert(model, "layer_norm_rnn")
    assert report.changed == []
    assert [(left.names[0], left.reason) for left in report.left] == [
        ("subclass", "it is a recurrent layer of another class"),
        ("compiled._orig_mod", "it is compiled by torch.compile"),
        ("a", "its weight_hh_l0 shares memory with b.weight_hh_l0"),
        ("b", "its weight_hh_l0 shares memory with a.weight_hh_l0"),
        ("tied", "its weight_hh_l0 shares memory with c.weight"),
        ("view", "its weight_hh_l0 shares memory with d.weight"),
    ]


def test_a_recurrent_layer_with_two_names_is_converted_and_stays_shared():
    layer = nn.LSTM(3, 4).double()
    layer.bias_ih_l0.requires_grad_(False)
    seen = []
    layer.register_forward_hook(lambda module, args, y: seen.append(type(module)))
    model = nn.ModuleDict({"a": layer, "b": layer})
    report = planish.convert(model, "layer_norm_rnn")
    assert [change.names for change in report.changed] == [("a", "b")]
    assert model["a"] is model["b"]
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float64}
    assert all(parameter.requires_grad for parameter in model.parameters())
    model["a"](normal(5, 2, 3, dtype=torch.float64))
    assert seen == [pnn.LayerNormLSTM]


def test_a_recurrent_layer_that_transformers_has_marked_is_converted():
    model = nn.Sequential(nn.LSTM(3, 4))
    model[0]._is_hf_initialized = True
    assert not planish.convert(model, "layer_norm_rnn").left


@pytest.mark.parametrize("change", [copy.deepcopy, lambda lstm: lstm.freeze() or lstm])
def test_layers_of_torch_get_no_attributes_of_this_library(change):
    model = nn.Sequential(change(pnn.LayerNormLSTM(3, 4, variant="plain").eval()))
    planish.convert(model, "torch")
    assert vars(model[0]).keys() == vars(nn.LSTM(3, 4)).keys()


@pytest.mark.parametrize("variant", ["haste", "dreamer"])
def test_a_converted_gru_has_the_norms_of_a_new_one(variant):
    model = nn.Sequential(nn.GRU(3, 4))
    planish.convert(model, "layer_norm_rnn", variant=variant)
    new = pnn.LayerNormGRU(3, 4, variant=variant)
    for name, parameter in new.named_parameters():
        if name.startswith("ln_"):
            assert torch.equal(getattr(model[0], name), parameter)


def test_a_variant_that_only_some_layers_have_leaves_the_others():
    model = nn.ModuleList([nn.LSTM(3, 4), nn.GRU(3, 4), nn.RNN(3, 4, nonlinearity="relu")])
    report = planish.convert(model, "layer_norm_rnn", variant="tfa")
    assert [change.after for change in report.changed] == ["planish.nn.LayerNormLSTM"]
    assert [left.reason for left in report.left] == [
        'GRU has no variant "tfa"',
        'RNN has no variant "tfa"',
    ]


# Instances of known classes with additions of their own.


def with_bias_alone(norm):
    norm.weight = None


def with_wrong_shape(norm):
    norm.weight = nn.Parameter(torch.ones(2, 2))


def with_integers(norm):
    norm.weight = nn.Parameter(torch.ones(4, 4, dtype=torch.int32), requires_grad=False)


def with_two_types(norm):
    norm.weight = nn.Parameter(norm.weight.data.half())


def with_subclass(norm):
    norm.weight = nn.Parameter(norm.weight.data.as_subclass(OwnTensor))


def with_wrong_eps(norm):
    norm.eps = -1.0


def with_eps_tensor(norm):
    norm.eps = torch.tensor(1e-5)


def with_hidden_weight(norm):
    norm.__dict__["weight"] = norm.weight * 2


class OwnTensor(torch.Tensor):
    pass


def quiet(call):
    def quietly(module):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            call(module)

    return quietly


ALTERED = [
    (quiet(nn.utils.weight_norm), f"its weight {COMPUTED}"),
    (quiet(nn.utils.spectral_norm), f"its weight {COMPUTED}"),
    (lambda m: prune.l1_unstructured(m, "weight", 3), f"its weight {COMPUTED}"),
    (nn.utils.parametrizations.weight_norm, "it is parametrized"),
    (with_integers, "its weight has type torch.int32"),
    (with_subclass, "its weight is a OwnTensor, not a plain parameter"),
    (with_hidden_weight, "its weight is hidden by another attribute"),
    (with_wrong_eps, "its eps is -1.0"),
    (with_eps_tensor, "its eps is 9.999999747378752e-06"),
    (with_wrong_shape, "its normalized_shape is [4, 4], its parameters have [2, 2]"),
    (lambda m: m.compile(backend="eager"), "it is compiled by torch.compile"),
]  # fmt: skip


@pytest.mark.parametrize("to", ["planish", "ada"])
@pytest.mark.parametrize(
    ("make", "alter", "reason"),
    [(kind, *altered) for kind in (nn.LayerNorm, nn.RMSNorm) for altered in ALTERED]
    + [
        (nn.LayerNorm, with_bias_alone, "it has a bias but no weight"),
        (nn.LayerNorm, with_two_types, "its parameters have 2 types"),
    ],
)
def test_an_altered_norm_is_left(make, alter, reason, to):
    model = nn.Sequential(make((4, 4)))
    alter(model[0])
    before = model[0]
    report = planish.convert(model, to)
    assert report.changed == []
    assert [left.reason for left in report.left] == [reason]
    assert model[0] is before


def stop_tracking(norm):
    norm.track_running_stats = False


def drop_mean(norm):
    norm.running_mean = None


def drop_statistics(norm):
    norm.running_mean = norm.running_var = None


def set_momentum(norm):
    norm.momentum = 1.5


def set_size(norm):
    norm.num_features = 3


@pytest.mark.parametrize(
    ("alter", "reason"),
    [
        (stop_tracking, "its track_running_stats does not agree with its buffers"),
        (drop_mean, "its track_running_stats does not agree with its buffers"),
        (drop_statistics, "its track_running_stats does not agree with its buffers"),
        (set_momentum, "its momentum is 1.5"),
        (set_size, "its num_features is 3, its weight has [4]"),
        (lambda m: m.register_buffer("more", torch.ones(1)), "it also holds more"),
        (lambda m: prune.l1_unstructured(m, "weight", 2), f"its weight {COMPUTED}"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("to", ["planish", "layer"])
def test_an_altered_batch_norm_is_left(alter, reason, to):
    model = nn.Sequential(nn.BatchNorm2d(4))
    alter(model[0])
    report = planish.convert(model, to)
    assert report.changed == []
    assert [left.reason for left in report.left] == [reason]


@pytest.mark.parametrize(
    "options", [{}, {"momentum": None}, {"track_running_stats": False}, {"affine": False}]
)
def test_batch_norms_of_every_kind_compute_the_same_in_both_modes(options):
    norms = nn.BatchNorm2d(4, **options), nn.Flatten(2), nn.BatchNorm1d(4, **options)
    before = randomise(nn.Sequential(*norms))
    after = copy.deepcopy(before)
    assert len(planish.convert(after, "planish").changed) == 2
    for seed in range(3):
        for model in (before, after):
            model.train(seed < 2)
        x = normal(3, 4, 2, 3, seed=seed)
        # Elements up to 4, rounded at 6e-8 in a few operations.
        torch.testing.assert_close(after(x), before(x), rtol=0, atol=1e-5)
    for key, value in before.state_dict().items():
        torch.testing.assert_close(after.state_dict()[key], value, rtol=1e-6, atol=1e-6)


def test_lazy_norms_are_left_until_they_know_their_size():
    model = nn.Sequential(nn.LazyBatchNorm1d())
    reason = planish.convert(model, "planish").left[0].reason
    assert reason == "it is not initialized yet"
    model(normal(3, 4))
    assert len(planish.convert(model, "planish").changed) == 1


@pytest.mark.parametrize(
    "wrap", [lambda f: lambda *x: f(*x), lambda f: functools.wraps(f)(lambda *x: f(*x))]
)
def test_a_replaced_forward_of_a_class_leaves_its_instances(monkeypatch, wrap):
    monkeypatch.setattr(nn.LayerNorm, "forward", wrap(nn.LayerNorm.forward))
    model = nn.Sequential(nn.LayerNorm(4))
    reason = planish.convert(model, "planish").left[0].reason
    assert reason == "the forward of LayerNorm is replaced"


def test_a_sharded_model_is_left():
    class FullyShardedDataParallel(nn.Module):  # recognized by its name: the real class needs processes
        def __init__(self, module):
            super().__init__()
            self.module = module

    model = nn.Sequential(FullyShardedDataParallel(nn.Sequential(nn.LayerNorm(4))), nn.LayerNorm(4))
    report = planish.convert(model, "planish")
    assert [change.names for change in report.changed] == [("1",)]
    assert report.left[0].reason == "FSDP shards it: convert the model before"


def test_compiled_torchscript_is_left():
    model = nn.ModuleList([torch.jit.script(nn.Sequential(nn.LayerNorm(4)))])
    reason = planish.convert(model, "planish").left[0].reason
    assert reason == "it is compiled by torch.jit"


# Conversion to torch.nn.


def library():
    """Modules of this library with and without a counterpart in torch.nn."""
    equal = {
        "layer": (pnn.LayerNorm((3, 4), eps=1e-3), nn.LayerNorm),
        "no_bias": (pnn.LayerNorm(4, bias=False), nn.LayerNorm),
        "not_affine": (pnn.LayerNorm(4, elementwise_affine=False), nn.LayerNorm),
        "simple": (pnn.LayerNormSimple((3, 4), eps=1e-3), nn.LayerNorm),
        "rms": (pnn.RMSNorm(4), nn.RMSNorm),
        "rms_eps": (pnn.RMSNorm(4, eps=1e-3), nn.RMSNorm),
        "rms_not_affine": (pnn.RMSNorm(4, elementwise_affine=False), nn.RMSNorm),
        "batch": (pnn.BatchNorm1d(4, momentum=None), nn.BatchNorm1d),
        "batch_no_bias": (pnn.BatchNorm1d(4, bias=False), nn.BatchNorm1d),
        "batch_untracked": (pnn.BatchNorm1d(4, track_running_stats=False), nn.BatchNorm1d),
    }
    recurrent = {
        "lstm": (pnn.LayerNormLSTM(4, 5, 2, bidirectional=True, variant="plain"), nn.LSTM),
        "gru": (pnn.LayerNormGRU(4, 5, batch_first=True, variant="plain"), nn.GRU),
        "rnn": (pnn.LayerNormRNN(4, 5, nonlinearity="relu", variant="plain"), nn.RNN),
        "lstm_no_bias": (pnn.LayerNormLSTM(4, 5, bias=False, variant="plain"), nn.LSTM),
        "lstm_cell": (pnn.LayerNormLSTMCell(4, 5, variant="plain"), nn.LSTMCell),
        "gru_cell": (pnn.LayerNormGRUCell(4, 5, bias=False, variant="plain"), nn.GRUCell),
        "rnn_cell": (pnn.LayerNormRNNCell(4, 5, variant="plain"), nn.RNNCell),
    }
    return equal | recurrent


def tensors_of(outputs):
    for y in outputs if isinstance(outputs, tuple) else (outputs,):
        if isinstance(y, tuple):
            yield from tensors_of(y)
        else:
            yield y


@pytest.mark.parametrize("name", library())
def test_modules_with_a_counterpart_in_torch_are_converted(name):
    torch.manual_seed(0)
    module, kind = library()[name]
    model = randomise(nn.ModuleDict({"a": module}))
    seen = []
    handle = module.register_forward_hook(lambda module, args, y: seen.append(type(module)))
    flat = name.startswith("batch") or name.endswith("cell")
    x = normal(3, 4) if flat else normal(2, 3, 4)
    twin = copy.deepcopy(model)
    state = model.state_dict(keep_vars=True)
    report = planish.convert(model, "torch")
    assert report.left == []
    assert type(model["a"]) is kind
    assert all(model.state_dict(keep_vars=True)[key] is value for key, value in state.items())
    assert list(model.state_dict()) == list(twin.state_dict())
    for training in (True, False):
        for one in (model, twin):
            one.train(training)
        for y, expected in zip(tensors_of(model["a"](x)), tensors_of(twin["a"](x)), strict=True):
            torch.testing.assert_close(y, expected, rtol=0, atol=FLOAT)  # elements up to 4
    assert kind in seen
    handle.remove()
    assert not model["a"]._forward_hooks


def test_modules_without_a_counterpart_in_torch_are_left():
    model = nn.ModuleList(
        [
            pnn.AdaNorm(4), pnn.DetachNorm(4), pnn.LayerNorm1d(4), pnn.LayerNorm2d(4),
            pnn.OnlineLayerNorm(4), pnn.RecurrentBatchNorm(4, 5), pnn.BatchNorm1d(4, unbiased=True),
            pnn.LayerNormLSTM(4, 5), pnn.LayerNormGRUCell(4, 5), SubclassOfOurs(4), nn.LayerNorm(4),
            pnn.weight_norm(nn.Linear(4, 4)),
        ]
    )  # fmt: skip
    before = list(model)
    report = planish.convert(model, "torch")
    assert report.changed == []
    assert [left.reason for left in report.left] == [
        "torch.nn has no AdaNorm",
        "torch.nn has no DetachNorm",
        "torch.nn has no LayerNorm1d",
        "torch.nn has no LayerNorm2d",
        "torch.nn has no OnlineLayerNorm",
        "torch.nn has no RecurrentBatchNorm",
        "torch.nn has no BatchNorm1d with unbiased=True",
        'torch.nn has no LayerNormLSTM of variant "paper"',
        'torch.nn has no LayerNormGRUCell of variant "paper"',
        "it is a LayerNorm of another class",
    ]
    assert all(a is b for a, b in zip(model, before, strict=True))


class SubclassOfOurs(pnn.LayerNorm):
    pass


def test_conversion_to_torch_restores_the_model():
    torch.manual_seed(0)
    model = nn.ModuleDict(
        {
            "encoder": encoder(),
            "rms": nn.RMSNorm(16, eps=1e-3),
            "batch": nn.BatchNorm2d(3, momentum=None),
            "lstm": nn.LSTM(16, 4),
        }
    ).eval()
    model["again"] = model["rms"]
    model["rms"].register_forward_pre_hook(lambda module, args: None)
    twin = copy.deepcopy(model)
    state = model.state_dict(keep_vars=True)
    planish.convert(model, "planish")
    planish.convert(model, "layer_norm_rnn", variant="plain")
    report = planish.convert(model, "torch")
    assert report.left == []
    assert report.notes == ["the fast path of 2 TransformerEncoderLayer is on again"]
    kinds = [(name, type(module)) for name, module in model.named_modules(remove_duplicate=False)]
    assert kinds == [
        (name, type(module)) for name, module in twin.named_modules(remove_duplicate=False)
    ]
    assert str(model) == str(twin)
    assert all(model.state_dict(keep_vars=True)[key] is value for key, value in state.items())
    assert [len(m._forward_pre_hooks) for m in model.modules()] == [
        len(m._forward_pre_hooks) for m in twin.modules()
    ]
    for one, other in zip(model.modules(), twin.modules(), strict=True):
        assert vars(one).keys() == vars(other).keys()
    x = normal(2, 5, 16)
    with torch.no_grad():
        assert torch.equal(model["encoder"](x), twin["encoder"](x))
        assert torch.equal(model["lstm"](x)[0], twin["lstm"](x)[0])


def test_the_fast_path_is_restored_with_the_norms_of_torch():
    model = encoder().eval()
    padding = torch.zeros(3, 5, dtype=torch.bool)
    padding[1, 3:] = True
    x = normal(3, 5, 16)
    with torch.no_grad():
        expected = model(x, src_key_padding_mask=padding)
    planish.convert(model, "planish", filter="layers.0.*")
    off = [layer.activation_relu_or_gelu for layer in model.layers]
    assert (off[0], model.use_nested_tensor) == (0, False)
    assert off[1] != 0
    planish.convert(model, "planish", filter="layers.1.*")
    # Converting one layer back leaves the encoder's setting off: the other layer cannot read nested
    # tensors.
    report = planish.convert(model, "torch", filter="layers.0.*")
    assert report.notes == ["the fast path of 1 TransformerEncoderLayer is on again"]
    assert not model.use_nested_tensor
    with torch.no_grad():
        assert distance(model(x, src_key_padding_mask=padding)[1, :3], expected[1, :3]) < FLOAT
    planish.convert(model, "torch")
    assert model.use_nested_tensor
    with torch.no_grad():
        assert torch.equal(model(x, src_key_padding_mask=padding), expected)


def test_a_fast_path_that_the_user_switched_off_stays_off():
    model = encoder().eval()
    model.use_nested_tensor = False
    model.layers[0].activation_relu_or_gelu = 0
    planish.convert(model, "planish")
    planish.convert(model, "torch")
    assert not model.use_nested_tensor
    assert [layer.activation_relu_or_gelu for layer in model.layers] == [0, 1]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: planish.convert(m, "batch"), f"[convert] to must be one of {', '.join(TARGETS)}, got 'batch'"),
        (lambda m: planish.convert(m, "layer", C=2.0), '[convert] C must be left out for "layer", got 2.0'),
        (lambda m: planish.convert(m, "rms", k=0.1), '[convert] k must be left out for "rms", got 0.1'),
        (lambda m: planish.convert(m, "ada", variant="paper"), '[convert] variant must be left out for "ada", got paper'),
        (lambda m: planish.convert(m, "none", eps=0.1), '[convert] eps must be left out for "none", got 0.1'),
        (lambda m: planish.convert(m, "torch", eps=0.1), '[convert] eps must be left out for "torch", got 0.1'),
        (lambda m: planish.convert(m, "ada", C=float("inf")), "[convert] C must be finite, got inf"),
        (lambda m: planish.convert(m, "layer_norm_rnn", variant="x"), "[convert] variant must be one that a recurrent layer has, got 'x'"),
        (lambda m: planish.convert(m[1], "ada"), "[convert] model must hold the norms to replace, got a LayerNorm itself"),
        (lambda m: planish.convert(m, "ada", eps=-1.0), "[convert] eps must be finite and at least 0, got -1"),
    ],
)  # fmt: skip
def test_errors_change_nothing(call, message):
    model = nn.Sequential(nn.LayerNorm(4), nn.LayerNorm(4))
    before = list(model)
    with pytest.raises(ValueError) as error:
        call(model)
    assert str(error.value) == message
    assert list(model) == before


# Models of other authors in float32. A dozen products and norms, and their gradients, each round at
# 6e-8 of the largest elements: 2e-5 of the largest element of a tensor.
MODEL = 2e-5


@pytest.fixture(scope="module")
def transformers():
    return pytest.importorskip("transformers", reason="transformers is not installed")


def bert(transformers):
    return transformers.BertConfig(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)


def llama(transformers):
    return transformers.LlamaConfig()


def qwen3(transformers):
    return transformers.Qwen3Config(head_dim=8)


def olmo2(transformers):
    return transformers.Olmo2Config()


def mamba(transformers):
    return transformers.MambaConfig(state_size=8)


def mamba2(transformers):
    return transformers.Mamba2Config(
        vocab_size=50, hidden_size=32, num_hidden_layers=2, num_heads=8, head_dim=8, state_size=8,
        n_groups=1, chunk_size=4,
    )  # fmt: skip


def gemma(transformers):
    return transformers.GemmaConfig(head_dim=8)


def gemma2(transformers):
    return transformers.Gemma2Config(head_dim=8)


def gemma3(transformers):
    return transformers.Gemma3TextConfig(head_dim=8)


def qwen3_next(transformers):
    return transformers.Qwen3NextConfig(
        head_dim=8, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8,
        linear_value_head_dim=8, moe_intermediate_size=16, shared_expert_intermediate_size=16,
        num_experts=4, num_experts_per_tok=2, num_hidden_layers=2,
        layer_types=["linear_attention", "full_attention"],
    )  # fmt: skip


def cohere(transformers):
    return transformers.CohereConfig()


def t5(transformers):
    return transformers.T5Config(
        vocab_size=50, d_model=32, d_kv=8, d_ff=64, num_heads=4, num_layers=2, dropout_rate=0
    )


def convnext(transformers):
    return transformers.ConvNextConfig(depths=[1, 1], hidden_sizes=[8, 16], num_stages=2)


def resnet(transformers):
    return transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1])


def small(transformers, make):
    """Returns a model of the family with two layers and random norms."""
    config = make(transformers)
    sizes = {
        "vocab_size": 50, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
        "pad_token_id": 0,
    }  # fmt: skip
    own = config.to_dict()
    for name, size in sizes.items():
        if name in own and make not in (mamba2, t5, convnext, resnet):
            setattr(config, name, size)
    torch.manual_seed(0)
    if make is t5:
        return randomise(transformers.T5EncoderModel(config))
    return randomise(transformers.AutoModel.from_config(config))


def run(model):
    """Returns the last hidden states of two short texts or images."""
    if model.main_input_name == "pixel_values":
        x = normal(2, 3, 16, 16, dtype=next(model.parameters()).dtype)
    else:
        x = torch.arange(12).reshape(2, 6)
    return model(x).last_hidden_state


@pytest.mark.parametrize(("make", "norms"), [(bert, 5), (llama, 5)])
def test_hugging_face(transformers, make, norms):
    before = small(transformers, make)
    after = copy.deepcopy(before)
    report = planish.convert(after, "planish")
    assert len(report.changed) == norms
    assert report.left == []
    assert_same_numbers(before, after, run, MODEL)
    # transformers saves the same checkpoint.
    assert before.state_dict().keys() == after.state_dict().keys()
    before.load_state_dict(after.state_dict())
    # Another norm also runs, and trains.
    planish.convert(after, "ada")
    run(after).square().sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in after.parameters())


# Families, the numbers of norms that are replaced and left, and a reason for those left.
FAMILIES = [
    (bert, 5, 0, ""),
    (llama, 5, 0, ""),
    (qwen3, 9, 0, ""),
    (olmo2, 9, 0, ""),
    (mamba, 3, 0, ""),
    (mamba2, 3, 0, ""),
    (gemma, 5, 0, ""),
    (gemma2, 9, 0, ""),
    (gemma3, 13, 0, ""),
    (qwen3_next, 7, 0, ""),
    (cohere, 0, 3, "its forward is not understood: hidden_states.mean(-1, keepdim=True)"),
    (t5, 5, 0, ""),
    (convnext, 1, 4, "it is a LayerNorm of another class"),
    (resnet, 8, 0, ""),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("make", "changed", "left", "reason"), FAMILIES)
def test_families_of_hugging_face_compute_the_same_after_conversion(
    transformers, make, changed, left, reason, dtype
):
    before = small(transformers, make).to(dtype)
    after, exact = copy.deepcopy(before), copy.deepcopy(before).float()
    report = planish.convert(after, "planish")
    assert (len(report.changed), len(report.left)) == (changed, left)
    assert all(reason in one.reason for one in report.left)
    for training in (False, True):
        before.train(training), after.train(training), exact.train(training)
        with torch.no_grad():
            theirs, y, expected = run(before), run(after), run(exact)
        assert y.dtype == theirs.dtype
        # The convolutions of some PyTorch versions have large errors in bfloat16, which a norm
        # amplifies. Beyond these, each replaced norm rounds to bfloat16 at most once, by 2^-8.
        own = distance(theirs.float(), expected)
        rounding = MODEL if dtype == torch.float32 else changed * 2**-8
        assert distance(y.float(), expected) <= own + rounding * float(theirs.abs().max())
    state = before.state_dict()
    report = planish.convert(after, "torch")
    assert state.keys() == after.state_dict().keys()
    ours = [one for one in after.modules() if type(one).__module__.startswith("planish")]
    # torch.nn has no weight_offset, and no type of results like T5's.
    assert all((module.weight_offset == 1) != (make is t5) for module in ours)
    assert bool(ours) == (make in (gemma, gemma2, gemma3, qwen3_next, t5))


# RMSNorm classes of transformers: one of each way to write it, and those of many families.
RMS_NORMS = [
    "afmoe.AfmoeRMSNorm", "aimv2.Aimv2RMSNorm", "apertus.ApertusRMSNorm", "bamba.BambaRMSNorm",
    "deepseek_v3.DeepseekV3RMSNorm", "eurobert.EuroBertRMSNorm", "flex_olmo.FlexOlmoRMSNorm",
    "gemma.GemmaRMSNorm", "gemma2.Gemma2RMSNorm", "gemma3.Gemma3RMSNorm",
    "gemma3n.Gemma3nRMSNorm", "glm4.Glm4RMSNorm", "gpt_oss.GptOssRMSNorm",
    "granite.GraniteRMSNorm", "helium.HeliumRMSNorm", "imagegpt.ImageGPTLayerNorm",
    "jamba.JambaRMSNorm", "llama.LlamaRMSNorm", "llama4.Llama4TextRMSNorm", "mamba.MambaRMSNorm",
    "mamba2.Mamba2RMSNorm", "minimax.MiniMaxRMSNorm", "mistral.MistralRMSNorm",
    "mixtral.MixtralRMSNorm", "mllama.MllamaTextRMSNorm", "moshi.MoshiRMSNorm",
    "nemotron_h.NemotronHRMSNorm", "olmo2.Olmo2RMSNorm", "olmoe.OlmoeRMSNorm", "phi3.Phi3RMSNorm",
    "pixtral.PixtralRMSNorm", "qwen2.Qwen2RMSNorm", "qwen2_vl.Qwen2VLRMSNorm",
    "qwen3.Qwen3RMSNorm", "qwen3_moe.Qwen3MoeRMSNorm", "qwen3_next.Qwen3NextRMSNorm",
    "smollm3.SmolLM3RMSNorm",
    "zamba.ZambaRMSNorm",
]  # fmt: skip


def class_of(transformers, name):
    family, kind = name.split(".")
    path = f"{transformers.__name__}.models.{family}.modeling_{family}"
    if importlib.util.find_spec(path.rpartition(".")[0]) is None:
        pytest.skip(f"this version of transformers has no {family}")
    return getattr(importlib.import_module(path), kind)


@pytest.mark.parametrize("name", RMS_NORMS)
def test_rmsnorms_of_hugging_face_are_converted(transformers, name):
    kind = class_of(transformers, name)
    before = kind(24, eps=1e-3)
    with torch.no_grad():
        before.weight.copy_(normal(24, seed=1))
    model = nn.Sequential(before)
    attributes = {key: value for key, value in vars(before).items() if "eps" in key}
    report = planish.convert(model, "planish")
    assert report.left == []
    assert type(model[0]) is pnn.RMSNorm
    assert {key: getattr(model[0], key) for key in attributes} == attributes
    for dtype in (torch.float32, torch.float64):
        x = normal(5, 3, 24, dtype=dtype)
        torch.testing.assert_close(model(x), before(x), rtol=FLOAT, atol=FLOAT)


def heads_of_xlstm(transformers):
    """Returns the norms over heads of transformers and, if it is installed, of xlstm, by name."""
    from transformers.models.xlstm import modeling_xlstm

    kinds = {}
    if not modeling_xlstm.external_xlstm:
        kinds["transformers"] = modeling_xlstm.xLSTMMultiHeadLayerNorm
    spec = importlib.util.find_spec("xlstm")
    for file in ("components/ln.py", "xlstm_large/components.py"):
        # Not by importing xlstm, which needs its kernels.
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            path = os.path.join(folder, file)
            name = f"xlstm_{file.replace('/', '_').removesuffix('.py')}"
            own = importlib.util.spec_from_file_location(name, path)
            module = importlib.util.module_from_spec(own)
            sys.modules[name] = module
            own.loader.exec_module(module)
            for kind in ("MultiHeadLayerNorm", "MultiHeadRMSNorm"):
                if hasattr(module, kind):
                    kinds[f"{file} {kind}"] = getattr(module, kind)
    return kinds


@pytest.mark.parametrize("dtype", ALL_TYPES, ids=str)
def test_norms_over_the_heads_of_xlstm_are_converted(transformers, dtype):
    for name, kind in heads_of_xlstm(transformers).items():
        is_transposed = "ln.py" in name
        if is_transposed:
            modules = [
                kind(12, weight=weight, bias=bias, residual_weight=residual)
                for weight, bias, residual in ((True, True, True), (True, False, False), (False, False, True))
            ]  # fmt: skip
            x = normal(2, 3, 5, 4).to(dtype)
        else:
            biases = (False,) if "RMS" in name else (True, False)
            modules = [kind(3, 4, use_bias=bias) for bias in biases] + [kind(3, 4, use_weight=False)]
            x = normal(2, 5, 3, 4).to(dtype)
        for before in modules:
            before = randomise(before).to(dtype)
            model = nn.Sequential(copy.deepcopy(before))
            report = planish.convert(model, "planish")
            assert report.left == [], name
            assert report.changed[0].after.endswith("Norm over heads")
            assert model[0].state_dict().keys() == before.state_dict().keys()
            y, expected = model(x), before(x)
            assert (y.shape, y.dtype) == (expected.shape, expected.dtype)
            # Theirs rounds to 16 bits three times, this once.
            eps = torch.finfo(dtype).eps
            torch.testing.assert_close(y, expected, rtol=4 * eps + FLOAT, atol=4 * eps + FLOAT)
            with pytest.raises(ValueError, match="x must be"):
                model(x[..., :3])
            assert planish.convert(model, "planish").changed == []
            other = planish.convert(nn.Sequential(copy.deepcopy(before)), "layer")
            assert 'has no norm over heads' in other.left[0].reason
            pickle.loads(pickle.dumps(model))


def test_norms_over_heads_with_other_code_are_left(transformers, monkeypatch):
    for name, kind in heads_of_xlstm(transformers).items():
        before = kind(12) if "ln.py" in name else kind(3, 4)

        def forward(self, x):
            return x

        monkeypatch.setattr(kind, "forward", forward)
        report = planish.convert(nn.Sequential(before), "planish")
        assert "its code is not that of a known version" in report.left[0].reason
        monkeypatch.undo()


@pytest.mark.parametrize("name", ["t5.T5LayerNorm", "idefics.IdeficsRMSNorm"])
@pytest.mark.parametrize("of_weight", ALL_TYPES, ids=str)
def test_rmsnorms_with_the_type_of_the_weight_are_converted(transformers, name, of_weight):
    """T5's: models keep some layers in float32, whose results leave the norm in 16 bits."""
    before = class_of(transformers, name)(24, eps=1e-3).to(of_weight)
    with torch.no_grad():
        before.weight.copy_(normal(24, seed=1))
    model = nn.Sequential(before)
    report = planish.convert(model, "planish")
    assert report.left == []
    assert isinstance(model[0], pnn.RMSNorm) and model[0].weight is before.weight
    assert model[0].variance_epsilon == 1e-3
    for dtype in ALL_TYPES:
        x = normal(5, 3, 24).to(dtype)
        y, expected = model(x), before(x)
        if of_weight in (torch.bfloat16, torch.float16):
            assert y.dtype == expected.dtype == of_weight
        else:
            assert y.dtype == dtype  # where T5's has the wider type
        # T5's rounds to 16 bits twice, the other once: three roundings.
        eps = max(torch.finfo(one).eps for one in (y.dtype, expected.dtype, torch.float32))
        torch.testing.assert_close(y.double(), expected.double(), rtol=1.5 * eps + FLOAT, atol=FLOAT)
    again = copy.deepcopy(model)
    assert planish.convert(again, "planish").left[0].reason == "it is this library's already"
    assert planish.convert(again, "rms").left[0].reason == "it is one already"
    assert "results of another type" in planish.convert(again, "torch").left[0].reason
    assert type(pickle.loads(pickle.dumps(model))[0]) is type(model[0])
    planish.convert(again, "layer")
    assert type(again[0]) is pnn.LayerNorm


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("cohere.CohereLayerNorm", "not understood: hidden_states.mean(-1, keepdim=True)"),
        ("deberta.DebertaLayerNorm", "it holds weight, bias, an RMSNorm one weight"),
    ],
)
def test_other_norms_of_hugging_face_are_left(transformers, name, reason):
    report = planish.convert(nn.Sequential(class_of(transformers, name)(24)), "planish")
    assert report.changed == []
    assert reason in report.left[0].reason


def test_hugging_face_compiled(transformers):
    before = small(transformers, bert)
    after = copy.deepcopy(before)
    planish.convert(after, "planish")
    compiled = torch.compile(after, backend="aot_eager")
    assert_same_numbers(
        before, after, lambda model: run(compiled if model is after else model), MODEL
    )


def test_encoder_compiled():
    """Uses the default backend, which compiles C++."""
    if shutil.which(os.environ.get("CXX", "g++")) is None:
        pytest.skip("no C++ compiler")
    before = encoder(layers=1)
    after = copy.deepcopy(before)
    planish.convert(after, "planish")
    compiled = torch.compile(after, fullgraph=True)
    x = normal(3, 5, 16)
    assert_same_numbers(before, after, lambda m: (compiled if m is after else m)(x), FLOAT)
