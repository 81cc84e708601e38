"""convert(model, "rms", exact=True): LayerNorm as RMSNorm with the same results."""

import copy
import importlib.util

import planish
import planish.nn as pnn
import pytest
import torch
from torch import nn

# Relative to the largest output: float64 rounds at 1e-16, float32 at 6e-8, a few hundred terms.
DOUBLE, FLOAT = 1e-12, 1e-5


def randomise(model, seed=0):
    """Gives all parameters random values, so that biases and unequal weights matter."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return model.eval()


class Block(nn.Module):
    """A pre-norm block whose sublayers share code with the residual stream."""

    def __init__(self, width, make=nn.LayerNorm):
        super().__init__()
        self.norm1, self.norm2 = make(width), make(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width, bias=False)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).chunk(3, -1)
        y = torch.softmax(q @ k.transpose(1, 2), -1) @ v
        x = x + self.drop(self.out(y))
        return x + self.drop(self.down(self.up(self.norm2(x)).relu()))


class Model(nn.Module):
    """A language model with a learned embedding of positions."""

    def __init__(self, width=16, make=nn.LayerNorm, tied=False):
        super().__init__()
        self.words = nn.Embedding(11, width)
        self.positions = nn.Parameter(torch.zeros(8, width))
        self.blocks = nn.ModuleList([Block(width, make), Block(width, make)])
        self.norm = make(width)
        self.head = nn.Linear(width, 11, bias=False)
        if tied:
            self.head.weight = self.words.weight

    def forward(self, words):
        x = self.words(words) + self.positions[: words.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Images(nn.Module):
    """A model with patches, a class token and a shift of the sequence."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 4, 4)
        self.token = nn.Parameter(torch.zeros(1, 1, 16))
        self.register_buffer("positions", torch.randn(1, 5, 16, generator=torch.manual_seed(1)))
        layer = nn.TransformerEncoderLayer(16, 2, 24, 0.1, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, 3)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(images), -1, -1), x], 1) + self.positions
        return self.head(self.norm(self.encoder(x)[:, 0]))


WORDS = torch.arange(12).reshape(2, 6) % 11
IMAGES = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(2))
MODELS = {
    "language": (Model, WORDS),
    "planish": (lambda: Model(make=pnn.LayerNorm), WORDS),
    "without bias": (lambda: Model(make=lambda n: nn.LayerNorm(n, bias=False)), WORDS),
    "simple": (lambda: Model(make=pnn.LayerNormSimple), WORDS),
    "images": (Images, IMAGES),
    "one norm": (lambda: nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.Linear(6, 2)), torch.ones(3, 4)),
    "conv1d": (
        lambda: nn.Sequential(
            nn.Conv1d(4, 6, 1), nn.Flatten(2), Transposed(), nn.LayerNorm(6), nn.Linear(6, 2)
        ),
        torch.ones(3, 4, 5),
    ),
}  # fmt: skip


