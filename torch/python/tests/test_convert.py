"""planish.convert on layers of torch.nn and on models of Hugging Face's transformers."""

import copy
import os
import shutil

import planish
import planish.nn as pnn
import pytest
import torch
from planish._convert import TARGETS
from torch import nn


def normal(*shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def randomise(model):
    """Norms whose weight is not 1 and whose bias is not 0."""
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
    """Outputs and gradients of all parameters, relative to the largest number of each tensor."""
    results = []
    for model in (before, after):
        model.zero_grad()
        y = inputs(model)
        (y * normal(*y.shape, seed=5)).sum().backward()
        results.append([y.detach(), *[p.grad for p in model.parameters()]])
    assert len(results[0]) == len(results[1])
    for expected, got in zip(*results):
        if expected is None:  # of compiled code it may be zeros
            assert got is None or not got.any()
            continue
        scale = max(float(expected.abs().max()), 1e-3)
        assert float((got - expected).abs().max()) <= tolerance * scale


# A few float32 layers: each rounds at 6e-8 of numbers up to 10, and gradients add 15 positions.
FLOAT = 1e-5


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
    # The same parameters, not copies: an optimizer made before goes on.
    assert all(parameters[name] is p for name, p in after.named_parameters())
    assert after.state_dict().keys() == before.state_dict().keys()
    assert_same_numbers(before, after, lambda model: model(normal(3, 5, 16)), FLOAT)


@pytest.mark.parametrize("to", [to for to in TARGETS if to != "layer_norm_rnn"])
def test_transformer_encoder_in_evaluation_uses_the_norms_that_it_has(to):
    """Where the fast path of torch.nn would compute LayerNorm by itself."""
    model = encoder().eval()
    x = normal(3, 5, 16)
    padding = torch.zeros(3, 5, dtype=torch.bool)
    padding[1, 3:] = True
    assert model.use_nested_tensor  # else this test would not see the fast path
    with torch.no_grad():
        plain = model(x)
    report = planish.convert(model, to)
    assert len(report.changed) == 5
    assert "TransformerEncoderLayer" in report.notes[0]
    with torch.no_grad():
        fast = model(x)
        padded = model(x, src_key_padding_mask=padding)
    slow = model.train()(x).detach()  # dropout is 0: the same function
    short = model(x[1:2, :3]).detach()[0]
    assert distance(fast, slow) < 1e-5  # as FLOAT; attention has a fast path of its own
    assert distance(padded[1, :3], short) < 1e-5  # what is not padding: the sequence alone
    if to in ("planish", "layer"):
        assert distance(fast, plain) < 1e-5
    else:
        assert distance(fast, plain) > 1e-2  # another norm, so other numbers


def test_an_encoder_layer_on_its_own_and_in_a_later_encoder():
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True).eval()
    planish.convert(layer, "ada")
    net = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    x = normal(2, 4, 16)
    with torch.no_grad():
        assert distance(net(x), net.train()(x)) < 1e-5  # as FLOAT


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
        assert (after.bias is not None) == (affine and not str(before).endswith("bias=False)"))
    if to.startswith("detach"):
        assert (after.mean, after.std) == (to != "detach_std", to != "detach_mean")
    if to.startswith("ada"):
        assert (after.C, after.k, after.as_coded) == (1.0, 0.1, to == "ada_as_coded")


def test_options():
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
        torch.testing.assert_close(model(x), twin(x), rtol=0, atol=1e-5)  # numbers up to 4
        model.eval(), twin.eval()
    assert [str(model[i]) for i in (0, 2)] == [str(twin[i]) for i in (0, 2)]

    report = planish.convert(model, "ada")
    assert report.changed == []
    assert {left.reason for left in report.left} == {'it normalises channels, "ada" rows'}
    weight = model[0].weight
    report = planish.convert(model, "layer")
    assert [type(m) for m in model] == [pnn.LayerNorm2d, nn.Flatten, pnn.LayerNorm1d]
    assert report.changed[0].dropped == ("running_mean", "running_var", "num_batches_tracked")
    assert model[0].weight is weight
    assert model[2].eps == 1e-3
    model(normal(5, 4, 3, 2))


