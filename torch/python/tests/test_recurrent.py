"""Recurrent modules, compared with PyTorch's and with their equations in PyTorch's operations."""

import concurrent.futures
import copy
import io
import itertools
import pickle

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence

from planish.nn import (
    LayerNormGRU,
    LayerNormGRUCell,
    LayerNormLSTM,
    LayerNormLSTMCell,
    LayerNormRNN,
    LayerNormRNNCell,
)

# The order of sums of a dozen values of about 1 differs from the oracle's. Each step adds a few units
# in the last place of float64, 2e-16. Norms multiply them when they divide by small deviations.
CLOSE = {"rtol": 1e-10, "atol": 1e-12}
# Like CLOSE in float32, with 1.2e-7.
CLOSE_FLOAT = {"rtol": 1e-4, "atol": 1e-5}

LSTM_VARIANTS = ["paper", "haste", "fastrnns", "nemo", "tfa", "contrib", "torchaudio", "tflite"]
LSTM_VARIANTS += ["draw", "slstm", "plain", "batchnorm"]
GRU_VARIANTS = ["paper", "haste", "dreamer", "plain", "batchnorm"]
LAYERS = (
    [(LayerNormLSTM, {"variant": variant}) for variant in LSTM_VARIANTS]
    + [(LayerNormGRU, {"variant": variant}) for variant in GRU_VARIANTS]
    + [(LayerNormRNN, {"variant": variant}) for variant in ("paper", "plain", "batchnorm")]
    + [(LayerNormRNN, {"variant": v, "nonlinearity": "relu"}) for v in ("paper", "plain")]
)
# Layers with a block-diagonal weight_hh.
LAYERS += [
    (layer, {"variant": variant, "num_heads": 3})
    for layer in (LayerNormLSTM, LayerNormGRU, LayerNormRNN)
    for variant in ("paper", "plain")
]
# LSTMs with a projection.
PROJECTED = [(LayerNormLSTM, {"variant": variant, "proj_size": 4}) for variant in LSTM_VARIANTS]
# Those with every kind of norms.
LAYERS += [
    case for case in PROJECTED if case[1]["variant"] in ("paper", "contrib", "plain", "batchnorm")
]
CELL_OF = {
    LayerNormLSTM: LayerNormLSTMCell,
    LayerNormGRU: LayerNormGRUCell,
    LayerNormRNN: LayerNormRNNCell,
}
PLAIN = [
    (LayerNormLSTM, nn.LSTM, {}),
    (LayerNormLSTM, nn.LSTM, {"proj_size": 4}),
    (LayerNormGRU, nn.GRU, {}),
    (LayerNormRNN, nn.RNN, {}),
    (LayerNormRNN, nn.RNN, {"nonlinearity": "relu"}),
]
I, H = 4, 6


def name_of(value):
    if isinstance(value, dict):
        words = [v if isinstance(v, str) else f"{k} {v}" for k, v in value.items()]
        return "-".join(words) or "tanh"
    return getattr(value, "__name__", None)


def all_layers(more=()):
    cases = LAYERS + [case for case in more if case not in LAYERS]
    return pytest.mark.parametrize(("layer", "options"), cases, ids=name_of)


def states_of(result):
    """Returns h_n and, for an LSTM, c_n."""
    return result if isinstance(result, tuple) else (result,)


def drawn(module):
    """Gives a module random parameters, including gains and biases of norms."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    return module


def made(layer, options, *sizes, **others):
    return drawn(layer(*(sizes or (I, H)), **options, **others).double())


def outputs_of(options):
    """Returns the elements of a hidden state."""
    return options.get("proj_size", H)


def random_states(layer, *shape, options=None):
    """Returns random states [*shape] of H elements, or as many as the options have."""
    options = options or {}
    h = torch.randn(*shape[:-1], outputs_of(options), dtype=torch.float64)
    if layer not in (LayerNormLSTM, LayerNormLSTMCell):
        return h
    parts = 2 if options.get("variant") == "slstm" else 1
    return h, torch.randn(*shape[:-1], parts * shape[-1], dtype=torch.float64)


def assert_close(results, expected, **tolerance):
    torch.testing.assert_close(results, expected, **(tolerance or CLOSE))


# ---- The equations


def norm(z, p, name, dim, groups=1):
    """Normalizes over the last dimension, or over each of its groups; with dim=0 over the batch."""

    def normalized(part):
        mean = part.mean(dim, keepdim=True)
        return (part - mean) / ((part - mean).square().mean(dim, keepdim=True) + 1e-5).sqrt()

    result = torch.cat([normalized(part) for part in z.tensor_split(groups, -1)], -1)
    return result * p[name + "_weight"] + p.get(name + "_bias", 0)


def hidden_product(p, h):
    """Multiplies h by weight_hh, whose blocks are those of heads if it has fewer columns."""
    weight = p["weight_hh"]
    heads = h.shape[-1] // weight.shape[1]
    if heads == 1:
        return h @ weight.T
    parts = h.chunk(heads, -1)
    gates = [
        torch.cat([part @ w.T for part, w in zip(parts, gate.chunk(heads), strict=True)], -1)
        for gate in weight.split(h.shape[-1])
    ]
    return torch.cat(gates, -1)


def lstm_step(variant, p, x, h, c):
    zx, zh = x @ p["weight_ih"].T, hidden_product(p, h)
    dim = 0 if variant == "batchnorm" else -1
    if variant in ("plain", "draw"):
        a = zx + p["bias_ih"] + zh + p["bias_hh"]
    elif variant == "slstm":
        a = zx + zh + p["bias_ih"]
    elif variant in ("contrib", "torchaudio", "tflite"):
        a = norm(zx + zh, p, "ln", dim, groups=1 if variant == "torchaudio" else 4)
        a = a + p["bias_ih"] if variant == "tflite" else a
    else:
        a = norm(zx, p, "ln_ih", dim) + norm(zh, p, "ln_hh", dim)
        a = a if variant in ("fastrnns", "nemo") else a + p["bias_ih"]
    if variant == "slstm":
        return slstm_step(p, a, c)
    i, f, g, o = a.chunk(4, -1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    of_c = c if variant in ("plain", "tflite") else norm(c, p, "ln_c", dim)
    h = o.sigmoid() * of_c.tanh()
    h = h @ p["weight_hr"].T if "weight_hr" in p else h
    carried = ("fastrnns", "nemo", "tfa", "contrib", "torchaudio")
    return h, (of_c if variant in carried else c)


def slstm_step(p, a, state):
    """The paper's equations: c and n are divided by exp(m), m the larger exponent (Eq. 15-17)."""
    i, f, g, o = a.chunk(4, -1)
    mean, log_n = state.chunk(2, -1)
    m = torch.maximum(f.sigmoid().log() + log_n, i).detach()
    n_before, keep = (log_n - m).exp(), f.sigmoid()
    c = keep * mean * n_before + (i - m).exp() * g.tanh()
    n = keep * n_before + (i - m).exp()
    h = o.sigmoid() * c / n
    return h @ p["weight_hr"].T if "weight_hr" in p else h, torch.cat([c / n, n.log() + m], -1)