class Transposed(nn.Module):
    def forward(self, x):
        return x.transpose(1, 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_the_results_stay_the_same(name, dtype):
    make, x = MODELS[name]
    x = x.to(dtype) if x.is_floating_point() else x
    before = randomise(make()).to(dtype)
    after = copy.deepcopy(before)
    report = planish.convert(after, "rms", exact=True, inputs=x)
    norms = sum(isinstance(one, (nn.LayerNorm, pnn.LayerNormSimple)) for one in before.modules())
    assert len(report.changed) == norms and report.left == []
    assert not any(isinstance(one, (nn.LayerNorm, pnn.LayerNormSimple)) for one in after.modules())
    assert any(note.startswith("centred: ") for note in report.notes)
    with torch.no_grad():
        for inputs in (x, x[:1], x.flip(0)):
            expected, actual = before(inputs), after(inputs)
            size = max(1.0, float(expected.abs().max()))
            tolerance = DOUBLE if dtype == torch.float64 else FLOAT
            assert float((expected - actual).abs().max()) <= tolerance * size


def test_the_gradients_of_the_input_stay_the_same():
    before = randomise(Images()).double()
    after = copy.deepcopy(before)
    planish.convert(after, "rms", exact=True, inputs=(IMAGES.double(),))
    gradients = []
    for model in (before, after):
        x = IMAGES.double().requires_grad_()
        model(x).square().sum().backward()
        gradients.append(x.grad)
    assert float((gradients[0] - gradients[1]).abs().max()) <= 1e-10 * float(gradients[0].abs().max())


def test_the_layers_that_write_the_stream_are_centred():
    model = randomise(Model())
    kept = {name: p.clone() for name, p in model.named_parameters()}
    report = planish.convert(model, "rms", exact=True, inputs=WORDS)
    centred = {"words.weight": 1, "positions": 1}
    for i in (0, 1):
        centred |= {f"blocks.{i}.out.weight": 0, f"blocks.{i}.out.bias": 0, f"blocks.{i}.down.weight": 0}
    now = dict(model.named_parameters())
    for name, dim in centred.items():
        assert float(now[name].detach().mean(dim).abs().max()) < 1e-6, name
        torch.testing.assert_close(now[name], kept[name] - kept[name].mean(dim, keepdim=True))
    # The other matrices stay; biases of the readers have those of the norms.
    assert all(torch.equal(now[name], kept[name]) for name in ("head.weight", "blocks.0.qkv.weight"))
    torch.testing.assert_close(now["head.bias"], kept["head.weight"] @ kept["norm.bias"])
    torch.testing.assert_close(
        now["blocks.1.up.bias"],
        kept["blocks.1.up.bias"] + kept["blocks.1.up.weight"] @ kept["blocks.1.norm2.bias"],
    )
    assert now["norm.weight"] is dict(model.named_parameters())["norm.weight"]
    assert "drops bias" in str(report) and "exact in evaluation" in str(report)


def test_a_layer_that_reads_a_norm_and_writes_the_stream_is_folded_and_centred():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.mixed = nn.Linear(4, 6), nn.Linear(6, 6, bias=False)
            self.norm1, self.norm2 = nn.LayerNorm(6), nn.LayerNorm(6)
            self.last = nn.Linear(6, 2)

        def forward(self, x):
            x = self.first(x)
            x = x - 0.5 * self.mixed(self.norm1(x))
            return self.last(self.norm2(x))

    before = randomise(Two()).double()
    after = copy.deepcopy(before)
    x = torch.randn(5, 4, dtype=torch.float64)
    planish.convert(after, "rms", exact=True, inputs=x)
    assert float(after.mixed.bias.mean().abs()) < 1e-15
    assert float((before(x) - after(x)).abs().max()) < DOUBLE


def test_norms_that_the_filter_excludes_stay():
    before = randomise(Model()).double()
    after = copy.deepcopy(before)
    report = planish.convert(after, "rms", exact=True, inputs=WORDS, filter="blocks.0.*")
    assert {change.names[0] for change in report.changed} == {"blocks.0.norm1", "blocks.0.norm2"}
    assert len(report.left) == 3 and type(after.norm) is nn.LayerNorm
    assert float((before(WORDS) - after(WORDS)).abs().max()) < 1e-11


def test_a_norm_in_the_stream_needs_equal_weights():
    """Embedding, norm, and a stream that begins with the norm's result."""

    class Embedded(nn.Module):
        def __init__(self, bias):
            super().__init__()
            self.words, self.norm = nn.Embedding(11, 6), nn.LayerNorm(6, bias=bias)
            self.up, self.norm2, self.head = nn.Linear(6, 6), nn.LayerNorm(6), nn.Linear(6, 2)

        def forward(self, words):
            x = self.norm(self.words(words))
            return self.head(self.norm2(x + self.up(self.norm2(x))))

    x = WORDS
    model = randomise(Embedded(True))
    with pytest.raises(ValueError, match="its weight differs among the features"):
        planish.convert(model, "rms", exact=True, inputs=x, filter="norm2")
    with torch.no_grad():
        model.norm.weight.fill_(1.5)
    before = copy.deepcopy(model)
    # The embedding's norm stays; its bias is centred.
    planish.convert(model, "rms", exact=True, inputs=x, filter="norm2")
    assert float(model.norm.bias.detach().mean().abs()) < 1e-6
    torch.testing.assert_close(model(x), before(x), rtol=FLOAT, atol=FLOAT)
    # As an RMSNorm it has no bias, which the sum reads.
    model = copy.deepcopy(before)
    with pytest.raises(ValueError, match=r"norm: .* reads its result, and RMSNorm has no bias"):
        planish.convert(model, "rms", exact=True, inputs=x)
    with torch.no_grad():
        model.norm.bias.zero_()
    before = copy.deepcopy(model)
    planish.convert(model, "rms", exact=True, inputs=x)
    torch.testing.assert_close(model(x), before(x), rtol=FLOAT, atol=FLOAT)


class Case(nn.Module):
    """A model of one function of the residual stream."""

    def __init__(self, function, head=6):
        super().__init__()
        self.first, self.norm, self.head = nn.Linear(4, 6), nn.LayerNorm(6), nn.Linear(head, 2)
        self.other = nn.Linear(6, 6)
        self.scale = nn.Parameter(torch.ones(6))
        self.function = function

    def forward(self, x):
        return self.function(self, x)


REFUSED = [
    (lambda m, x: m.head(m.norm(m.first(x).relu())), "relu.* writes its input"),
    (lambda m, x: m.head(m.norm(m.first(x) * m.scale)), "mul.* writes its input"),
    (lambda m, x: m.head(m.norm(m.first(x) + 1)), "the number 1 is added"),
    (lambda m, x: m.head(m.norm(m.first(x) + x[:, :1])), "adds the same number to all features"),
    (lambda m, x: m.head(m.norm(m.first(x) + m.first(x).relu())), "relu.* reads the residual"),
    (lambda m, x: m.head(m.norm(x.repeat(1, 2)[:, :6])), "slice.* writes its input|repeat.* writes"),
    (lambda m, x: m.head(m.norm(m.first(x).flip(-1))), "flip.* writes its input"),
    (lambda m, x: m.head(m.norm(torch.cat([m.first(x)[:, :3], m.first(x)[:, 3:]], 1))), "writes its input"),
    (lambda m, x: m.head(m.norm(m.first(x).reshape(2, 6, -1).flatten(1)[:, :6])), "writes its input"),
    (lambda m, x: m.head(m.norm(m.first(x)) + m.first(x)), "reads the residual stream without a norm"),
    (lambda m, x: (m.head(m.norm(y := m.first(x))), y), "the result of the model reads"),
    (lambda m, x: m.head(m.norm(y := m.first(x))) + m.other(y).sum(), "linear in other reads the residual"),
    (lambda m, x: m.norm(m.first(x)), "the result of the model reads its result"),
    (lambda m, x: m.head(m.norm(m.first(x)).relu()), "relu.* reads its result"),
    (lambda m, x: m.head(m.norm(m.first(x)) * 2), "mul.* reads its result"),
    (lambda m, x: m.head(m.norm(m.first(x)) + m.other(m.norm(m.first(x)))), "add.* reads its result"),
    (lambda m, x: m.head(m.norm(m.first(x))) + m.head(m.other(m.norm(m.first(x)))), "also reads something else"),
    (lambda m, x: m.head(m.norm(m.first(x))) + (x @ m.first.weight.t()).sum(), "matmul.* reads the residual stream"),
    (lambda m, x: m.head(m.norm(m.first(x))) + m.first.bias.sum(), "is also used by|reads the residual"),
    (lambda m, x: m.head(m.norm(nn.functional.linear(x, m.first.weight * 2))), "the weight of linear.* is computed"),
    (lambda m, x: nn.functional.linear(m.norm(m.first(x)), m.head.weight * 2), "the weight of linear.* is computed"),
    (lambda m, x: nn.functional.linear(m.norm(m.first(x)), m.head.weight), "has no bias that could take over"),
    (lambda m, x: m.head(m.norm(nn.functional.dropout(m.first(x), 0.5))), "dropout.* is active"),
    (lambda m, x: m.head(m.first(x)), "norm is not called with these inputs"),
    (lambda m, x: m.head(m.norm(m.first(x))) if x.sum() > 0 else x, "torch.export cannot trace the model"),
]  # fmt: skip


@pytest.mark.parametrize(("function", "reason"), REFUSED)
def test_what_cannot_be_proved_is_refused(function, reason):
    model = randomise(Case(function))
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    modules = list(model.modules())
    with pytest.raises(ValueError, match=rf"^\[convert\] model cannot be converted exactly: .*({reason})"):
        planish.convert(model, "rms", exact=True, inputs=torch.randn(6, 4))
    assert list(model.modules()) == modules
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())