def test_what_goes_over():
    """Training flag, type, device, hooks, and what is shared."""
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


class PlusOne(nn.Module):
    """As Gemma's: looks like an RMSNorm, and multiplies with 1 + weight."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(4))
        self.eps = 1e-6

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, True) + self.eps) * (1 + self.weight)


class EpsOutside(PlusOne):
    def forward(self, x):
        return x / (x.square().mean(-1, True).sqrt() + self.eps) * self.weight


class InAllButName(PlusOne):
    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.square().mean(-1, True) + self.eps))


PlusOne.__name__ = "PlusOneRMSNorm"
EpsOutside.__name__ = "EpsOutsideRMSNorm"
InAllButName.__name__ = "InAllButNameRMSNorm"


def test_what_is_left():
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
            Subclass(4), parametrised, replaced, hooked, more, nn.GroupNorm(2, 4), PlusOne(),
            EpsOutside(), nn.BatchNorm3d(4), nn.SyncBatchNorm(4), pnn.LayerNorm(4), weight,
        ]
    )  # fmt: skip
    before = list(model)
    report = planish.convert(model, "planish")
    assert report.changed == []
    assert all(a is b for a, b in zip(model, before, strict=True))
    unknown = "it is of a class that is not known, and no RMSNorm"
    assert [(left.names[0], left.kind, left.reason) for left in report.left] == [
        ("0", "Subclass", "it is a LayerNorm of another class"),
        ("1", "ParametrizedLayerNorm", "it is parametrised"),
        ("2", "LayerNorm", "its forward is replaced"),
        ("3", "LayerNorm", "it has state-dict hooks"),
        ("4", "LayerNorm", "it holds more than a norm's parameters"),
        ("5", "GroupNorm", unknown),
        ("6", "PlusOneRMSNorm", unknown),
        ("7", "EpsOutsideRMSNorm", unknown),
        ("8", "BatchNorm3d", "it is a BatchNorm of another class"),
        ("9", "SyncBatchNorm", "it is a BatchNorm of another class"),
        ("10", "planish.nn.LayerNorm", "it is this library's already"),
    ]


def test_an_rmsnorm_of_another_class():
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
def test_filter(filter, names):
    model = nn.ModuleDict(
        {"a": nn.LayerNorm(4), "b": nn.ModuleList([nn.LayerNorm(3), nn.RMSNorm(2)])}
    )
    report = planish.convert(model, "simple", filter=filter)
    assert [change.names[0] for change in report.changed] == names
    assert len(report.left) == 3 - len(names)
    assert {left.reason for left in report.left} <= {"the filter does not name it"}
    for name in ("a", "b.0", "b.1"):
        assert isinstance(model.get_submodule(name), pnn.LayerNormSimple) == (name in names)


def test_recurrent_layers():
    """Every weight has its place, and the biases of an LSTM are added."""
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
    ]
    assert [(left.names, left.reason) for left in report.left] == [
        (("projected",), "there is no proj_size")
    ]
    for name, parameter in model.named_parameters():
        assert not parameter.is_meta
        if "lstm.bias" in name:
            both = own[name] + own[name.replace("bias_ih", "bias_hh")]
            assert torch.equal(parameter, both)
        elif ".ln_" in name:
            assert torch.equal(parameter, torch.full_like(parameter, float("_weight" in name)))
        else:
            assert parameter is own[name]
    # As a new module that loads the state dict of the old one.
    fresh = pnn.LayerNormLSTM(3, 4, 2, bidirectional=True, batch_first=True).eval()
    fresh.load_state_dict(before["lstm"].state_dict(), strict=False)
    x = normal(2, 5, 3)
    assert torch.equal(model["lstm"](x)[0], fresh(x)[0])
    assert not model["lstm"].training
    plain = nn.Sequential(copy.deepcopy(before["lstm"]))
    planish.convert(plain, "layer_norm_rnn", variant="plain")
    expected = before["lstm"](x)[0]
    assert distance(plain[0](x)[0], expected) < 1e-6  # outputs below 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: planish.convert(m, "batch"), f"[convert] to must be one of {', '.join(TARGETS)} but has 'batch'"),
        (lambda m: planish.convert(m, "layer", C=2.0), '[convert] C must be left out for "layer" but has 2.0'),
        (lambda m: planish.convert(m, "rms", k=0.1), '[convert] k must be left out for "rms" but has 0.1'),
        (lambda m: planish.convert(m, "ada", variant="paper"), '[convert] variant must be left out for "ada" but has paper'),
        (lambda m: planish.convert(m, "none", eps=0.1), '[convert] eps must be left out for "none" but has 0.1'),
        (lambda m: planish.convert(m[1], "ada"), "[convert] model must hold the norms that are replaced but has one itself, LayerNorm"),
        (lambda m: planish.convert(m, "ada", eps=-1.0), "[AdaNorm] eps must be finite and at least 0 but has -1.0"),
    ],
)  # fmt: skip
def test_errors_change_nothing(call, message):
    model = nn.Sequential(nn.LayerNorm(4), nn.LayerNorm(4))
    before = list(model)
    with pytest.raises(ValueError) as error:
        call(model)
    assert str(error.value) == message
    assert list(model) == before


# Models that nobody here wrote. All float32: a dozen products and norms, each rounding at 6e-8 of
# its largest numbers, and gradients through all of them: 2e-5 of the largest number of a tensor.
MODEL = 2e-5


@pytest.fixture(scope="module")
def transformers():
    return pytest.importorskip("transformers", reason="transformers is not installed")


def bert(transformers):
    torch.manual_seed(0)
    return randomise(
        transformers.BertModel(
            transformers.BertConfig(
                vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                intermediate_size=64, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
            )  # fmt: skip
        )
    )


def llama(transformers):
    torch.manual_seed(0)
    return randomise(
        transformers.LlamaModel(
            transformers.LlamaConfig(
                vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                num_key_value_heads=2, intermediate_size=64,
            )  # fmt: skip
        )
    )


@pytest.mark.parametrize(("make", "norms"), [(bert, 5), (llama, 5)])
def test_hugging_face(transformers, make, norms):
    before = make(transformers)
    after = copy.deepcopy(before)
    report = planish.convert(after, "planish")
    assert len(report.changed) == norms
    assert report.left == []
    tokens = torch.arange(12).reshape(2, 6)

    def run(model):
        return model(tokens).last_hidden_state

    assert_same_numbers(before, after, run, MODEL)
    # The checkpoint is the same, and so is what transformers saves.
    assert before.state_dict().keys() == after.state_dict().keys()
    before.load_state_dict(after.state_dict())
    # Another norm, too, goes through, and trains.
    planish.convert(after, "ada")
    run(after).square().sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in after.parameters())


def test_hugging_face_compiled(transformers):
    before = bert(transformers)
    after = copy.deepcopy(before)
    planish.convert(after, "planish")
    tokens = torch.arange(12).reshape(2, 6)
    compiled = torch.compile(after, backend="aot_eager")

    def run(model):
        return (compiled if model is after else model)(tokens).last_hidden_state

    assert_same_numbers(before, after, run, MODEL)


def test_encoder_compiled():
    """With the default backend, which compiles C++."""
    if shutil.which(os.environ.get("CXX", "g++")) is None:
        pytest.skip("no C++ compiler")
    before = encoder(layers=1)
    after = copy.deepcopy(before)
    planish.convert(after, "planish")
    compiled = torch.compile(after, fullgraph=True)
    x = normal(3, 5, 16)
    assert_same_numbers(before, after, lambda m: (compiled if m is after else m)(x), FLOAT)