def gru_step(variant, p, x, h):
    zx, zh = x @ p["weight_ih"].T, hidden_product(p, h)
    if variant == "plain":
        ax, ah = zx + p["bias_ih"], zh + p["bias_hh"]
    elif variant == "haste":
        ax, ah = norm(zx, p, "ln_ih", -1) + p["bias_ih"], norm(zh, p, "ln_hh", -1) + p["bias_hh"]
    elif variant == "dreamer":
        r, z, n = norm(zx + zh, p, "ln", -1).chunk(3, -1)
        return ((1 - z.sigmoid()) * (r.sigmoid() * n).tanh() + z.sigmoid() * h,)
    else:
        two = 2 * h.shape[-1]

        def norms(z, name):
            dim = 0 if variant == "batchnorm" else -1
            first = {key: value[:two] for key, value in p.items() if key.startswith(name)}
            last = {key: value[two:] for key, value in p.items() if key.startswith(name)}
            parts = norm(z[..., :two], first, name, dim), norm(z[..., two:], last, name, dim)
            return torch.cat(parts, -1)

        ax, ah = norms(zx, "ln_ih"), norms(zh, "ln_hh")
    (rx, zx, nx), (rh, zh, nh) = ax.chunk(3, -1), ah.chunk(3, -1)
    z = (zx + zh).sigmoid()
    n = (nx + (rx + rh).sigmoid() * nh).tanh()
    return ((1 - z) * n + z * h,)


def rnn_step(variant, nonlinearity, p, x, h):
    z = x @ p["weight_ih"].T + hidden_product(p, h)
    if variant == "plain":
        z = z + p["bias_ih"] + p["bias_hh"]
    else:
        z = norm(z, p, "ln", 0 if variant == "batchnorm" else -1)
    return (z.relu() if nonlinearity == "relu" else z.tanh(),)


def step_of(module, p, x, states):
    if isinstance(module, LayerNormLSTM | LayerNormLSTMCell):
        return lstm_step(module.variant, p, x, *states)
    if isinstance(module, LayerNormGRU | LayerNormGRUCell):
        return gru_step(module.variant, p, x, *states)
    return rnn_step(module.variant, module.nonlinearity, p, x, *states)


def composed(module, x, hx=None, lengths=None, resets=None, h_reset=None, c_reset=None):
    """Computes a module without dropout for x [T, B, I] from the entries of its state dict."""
    T, B, _ = x.shape
    entries = dict(module.named_parameters())
    directions = ("", "_reverse") if module.bidirectional else ("",)
    lengths = torch.full([B], T) if lengths is None else lengths
    last = []
    for layer, direction in itertools.product(range(module.num_layers), range(len(directions))):
        if direction == 0:
            inputs, x = x, []
        suffix = f"_l{layer}{directions[direction]}"
        p = {k.removesuffix(suffix): v for k, v in entries.items() if k.endswith(suffix)}
        index = layer * len(directions) + direction
        zeros = [inputs.new_zeros(B, size) for size in (module.proj_size or H, H)]
        if module.variant == "slstm":
            zeros[1] = torch.cat([zeros[1], torch.full_like(zeros[1], -torch.inf)], -1)
        count = 2 if isinstance(module, LayerNormLSTM) else 1
        states = zeros[:count] if hx is None else [s[index] for s in states_of(hx)]
        reset_to = [
            z if s is None else s[index] for z, s in zip(zeros, (h_reset, c_reset), strict=True)
        ]
        y = [None] * T
        for t in reversed(range(T)) if direction else range(T):
            there = (t < lengths)[:, None]
            if resets is not None:
                reset = resets[t, :, None] & there
                states = [
                    torch.where(reset, to, state)
                    for state, to in zip(states, reset_to, strict=False)
                ]
            after = step_of(module, p, inputs[t], states)
            states = [torch.where(there, a, s) for a, s in zip(after, states, strict=True)]
            y[t] = torch.where(there, states[0], 0)
        x.append(torch.stack(y))
        last.append(states)
        if direction == len(directions) - 1:
            x = torch.cat(x, -1)
    return x, tuple(torch.stack(state) for state in zip(*last, strict=True))


def with_gradients(call, inputs):
    """Returns the results of a call, and the gradients of a fixed sum of them with respect to
    `inputs`."""
    y, states = call()
    outputs = (y, *states_of(states))
    torch.manual_seed(2)
    loss = sum((output * torch.randn_like(output)).sum() for output in outputs)
    return outputs, torch.autograd.grad(loss, inputs)


@all_layers(PROJECTED)
def test_every_variant_matches_its_equations(layer, options):
    module = made(layer, options)
    x = torch.randn(6, 3, I, dtype=torch.float64, requires_grad=True)
    inputs = [x, *module.parameters()]
    results = with_gradients(lambda: module(x), inputs)
    assert_close(results, with_gradients(lambda: composed(module, x), inputs))


@all_layers()
def test_layers_directions_and_sequences_match_the_equations(layer, options):
    module = made(layer, options, num_layers=2, bidirectional=True)
    T, B, L = 6, 4, 4
    x = torch.randn(T, B, I, dtype=torch.float64, requires_grad=True)
    hx = random_states(layer, L, B, H, options=options)
    sequences = {"resets": torch.rand(T, B) < 0.3}
    sequences["h_reset"] = random_states(LayerNormGRU, L, H, options=options)
    if layer is LayerNormLSTM:
        sequences["c_reset"] = random_states(layer, L, H, options=options)[1]
    if options["variant"] != "batchnorm":  # batch norm's statistics depend on the other sequences
        sequences["lengths"] = torch.tensor([4, 6, 1, 5])
    learned = [*states_of(hx), *(v for k, v in sequences.items() if k.endswith("_reset"))]
    inputs = [x, *module.parameters(), *(state.requires_grad_() for state in learned)]
    results = with_gradients(lambda: module(x, hx, **sequences), inputs)
    assert_close(results, with_gradients(lambda: composed(module, x, hx, **sequences), inputs))


@all_layers()
def test_cells_match_steps_of_their_layers(layer, options):
    cell_class = CELL_OF[layer]
    if options["variant"] == "batchnorm":
        pytest.skip("a step has no statistics over a batch")
    cell = made(cell_class, options)
    module = layer(I, H, **options).double()
    module.load_state_dict({key + "_l0": value for key, value in cell.state_dict().items()})
    x = torch.randn(4, 3, I, dtype=torch.float64)
    hx = random_states(layer, 3, H, options=options)
    first = tuple(s[None] for s in hx) if isinstance(hx, tuple) else hx[None]
    y, last = module(x, first)
    for t in range(4):
        hx = cell(x[t], hx)
        assert torch.equal(states_of(hx)[0], y[t])  # a step has the bits of a layer
    for state, expected in zip(states_of(hx), states_of(last), strict=True):
        assert torch.equal(state, expected[0])
    # One vector instead of a batch, and no state.
    row = cell(x[0, 0], None)
    batch = cell(x[0, :1])
    of_c = 2 * H if options["variant"] == "slstm" else H
    sizes = [(outputs_of(options),), (of_c,)][: len(states_of(row))]
    assert [state.shape for state in states_of(row)] == sizes
    for state, expected in zip(states_of(row), states_of(batch), strict=True):
        assert torch.equal(state, expected[0])