def test_other_models_are_refused():
    def refuse(model, inputs, reason, **options):
        with pytest.raises(ValueError, match=reason):
            planish.convert(model, "rms", exact=True, inputs=inputs, **options)

    refuse(Model(tied=True).eval(), WORDS, "tied weights")
    refuse(Model().train(), WORDS, "dropout.* is active: call model.eval")
    refuse(Model().eval().to("meta"), WORDS.to("meta"), "positions has no values: it is on the meta device")
    refuse(Model().eval().bfloat16(), WORDS, "torch.bfloat16, which cannot hold the centred values")
    layer = nn.TransformerEncoderLayer(16, 2, 24, 0.0, batch_first=True)
    post = nn.Sequential(nn.Linear(4, 16), nn.TransformerEncoder(layer, 1))
    refuse(post, torch.randn(2, 3, 4), "reads the residual stream without a norm")
    flat = nn.Sequential(nn.Linear(4, 6), nn.Unflatten(1, (2, 3)), nn.LayerNorm((2, 3)))
    refuse(flat, torch.randn(5, 4), "it normalizes 2 dimensions")
    refuse(nn.Sequential(nn.Linear(4, 1), nn.LayerNorm(1)), torch.randn(5, 4), "one element")
    # Two parameters that are views of one memory.
    shared = Case(lambda m, x: m.head(m.norm(m.first(x))))
    memory = torch.randn(100)
    shared.first.weight = nn.Parameter(memory[:24].view(6, 4))
    shared.other.weight = nn.Parameter(memory[10:46].view(6, 6))
    refuse(shared, torch.randn(5, 4), "first.weight shares memory with other.weight")