@all_layers()
def test_checkpoints_change_no_bit(layer, options):
    module = made(layer, options)
    again = layer(I, H, **options, checkpoint=True).double()
    again.load_state_dict(module.state_dict())
    x = torch.randn(9, 3, I, dtype=torch.float64)
    results = [with_gradients(lambda m=m: m(x), list(m.parameters())) for m in (module, again)]
    assert_close(*results, rtol=0, atol=0)


# ---- PyTorch's modules


def pair(ours, theirs, options, *sizes, **others):
    """Returns the two modules, initialized with the same seed."""
    torch.manual_seed(3)
    module = ours(*(sizes or (I, H)), **options, **others, variant="plain", dtype=torch.float64)
    torch.manual_seed(3)
    return module, theirs(*(sizes or (I, H)), **options, **others, dtype=torch.float64)


def plain(parameters=PLAIN):
    return pytest.mark.parametrize(("ours", "theirs", "options"), parameters, ids=name_of)


@plain()
@pytest.mark.parametrize(
    "others",
    [
        {},
        {"bias": False},
        {"num_layers": 3, "bidirectional": True, "dropout": 0.4},
        {"num_layers": 2, "batch_first": True},
    ],
    ids=["", "no bias", "deep", "batch first"],
)
def test_plain_variants_match_torch(ours, theirs, options, others):
    module, torchs = pair(ours, theirs, options, **others)
    # Keys, shapes, initial values and their order are the same, and state dicts load both ways.
    mine, others_dict = module.state_dict(), torchs.state_dict()
    assert list(mine) == list(others_dict)
    assert all(torch.equal(mine[key], others_dict[key]) for key in mine)
    drawn(module)
    torchs.load_state_dict(module.state_dict())
    module.load_state_dict(torchs.state_dict())

    x = torch.randn(6, 3, I, dtype=torch.float64, requires_grad=True)
    L = module.num_layers * (2 if module.bidirectional else 1)
    hx = random_states(
        ours, L, 6 if module.batch_first else 3, H, options=options
    )
    results = []
    for m in (module, torchs):
        torch.manual_seed(4)  # seeds dropout
        results.append(with_gradients(lambda m=m: m(x, hx), [x, *m.parameters()]))
    assert_close(*results)
    assert_close(module.eval()(x)[0], torchs.eval()(x)[0])


@plain()
def test_one_sequence_without_a_batch_matches_torch(ours, theirs, options):
    module, torchs = pair(ours, theirs, options, bidirectional=True, batch_first=True)
    x = torch.randn(6, I, dtype=torch.float64)
    hx = random_states(ours, 2, H, options=options)
    assert_close(module(x, hx), torchs(x, hx))
    assert_close(module(x), torchs(x))
    resets = torch.tensor([False, False, False, True, False, False])
    one, many = module(x, resets=resets)[0], module(x[None], resets=resets[None])[0][0]
    assert torch.equal(one, many)


@plain()
def test_packed_sequences_match_torch(ours, theirs, options):
    module, torchs = pair(ours, theirs, options, num_layers=2, bidirectional=True)
    sequences = [torch.randn(length, I, dtype=torch.float64) for length in (2, 5, 1, 5)]
    packed = pack_sequence(sequences, enforce_sorted=False)
    hx = random_states(ours, 4, 4, H, options=options)
    y, states = module(packed, hx)
    expected, expected_states = torchs(packed, hx)
    assert type(y) is PackedSequence
    assert_close(y.data, expected.data)
    assert_close(states, expected_states)
    for mine, other in zip(y[1:], expected[1:], strict=True):
        assert torch.equal(mine, other)
    # Without a state, sorted by the caller.
    packed = pack_sequence(sorted(sequences, key=len, reverse=True))
    assert_close(module(packed)[0].data, torchs(packed)[0].data)


@all_layers()
def test_lengths_match_packing(layer, options):
    module = made(layer, options, bidirectional=True)
    x, lengths = torch.randn(6, 3, I, dtype=torch.float64), torch.tensor([3, 6, 1])
    y, states = module(x, lengths=lengths)
    packed, packed_states = module(pack_padded_sequence(x, lengths, enforce_sorted=False))
    again = pack_padded_sequence(y, lengths, enforce_sorted=False)
    if options["variant"] == "batchnorm":  # statistics are sums over the sequences, here sorted
        assert_close(again.data, packed.data)
        assert_close(states, packed_states)
    else:
        assert torch.equal(again.data, packed.data)
        assert_close(states, packed_states, rtol=0, atol=0)
    assert (y[3:, 0] == 0).all() and (y[1:, 2] == 0).all()


@plain([case for case in PLAIN if "proj_size" not in case[2]])  # torch has no such cell
def test_plain_cells_match_torch(ours, theirs, options):
    module, torchs = pair(CELL_OF[ours], getattr(nn, theirs.__name__ + "Cell"), options)
    assert list(module.state_dict()) == list(torchs.state_dict())
    torchs.load_state_dict(module.state_dict())
    x, hx = torch.randn(3, I, dtype=torch.float64), random_states(ours, 3, H)
    assert_close(module(x, hx), torchs(x, hx))
    assert_close(module(x[0]), torchs(x[0]))
    arguments = (I, H, False) + ((options["nonlinearity"],) if options else ())
    module = CELL_OF[ours](*arguments, variant="plain")
    assert list(module.state_dict()) == ["weight_ih", "weight_hh"]


def test_arguments_have_the_order_of_torch():
    arguments = {"num_layers": 2, "bias": False, "batch_first": True, "dropout": 0.5}
    arguments |= {"bidirectional": True, "device": "meta", "dtype": torch.float64}
    for ours, theirs in ((LayerNormGRU, nn.GRU), (LayerNormLSTM, nn.LSTM), (LayerNormRNN, nn.RNN)):
        module = ours(I, H, **arguments, variant="plain")
        torchs = theirs(I, H, **arguments)
        for (key, mine), (other_key, other) in zip(
            module.named_parameters(), torchs.named_parameters(), strict=True
        ):
            assert (key, mine.shape, mine.dtype) == (other_key, other.shape, other.dtype)
            assert mine.is_meta
        assert module.extra_repr().startswith(torchs.extra_repr())
    lstm = LayerNormLSTM(I, H, 2, False, True, 0.5, True, "cpu", torch.float64)
    assert (lstm.num_layers, lstm.bias, lstm.batch_first, lstm.dropout) == (2, False, True, 0.5)
    assert lstm.bidirectional and lstm.weight_hh_l1.dtype == torch.float64
    rnn = LayerNormRNN(I, H, 1, "relu", False)
    assert rnn.nonlinearity == "relu" and not rnn.bias
    cell = LayerNormRNNCell(I, H, False, "relu", "cpu", torch.float64)
    assert cell.nonlinearity == "relu" and not cell.bias and cell.weight_hh.dtype == torch.float64
    lstm.flatten_parameters()
    assert [len(weights) for weights in lstm.all_weights] == [8] * 4
    assert lstm.all_weights[3][1] is lstm.weight_hh_l1_reverse


# ---- Parameters

G = {LayerNormLSTM: 4 * H, LayerNormGRU: 3 * H, LayerNormRNN: H}
SEPARATE_NORMS = ["ln_ih_weight", "ln_ih_bias", "ln_hh_weight", "ln_hh_bias"]
OF_C = ["ln_c_weight", "ln_c_bias"]
KEYS = {
    (LayerNormLSTM, "paper"): ["bias_ih", *SEPARATE_NORMS, *OF_C],
    (LayerNormLSTM, "haste"): ["bias_ih", "ln_ih_weight", "ln_hh_weight", *OF_C],
    (LayerNormLSTM, "fastrnns"): [*SEPARATE_NORMS, *OF_C],
    (LayerNormLSTM, "nemo"): [*SEPARATE_NORMS, *OF_C],
    (LayerNormLSTM, "torchaudio"): ["ln_weight", "ln_bias", *OF_C],
    (LayerNormLSTM, "tflite"): ["bias_ih", "ln_weight"],
    (LayerNormLSTM, "tfa"): ["bias_ih", *SEPARATE_NORMS, *OF_C],
    (LayerNormLSTM, "contrib"): ["ln_weight", "ln_bias", *OF_C],
    (LayerNormLSTM, "draw"): ["bias_ih", "bias_hh", *OF_C],
    (LayerNormLSTM, "slstm"): ["bias_ih"],
    (LayerNormLSTM, "plain"): ["bias_ih", "bias_hh"],
    (LayerNormLSTM, "batchnorm"): ["bias_ih", "ln_ih_weight", "ln_hh_weight", *OF_C],
    (LayerNormGRU, "paper"): SEPARATE_NORMS,
    (LayerNormGRU, "haste"): ["bias_ih", "bias_hh", "ln_ih_weight", "ln_hh_weight"],
    (LayerNormGRU, "dreamer"): ["ln_weight", "ln_bias"],
    (LayerNormGRU, "plain"): ["bias_ih", "bias_hh"],
    (LayerNormGRU, "batchnorm"): SEPARATE_NORMS,
    (LayerNormRNN, "paper"): ["ln_weight", "ln_bias"],
    (LayerNormRNN, "plain"): ["bias_ih", "bias_hh"],
    (LayerNormRNN, "batchnorm"): ["ln_weight", "ln_bias"],
}


@all_layers()
@pytest.mark.parametrize("bias", [True, False], ids=["", "no bias"])
def test_keys_shapes_and_initial_values(layer, options, bias):
    module = layer(I, H, num_layers=2, bidirectional=True, bias=bias, **options)
    names = ["weight_ih", "weight_hh"] + [
        name for name in KEYS[layer, options["variant"]] if bias or not name.startswith("bias")
    ]
    outputs = outputs_of(options)
    if outputs < H:
        names.append("weight_hr")
    suffixes = ["_l0", "_l0_reverse", "_l1", "_l1_reverse"]
    entries = module.state_dict()
    assert list(entries) == [name + suffix for suffix in suffixes for name in names]
    bound = 1 / H**0.5
    for key, value in entries.items():
        name = key.partition("_l0")[0].partition("_l1")[0]
        inputs = I if "_l0" in key else 2 * outputs
        columns = outputs // options.get("num_heads", 1)
        shapes = {"weight_ih": (G[layer], inputs), "weight_hh": (G[layer], columns)}
        shape = (shapes | {"weight_hr": (outputs, H)}).get(name)
        assert value.shape == (shape or ((H,) if name in OF_C else (G[layer],)))
        if name.startswith("ln_"):
            initial = torch.full_like(value, 1.0 if name.endswith("weight") else 0.0)
            if options["variant"] == "dreamer" and name == "ln_bias":
                initial[H : 2 * H] = 1  # of z
            assert torch.equal(value, initial)
        else:
            assert value.abs().max() <= bound
            # The few elements of a bias can all be small.
            assert name.startswith("bias") or value.std() > bound / 4
    if options["variant"] != "batchnorm":
        cell = CELL_OF[layer](I, H, bias=bias, **options)
        assert list(cell.state_dict()) == names


@pytest.mark.parametrize("variant", LSTM_VARIANTS)
def test_a_state_dict_of_torchs_lstm_can_be_loaded(variant):
    model = nn.Sequential(LayerNormLSTM(I, H, num_layers=2, bidirectional=True, variant=variant))
    torchs = nn.Sequential(nn.LSTM(I, H, num_layers=2, bidirectional=True))
    entries = torchs.state_dict()
    missing, unexpected = model.load_state_dict(entries, strict=False)
    lost = {"fastrnns", "nemo", "contrib", "torchaudio"}  # variants without a bias
    assert sorted(missing) == sorted(key for key in model.state_dict() if ".ln_" in key)
    assert sorted(unexpected) == sorted(k for k in entries if "bias" in k and variant in lost)
    assert list(entries) == list(torchs.state_dict())  # the caller's dict does not change
    mine = model[0].state_dict()
    assert torch.equal(mine["weight_hh_l1_reverse"], entries["0.weight_hh_l1_reverse"])
    if "bias_hh_l0" in mine:
        assert torch.equal(mine["bias_hh_l0"], entries["0.bias_hh_l0"])
    elif variant not in lost:
        total = entries["0.bias_ih_l0_reverse"] + entries["0.bias_hh_l0_reverse"]
        assert torch.equal(mine["bias_ih_l0_reverse"], total)
    if variant not in ("plain", "slstm", "batchnorm"):
        cell = LayerNormLSTMCell(I, H, variant=variant)
        missing, _ = cell.load_state_dict(nn.LSTMCell(I, H).state_dict(), strict=False)
        assert all(key.startswith("ln_") for key in missing)


def test_a_state_dict_of_other_shapes_is_refused():
    lstm = LayerNormLSTM(I, H)
    with pytest.raises(RuntimeError, match=r'Missing key\(s\) in state_dict: "ln_ih_weight_l0"'):
        lstm.load_state_dict(nn.LSTM(I, H).state_dict())
    with pytest.raises(RuntimeError, match="size mismatch for bias_ih_l0"):
        lstm.load_state_dict(nn.LSTM(I, H + 1).state_dict(), strict=False)
    entries = lstm.state_dict() | {"bias_hh_l0": torch.zeros(3)}
    with pytest.raises(RuntimeError, match=r'Unexpected key\(s\) in state_dict: "bias_hh_l0"'):
        lstm.load_state_dict(entries)


@all_layers()
def test_modules_are_copied_and_saved(layer, options, tmp_path):
    module = made(layer, options, num_layers=2).eval()
    x = torch.randn(3, 2, I, dtype=torch.float64)
    with torch.no_grad():
        y = module(x)[0]  # packs parameters, which must not be saved
    loaded = layer(I, H, num_layers=2, **options).double().eval()
    torch.save(module.state_dict(), tmp_path / "state.pt")
    loaded.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    whole = io.BytesIO()
    torch.save(module, whole)
    whole.seek(0)
    others = [
        copy.deepcopy(module),
        pickle.loads(pickle.dumps(module)),
        torch.load(whole, weights_only=False),
        loaded,
    ]
    with torch.no_grad():
        module.weight_hh_l0.zero_()  # copies are independent
        assert not torch.equal(module(x)[0], y)
        for other in others:
            assert torch.equal(other(x)[0], y)
            assert repr(other) == repr(module)