def test_options_are_checked():
    model = Model().eval()
    for to, options, reason in (
        ("layer", {"exact": True, "inputs": WORDS}, 'exact must be left out for "layer", got True'),
        ("rms", {"exact": True}, "inputs must be the arguments of a call with exact=True, got None"),
        ("rms", {"inputs": WORDS}, "inputs must be left out without exact=True"),
        ("rms", {"exact": True, "inputs": WORDS, "eps": 1e-3}, "eps must be left out with exact=True"),
        ("rms", {"exact": True, "inputs": "words"}, "torch.export cannot trace the model"),
    ):
        with pytest.raises(ValueError, match=reason):
            planish.convert(model, to, **options)
    assert type(model.norm) is nn.LayerNorm
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 2)).eval()
    report = planish.convert(model, "rms", exact=True, inputs=torch.randn(3, 4))
    assert report.left[0].reason == "exact=True replaces LayerNorm"


def test_inputs_can_be_named():
    model = randomise(Model())
    again = copy.deepcopy(model)
    planish.convert(model, "rms", exact=True, inputs={"words": WORDS})
    planish.convert(again, "rms", exact=True, inputs=[WORDS])
    assert torch.equal(model(WORDS), again(WORDS))


def test_training_without_dropout_stays_the_same():
    before = randomise(nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.Linear(6, 2))).train().double()
    after = copy.deepcopy(before)
    x = torch.randn(8, 4, dtype=torch.float64)
    planish.convert(after, "rms", exact=True, inputs=x)
    assert after[1].training
    assert float((before(x) - after(x)).abs().max()) < DOUBLE


def test_a_shared_norm_is_replaced_once():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.norm = nn.Linear(4, 6), nn.LayerNorm(6)
            self.again, self.mixed, self.head = self.norm, nn.Linear(6, 6), nn.Linear(6, 2)

        def forward(self, x):
            x = self.first(x)
            return self.head(self.again(x + self.mixed(self.norm(x))))

    before = randomise(Twice()).double()
    after = copy.deepcopy(before)
    x = torch.randn(5, 4, dtype=torch.float64)
    report = planish.convert(after, "rms", exact=True, inputs=x)
    assert report.changed[0].names == ("norm", "again") and after.norm is after.again
    assert float((before(x) - after(x)).abs().max()) < DOUBLE


def families():
    import transformers as t

    small = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    ids = {"input_ids": torch.arange(12).reshape(2, 6), "use_cache": False}
    pixels = {"pixel_values": torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(3))}
    gpt2 = {"vocab_size": 50, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 16,
            "bos_token_id": 0, "eos_token_id": 0}  # fmt: skip
    return {
        "gpt2": (lambda: t.GPT2LMHeadModel(t.GPT2Config(**gpt2, tie_word_embeddings=False)), ids, 5, ""),
        "tied": (lambda: t.GPT2LMHeadModel(t.GPT2Config(**gpt2)), ids, 0, "tied weights"),
        "neox": (lambda: t.GPTNeoXForCausalLM(t.GPTNeoXConfig(**small, intermediate_size=64)), ids, 5, ""),
        "vit": (
            lambda: t.ViTForImageClassification(t.ViTConfig(
                hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
                image_size=16, patch_size=4,
            )),
            pixels, 5, "",
        ),
        "bert": (
            lambda: t.BertModel(t.BertConfig(**small, intermediate_size=64)),
            {"input_ids": ids["input_ids"]}, 0, "RMSNorm has no bias",
        ),
    }  # fmt: skip


@pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="needs transformers")
@pytest.mark.parametrize("family", ["gpt2", "tied", "neox", "vit", "bert"])
def test_models_of_hugging_face(family):
    make, inputs, changed, reason = families()[family]
    torch.manual_seed(0)
    before = randomise(make())
    after = copy.deepcopy(before)
    if reason:
        with pytest.raises(ValueError, match=reason):
            planish.convert(after, "rms", exact=True, inputs=inputs)
        return
    assert len(planish.convert(after, "rms", exact=True, inputs=inputs).changed) == changed
    with torch.no_grad():
        expected, actual = before(**inputs)[0], after(**inputs)[0]
    assert float((expected - actual).abs().max()) <= FLOAT * float(expected.abs().max())