def test_modules_print_their_options():
    assert repr(LayerNormLSTM(3, 4)) == "LayerNormLSTM(3, 4)"
    assert repr(LayerNormGRU(3, 4, num_heads=2)) == "LayerNormGRU(3, 4, num_heads=2)"
    assert repr(LayerNormLSTM(3, 4, proj_size=2)) == "LayerNormLSTM(3, 4, proj_size=2)"
    assert repr(LayerNormLSTMCell(3, 4, proj_size=2)) == "LayerNormLSTMCell(3, 4, proj_size=2)"
    module = LayerNormRNN(
        3, 4, 2, "relu", False, True, 0.5, True, variant="plain", eps=1e-3, checkpoint=True
    )
    assert repr(module) == (
        "LayerNormRNN(3, 4, num_layers=2, bias=False, batch_first=True, dropout=0.5, "
        "bidirectional=True, variant=plain, eps=0.001, checkpoint=True, nonlinearity=relu)"
    )
    assert repr(LayerNormGRUCell(3, 4, variant="plain")) == "LayerNormGRUCell(3, 4, variant=plain)"
    assert repr(LayerNormRNNCell(3, 4, False, "relu")) == (
        "LayerNormRNNCell(3, 4, bias=False, nonlinearity=relu)"
    )


def test_types_change_with_to():
    module = LayerNormLSTM(I, H)
    x = torch.randn(3, 2, I)
    y = module(x)[0]
    assert y.dtype == torch.float32
    # float32 rounds each of about a hundred operations by 6e-8.
    assert_close(module.double()(x.double())[0].float(), y, **CLOSE_FLOAT)
    for dtype in (torch.bfloat16, torch.half):
        module = module.to(dtype)
        exact = copy.deepcopy(module).float()
        for training in (True, False):  # evaluation packs weights
            module.train(training), exact.train(training)
            with torch.set_grad_enabled(training):
                got, expected = module(x.to(dtype)), exact(x.to(dtype).float())
            assert torch.equal(got[0], expected[0].to(dtype))
            assert torch.equal(got[1][1], expected[1][1].to(dtype))
    with pytest.raises(ValueError, match="x must have weight_ih_l0's type|must have x's type"):
        module(x)


def test_cells_and_steps_of_sixteen_bits():
    cell = drawn(LayerNormGRUCell(I, H)).bfloat16()
    exact = copy.deepcopy(cell).float()
    x = torch.randn(5, 3, I).bfloat16()

    def run(step, dtype):
        h, states = None, []
        for t in range(5):
            h = step(x[t].to(dtype), h if h is None else h.bfloat16().to(dtype))
            states.append(h)
        return torch.stack(states)

    expected = run(exact, torch.float)
    wanted, seeds = list(cell.parameters()), torch.randn(5, 3, H).bfloat16()
    gradients = torch.autograd.grad(run(exact.steps(), torch.float), list(exact.parameters()), seeds.float())
    for step in (cell, cell.steps()):
        y = run(step, torch.bfloat16)
        assert torch.equal(y, expected.bfloat16())  # steps round the state that they continue from
        for got, want in zip(torch.autograd.grad(y, wanted, seeds), gradients, strict=True):
            # Each of five steps adds rounded gradients of the state.
            assert (got.float() - want).abs().max() <= 8 * 2**-8 * want.abs().max()
    with torch.no_grad():
        assert torch.equal(run(cell.eval(), torch.bfloat16), expected.bfloat16())
        assert torch.equal(run(cell.steps(), torch.bfloat16), expected.bfloat16())
    with pytest.raises(ValueError, match="must have x's type"):
        cell.steps()(x[0].float())
    steps = cell.steps()
    with torch.no_grad():
        cell.weight_ih.mul_(2)
    with pytest.raises(ValueError, match="weight_ih has changed since the steps began"):
        steps(x[0])


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_autocast_rounds_only_input_and_output(training):
    module = drawn(LayerNormLSTM(I, H, num_layers=2)).train(training)
    cell = drawn(LayerNormGRUCell(I, H)).train(training)
    x = torch.randn(4, 3, I, dtype=torch.bfloat16)
    with torch.set_grad_enabled(training):
        with torch.autocast("cpu", torch.bfloat16):
            y, (h_n, c_n) = module(x)
            step = cell(x[0])
        expected, states = module(x.float())
    assert y.dtype == h_n.dtype == c_n.dtype == step.dtype == torch.bfloat16
    # bfloat16 has 8 bits: y is rounded by 2^-9, and so is the second layer's input.
    assert_close((y, (h_n, c_n)), (expected, states), rtol=2**-7, atol=2**-7, check_dtype=False)
    assert torch.equal(step, cell(x[0].float()).bfloat16())


# ---- Steps that share gradients


def run_steps(step, layer, x, hx):
    """Returns the states after every step. Each input depends on the output before."""
    outputs, result = [], hx
    for now in x:
        (h, *c) = states_of(result)
        result = step(now + h[..., :I].sin(), result)
        outputs += states_of(result)
    return torch.cat([output.flatten() for output in outputs])


@pytest.mark.parametrize("batch", [(3,), ()], ids=["batch", "one"])
@pytest.mark.parametrize(
    ("layer", "options"), [case for case in LAYERS if case[1]["variant"] != "batchnorm"],
    ids=name_of,
)  # fmt: skip
def test_steps_match_the_cell(layer, options, batch):
    cell = made(CELL_OF[layer], options)
    x = torch.randn(6, *batch, I, dtype=torch.float64, requires_grad=True)
    hx = random_states(layer, *batch, H, options=options)
    wanted = [x, *cell.parameters()]
    expected = run_steps(cell, layer, x, hx)
    weights = torch.randn_like(expected)
    gradients = torch.autograd.grad(expected, wanted, weights)
    step = cell.steps()
    states = run_steps(step, layer, x, hx)
    assert torch.equal(states, expected)
    # Twice, because a pass must not see the sums of another.
    for _ in range(2):
        assert_close(torch.autograd.grad(states, wanted, weights, retain_graph=True), gradients)
    for again in (cell.steps(), cell.eval().steps()):  # in the second, the module packs
        with torch.no_grad():
            assert torch.equal(run_steps(again, layer, x, hx), expected)
    assert torch.equal(states_of(step(x[0]))[0], states_of(cell(x[0]))[0])


def test_steps_continue_from_any_state():
    cell = made(LayerNormGRUCell, {})
    x = torch.randn(4, 3, I, dtype=torch.float64)
    gradients = []
    for step in (cell, cell.steps()):
        first = step(x[0])
        left, right = step(x[1], first), step(x[2], first.detach())
        step(x[3], left)  # the result is not used
        loss = left.square().sum() + right.cos().sum()
        gradients.append(torch.autograd.grad(loss, list(cell.parameters())))
    assert_close(gradients[1], gradients[0])


def test_steps_match_the_cell_under_compilers_and_transforms():
    cell = made(LayerNormLSTMCell, {})
    x = torch.randn(3, 2, I, dtype=torch.float64)
    hx = random_states(LayerNormLSTM, 2, H)

    def run(x):
        return run_steps(cell.steps(), LayerNormLSTM, x, hx)

    expected = run_steps(cell, LayerNormLSTM, x, hx)
    assert_close(torch.compile(run, fullgraph=True, backend="aot_eager")(x), expected)
    step = cell.steps()  # created outside of the compiled function
    compiled = torch.compile(lambda x: step(x, hx), fullgraph=True, backend="aot_eager")
    assert_close(compiled(x[0]), cell(x[0], hx))
    stack = torch.stack([x, 2 * x])
    assert_close(torch.func.vmap(run)(stack), torch.stack([run(t) for t in stack]))
    assert_close(
        torch.func.jvp(run, (x,), (stack[1],)),
        torch.func.jvp(lambda x: run_steps(cell, LayerNormLSTM, x, hx), (x,), (stack[1],)),
    )


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda: LayerNormLSTMCell(I, H), ["bias_ih", "ln_hh_weight", "ln_c_bias"]),
        (lambda: LayerNormLSTMCell(I, H, variant="plain"), ["bias_ih", "bias_hh", "weight_ih"]),
        (lambda: LayerNormGRUCell(I, H, variant="plain"), ["bias_ih", "bias_hh"]),
    ],
)
def test_steps_detect_a_change_of_any_parameter(make, names, training):
    x = torch.randn(2, I)
    for name in names:
        cell = drawn(make()).train(training)
        with torch.set_grad_enabled(training):
            step = cell.steps()
            step(x)
            with torch.no_grad():
                getattr(cell, name).add_(1)
            with pytest.raises(ValueError, match=f"{name} has changed since the steps began"):
                step(x)
            cell.steps()(x)


def test_errors_of_steps():
    cell = made(LayerNormLSTMCell, {})
    step = cell.steps()
    x = torch.randn(2, I, dtype=torch.float64)
    for wrong in (x[None], x[:, 1:], x.int()):
        with pytest.raises(ValueError) as expected:
            cell(wrong)
        with pytest.raises(ValueError) as error:
            step(wrong)
        assert str(error.value) == str(expected.value)
    h, _ = step(x)
    with pytest.raises(NotImplementedError, match="create_graph must be false, got true"):
        torch.autograd.grad(h.sum(), cell.weight_ih, create_graph=True)
    with torch.no_grad():
        cell.weight_hh.mul_(2)
    with pytest.raises(ValueError, match="weight_hh has changed since the steps began"):
        step(x)
    new = torch.classes.planish.RnnLayer
    with pytest.raises(ValueError, match="cell must be one of rnn, .*, got lnlstm"):
        new("lnlstm", True, "", "LayerNormLSTMCell")
    with pytest.raises(ValueError, match="params must have 9 tensors, got 1"):
        new("ln_lstm", True, "", "LayerNormLSTMCell").steps([x], True, False, 1e-5, {})


# ---- Dropout and resets


def test_dropout_is_between_layers_in_training():
    module = made(LayerNormLSTM, {}, num_layers=2, dropout=0.5)
    x = torch.randn(3, 2, I, dtype=torch.float64)
    first, second = module(x), module(x)
    assert not torch.equal(first[0], second[0])
    assert torch.equal(first[1][0][0], second[1][0][0])  # the state of the first layer
    module.eval()
    assert_close(module(x), composed(module, x))
    module.train().dropout = 1.0  # the second layer gets only zeros
    (h_n, _), zeros = module(x)[1], torch.zeros(3, 2, H, dtype=torch.float64)
    second = LayerNormLSTM(H, H).double()
    second.load_state_dict(
        {k.replace("_l1", "_l0"): v for k, v in module.state_dict().items() if "_l1" in k}
    )
    assert_close(h_n[1], second(zeros)[1][0][0])


def test_one_layer_with_dropout_warns():
    with pytest.warns(UserWarning, match=r"\[LayerNormGRU\] dropout=.* has no effect") as record:
        LayerNormGRU(I, H, dropout=0.5)
    assert record[0].filename == __file__


@all_layers()
@pytest.mark.parametrize("batch_first", [False, True], ids=["", "batch first"])
def test_a_reset_starts_another_sequence(layer, options, batch_first):
    if options["variant"] == "batchnorm":
        pytest.skip("sequences see each other")
    module = made(layer, options, num_layers=2, batch_first=batch_first)
    x = torch.randn(2, 7, I, dtype=torch.float64)
    resets = torch.zeros(2, 7, dtype=torch.bool)
    resets[0, 3] = resets[0, 5] = resets[1, 0] = True
    hx = random_states(layer, 2, 2, H, options=options)
    layout = (lambda t: t) if batch_first else (lambda t: t.transpose(0, 1))
    y, last = module(layout(x), hx, resets=layout(resets))
    y = layout(y)
    start = tuple(s[:, :1] for s in hx) if isinstance(hx, tuple) else hx[:, :1]

    def alone(row, begin, end, hx=None):
        return layout(module(layout(x[row : row + 1, begin:end]), hx)[0])[0]

    # The bits are the same, because a sequence's results do not depend on the others.
    parts = [alone(0, 0, 3, start), alone(0, 3, 5), alone(0, 5, 7)]
    assert torch.equal(y[0], torch.cat(parts))
    assert torch.equal(y[1], alone(1, 0, 7))  # does not depend on the initial state
    for mine, expected in zip(
        states_of(last), states_of(module(layout(x[:1, 5:]))[1]), strict=True
    ):
        assert torch.equal(mine[:, :1], expected)


def test_no_gradient_passes_a_reset():
    module = made(LayerNormGRU, {})
    x = torch.randn(5, 2, I, dtype=torch.float64, requires_grad=True)
    resets = torch.zeros(5, 2, dtype=torch.bool)
    resets[3, 0] = True
    module(x, resets=resets)[0][4].sum().backward()
    assert (x.grad[:3, 0] == 0).all()
    assert (x.grad[3:, 0] != 0).all() and (x.grad[:, 1] != 0).all()


# ---- Inference


def packings_of(module):
    return {suffix: layer.packings() for suffix, layer in module._layers.items()}


@all_layers()
def test_inference_packs_once_and_computes_the_same(layer, options):
    module = made(layer, options, bidirectional=True).eval()
    x = torch.randn(4, 3, I, dtype=torch.float64)
    none, once = {"_l0": 0, "_l0_reverse": 0}, {"_l0": 1, "_l0_reverse": 1}
    expected = module(x)  # not packed, because gradients are enabled
    assert packings_of(module) == none
    with torch.no_grad():
        for _ in range(2):
            assert_close(module(x), expected, rtol=0, atol=0)
            assert packings_of(module) == once
        module.train()(x)
        assert packings_of(module) == none  # not packed in training
    with torch.inference_mode():
        assert_close(module.eval()(x), expected, rtol=0, atol=0)
        assert packings_of(module) == once


@pytest.mark.parametrize("gradient", [False, True])
def test_calls_that_skip_the_dispatcher_have_the_same_bits(gradient):
    """Calls that a profiler observes go through the dispatcher, and must appear in it."""
    layer, cell = LayerNormLSTM(I, H).eval(), LayerNormGRUCell(I, H).eval()
    x = torch.randn(3, 2, I, requires_grad=gradient)

    def results():
        y, (h_n, c_n) = layer(x)
        h = cell(x[0])
        tensors = [y, h_n, c_n, h]
        if gradient:
            tensors += torch.autograd.grad(y.square().sum() + h.square().sum(), x)
        return tensors

    with torch.set_grad_enabled(gradient):
        direct = results()
        with torch.profiler.profile() as profile:
            observed = results()
    names = {event.key for event in profile.key_averages()}
    assert "planish::rnn_forward" in names
    assert ("planish::rnn_backward" if gradient else "planish::rnn_step") in names
    for a, b in zip(direct, observed, strict=True):
        assert torch.equal(a, b)


def change_in_place(module):
    with torch.no_grad():
        module.weight_hh_l0.mul_(2)


def change_by_an_optimizer(module):
    module(torch.randn(2, 1, I))[0].sum().backward()
    torch.optim.SGD(module.parameters(), lr=1.0).step()


def change_by_loading(module):
    module.load_state_dict({k: v + 1 for k, v in module.state_dict().items()})


def change_by_loading_other_tensors(module):
    entries = {k: v + 1 for k, v in module.state_dict().items()}
    module.load_state_dict(entries, assign=True)


def change_a_parameter(module):
    module.ln_c_bias_l0 = nn.Parameter(module.ln_c_bias_l0 + 1)


def change_data(module):
    module.weight_ih_l0.data = module.weight_ih_l0.data + 1


def change_behind_versions(module):
    module.weight_ih_l0.data.add_(1)


CHANGES = [
    change_in_place,
    change_by_an_optimizer,
    change_by_loading,
    change_by_loading_other_tensors,
    change_a_parameter,
    change_data,
    change_behind_versions,
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_change_of_parameters_is_detected(change):
    module = drawn(LayerNormLSTM(I, H)).eval()
    x = torch.randn(4, 3, I)
    with torch.no_grad():
        before = module(x)[0]
    change(module)
    with torch.no_grad():
        after = module(x)[0]
    assert not torch.equal(after, before)
    assert torch.equal(after, module(x)[0])  # computed from the parameters, because gradients are enabled


def test_changes_of_computed_parameters_are_detected():
    module = drawn(LayerNormGRU(I, H)).eval()
    torch.nn.utils.parametrizations.weight_norm(module, "weight_hh_l0")
    x = torch.randn(4, 3, I)
    for _ in range(3):
        with torch.no_grad():
            module.parametrizations.weight_hh_l0.original0.mul_(1.5)
            packed = module(x)[0]
        assert torch.equal(packed, module(x)[0])


def test_threads_can_share_a_module():
    module = drawn(LayerNormLSTM(I, H)).eval()
    x = torch.randn(20, 3, I)

    @torch.no_grad()
    def run(_):
        return module(x)[0]

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        results = list(pool.map(run, range(40)))
    assert all(torch.equal(result, results[0]) for result in results)


def test_parameters_created_in_inference_mode():
    with torch.inference_mode():
        module = drawn(LayerNormLSTM(I, H)).eval()
        x = torch.randn(4, 3, I)
        before = module(x)[0]
        module.weight_hh_l0.mul_(2)  # bumps no version counter
        assert not torch.equal(module(x)[0], before)


# ---- Transformations


@pytest.mark.parametrize(
    ("layer", "options", "training"),
    [
        (LayerNormLSTM, {"variant": "paper"}, True),
        (LayerNormLSTM, {"variant": "contrib"}, False),
        (LayerNormLSTM, {"variant": "paper", "proj_size": 4}, True),
        (LayerNormGRU, {"variant": "dreamer", "num_heads": 2}, True),
        (LayerNormGRU, {"variant": "plain"}, True),  # its biases are split
        (LayerNormRNN, {"variant": "plain", "nonlinearity": "relu"}, False),
    ],
    ids=name_of,
)
def test_compiles_in_one_graph(layer, options, training):
    torch.compiler.reset()
    module = made(layer, options, bidirectional=True).train(training)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager", dynamic=True)
    for T, B in ((4, 3), (6, 2)):
        x = torch.randn(T, B, I, dtype=torch.float64, requires_grad=True)
        hx = random_states(layer, 2, B, H, options=options)
        resets = torch.rand(T, B) < 0.3
        inputs = [x, *module.parameters()]
        results = [
            with_gradients(lambda m=m: m(x, hx, resets=resets), inputs)
            for m in (compiled, module)
        ]
        assert_close(*results)
        with torch.no_grad():  # a module in evaluation mode packs parameters here
            assert_close(compiled(x, hx, resets=resets), module(x, hx, resets=resets))


def test_compiles_to_code():
    torch.compiler.reset()
    model = nn.Sequential()
    model.lstm, model.cell = LayerNormLSTM(I, H, batch_first=True), LayerNormGRUCell(H, H)

    def run(x):
        y, (h_n, _) = model.lstm(x)
        return model.cell(y.relu()[:, -1] * 2, h_n[0].exp())

    compiled = torch.compile(run, fullgraph=True)
    x = torch.randn(3, 6, I)
    results = []
    for call in (compiled, run):
        model.zero_grad()
        y = call(x)
        y.square().sum().backward()
        results.append((y, [p.grad.clone() for p in model.parameters() if p.grad is not None]))
    # The compiler orders a few operations of float32 differently.
    assert_close(*results, **CLOSE_FLOAT)
    with torch.no_grad():
        model.eval()
        assert_close(compiled(x), run(x), **CLOSE_FLOAT)


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("grad", [True, False], ids=["", "no grad"])
def test_exports(training, grad):
    module = drawn(LayerNormLSTM(I, H, 2, batch_first=True, variant="haste")).train(training)
    x, hx = torch.randn(3, 6, I), (torch.randn(2, 3, H), torch.randn(2, 3, H))
    batch, time = torch.export.Dim("batch", min=2), torch.export.Dim("time", min=2)
    shapes = {"input": {0: batch, 1: time}, "hx": ({1: batch}, {1: batch})}
    with torch.set_grad_enabled(grad):
        program = torch.export.export(module, (x, hx), dynamic_shapes=shapes)
        saved = io.BytesIO()
        torch.export.save(program, saved)
        saved.seek(0)
        loaded = torch.export.load(saved).module()
        for B, T in ((3, 6), (2, 9)):
            x, hx = torch.randn(B, T, I), (torch.randn(2, B, H), torch.randn(2, B, H))
            assert_close(loaded(x, hx), module(x, hx), rtol=0, atol=0)


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_functional_transforms_and_tracers_work(training):
    module = made(LayerNormGRU, {}).train(training)
    x = torch.randn(4, 3, I, dtype=torch.float64)
    with torch.no_grad():
        expected = module(x)[0]
    parameters = dict(module.named_parameters())

    def loss(parameters, x):
        return torch.func.functional_call(module, parameters, (x,))[0].sum()

    results = torch.func.grad(loss)(parameters, x)
    module(x)[0].sum().backward()
    assert_close(results, {name: p.grad for name, p in parameters.items()})

    # Two models at once, without gradients.
    with torch.no_grad():
        stacked = {name: torch.stack([p, 2 * p]) for name, p in parameters.items()}
        both = torch.func.vmap(loss, in_dims=(0, None))(stacked, x)
        double = {name: 2 * p for name, p in parameters.items()}
        assert_close(both, torch.stack([loss(parameters, x), loss(double, x)]))

        traced = torch.fx.experimental.proxy_tensor.make_fx(lambda x: module(x)[0])(x)
        assert torch.equal(traced(x), expected)
        with torch.device("meta"):
            shapes = LayerNormGRU(I, H).train(training)(torch.empty(4, 3, I))
        assert [shape.shape for shape in shapes] == [(4, 3, H), (1, 3, H)]


@pytest.mark.parametrize(("layer", "options"), [LAYERS[0], LAYERS[8], LAYERS[11]], ids=name_of)
def test_second_derivatives(layer, options):
    module = made(layer, options, 2, 2)
    parameters = list(module.parameters())
    x = torch.randn(3, 2, 2, dtype=torch.float64, requires_grad=True)

    def run(x, *_):
        return module(x)[0]

    assert torch.autograd.gradcheck(run, (x, *parameters))
    assert torch.autograd.gradgradcheck(run, (x, *parameters))


# ---- Errors


def error_of(call):
    with pytest.raises((ValueError, RuntimeError)) as caught:
        call()
    return type(caught.value), str(caught.value).splitlines()[0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: LayerNormLSTM(0, 4), "[LayerNormLSTM] input_size must be at least 1, got 0"),
        (lambda: LayerNormGRU(3, -1), "[LayerNormGRU] hidden_size must be at least 1, got -1"),
        (lambda: LayerNormRNN(3, 4, 0), "[LayerNormRNN] num_layers must be at least 1, got 0"),
        (
            lambda: LayerNormLSTM(3, 4, dropout=2),
            "[LayerNormLSTM] dropout must be from 0 to 1, got 2",
        ),
        (
            lambda: LayerNormLSTM(3, 4, eps=-1),
            "[LayerNormLSTM] eps must be finite and at least 0, got -1",
        ),
        (
            lambda: LayerNormLSTMCell(3, 4, eps=float("nan")),
            "[LayerNormLSTMCell] eps must be finite and at least 0, got nan",
        ),
        (
            lambda: LayerNormLSTM(3, 4, variant="lasagne"),
            "[LayerNormLSTM] variant must be one of paper, haste, fastrnns, nemo, tfa, contrib, "
            "torchaudio, tflite, draw, slstm, plain, batchnorm, got lasagne",
        ),
        (
            lambda: LayerNormGRU(3, 4, variant="tfa"),
            "[LayerNormGRU] variant must be one of paper, haste, dreamer, plain, batchnorm, got tfa",
        ),
        (
            lambda: LayerNormRNN(3, 4, variant="batchnorm", nonlinearity="relu"),
            "[LayerNormRNN] variant must be one of paper, plain, got batchnorm",
        ),
        (
            lambda: LayerNormGRUCell(3, 4, variant="batchnorm"),
            "[LayerNormGRUCell] variant must be one of paper, haste, dreamer, plain, got batchnorm",
        ),
        (
            lambda: LayerNormRNNCell(3, 4, nonlinearity="sin"),
            "[LayerNormRNNCell] nonlinearity must be one of tanh, relu, got sin",
        ),
    ],
)
def test_options_out_of_range_are_refused(call, message):
    assert error_of(call) == (ValueError, message)


LSTM = LayerNormLSTM(3, 4, num_layers=2, batch_first=True)
X, STATES = torch.randn(2, 5, 3), torch.randn(2, 2, 4)
RESETS = torch.zeros(2, 5, dtype=torch.bool)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: LSTM(X[0][0]), "x must have 2 or 3 dimensions, got [3]"),
        (
            lambda: LSTM(X[:, :, :2]),
            "x must have input_size, 3, as its last dimension, got [2, 5, 2]",
        ),
        (lambda: LSTM(X, (STATES[0], STATES)), "h_0 must have [2, 2, 4], got [2, 4]"),
        (
            lambda: LSTM(X, (STATES, torch.randn(2, 5, 4))),
            "c_0 must have [2, 2, 4], got [2, 5, 4]",
        ),
        (lambda: LSTM(X[0], (STATES, STATES)), "h_0 must have [2, 4], got [2, 2, 4]"),
        (lambda: LSTM(X, STATES), "hx must be a tuple of two tensors, h and c, got Tensor"),
        (
            lambda: LayerNormGRU(3, 4)(X, (STATES, STATES)),
            "hx must be a tensor, got tuple",
        ),
        (lambda: LSTM(X, resets=RESETS.T), "resets must have [2, 5], got [5, 2]"),
        (
            lambda: LSTM(X, resets=RESETS, h_reset=torch.zeros(4)),
            "h_reset must have [2, 4], got [4]",
        ),
        (
            lambda: LSTM(X[0], lengths=torch.tensor([5])),
            "lengths must be left out for x [T, I], got [1]",
        ),
        (
            lambda: LSTM(pack_sequence([X[0]]), lengths=torch.tensor([5])),
            "lengths must be left out for a PackedSequence, got [1]",
        ),
        (
            lambda: LSTM(pack_sequence([X[0]]), resets=RESETS),
            "resets must be left out for a PackedSequence, got [2, 5]",
        ),
        (
            lambda: LSTM(pack_sequence([X[0, :, :2]])),
            "x must have input_size, 3, as its last dimension, got [5, 2]",
        ),
        (
            lambda: LSTM(pack_sequence([X[0]]), (STATES, STATES)),
            "h_0 must have [2, 1, 4], got [2, 2, 4]",
        ),
        (
            lambda: LayerNormLSTMCell(3, 4)(X),
            "x must have 1 or 2 dimensions, got [2, 5, 3]",
        ),
        (
            lambda: LayerNormLSTMCell(3, 4)(X[0], (STATES[0], STATES[0])),
            "h must have [5, 4], got [2, 4]",
        ),
        (lambda: LayerNormGRUCell(3, 4)(X[0, 0], STATES[0]), "h must have [4], got [2, 4]"),
    ],
)
def test_tensors_of_wrong_shapes_are_refused(call, message):
    kind, text = error_of(call)
    assert kind is ValueError
    assert text.startswith("[LayerNorm") and text.partition("] ")[2] == message


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: LSTM(X.double()), "x's type and device, Double on cpu, got Float on cpu"),
        (lambda: LSTM(X, lengths=torch.tensor([6, 1])), "lengths[0] must be at least 1 and at"),
        (
            lambda: LSTM(X, h_reset=torch.zeros(2, 4)),
            "h_reset must be left out without resets, got [4]",
        ),
    ],
)
def test_errors_of_the_operators(call, message):
    assert message in error_of(call)[1]
