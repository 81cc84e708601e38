"""LSTMModule and GRUModule beside those of TorchRL."""

import pytest
import torch
import torchrl.modules
from tensordict import LazyStackedTensorDict, TensorDict
from tensordict.nn import TensorDictModule, TensorDictSequential
from torch import nn
from torchrl.collectors import Collector
from torchrl.envs import GymEnv, InitTracker, TransformedEnv
from torchrl.modules import set_recurrent_mode

import planish
from planish.integrations.torchrl import GRUModule, LSTMModule

KINDS = {
    "LSTM": (torchrl.modules.LSTMModule, LSTMModule, ("recurrent_state_h", "recurrent_state_c")),
    "GRU": (torchrl.modules.GRUModule, GRUModule, ("recurrent_state",)),
}
INPUTS, HIDDEN, LAYERS = 5, 7, 2
# Sums of float in other orders.
TOLERANCES = {"rtol": 1e-5, "atol": 1e-6}


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


def pair(kind, **options):
    theirs, ours, _ = KINDS[kind]
    keys = {"in_key": "x", "out_key": "y"}
    theirs = theirs(INPUTS, HIDDEN, LAYERS, **keys)
    ours = ours(INPUTS, HIDDEN, LAYERS, variant="plain", **keys, **options)
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


def batch(kind, *shape, starts=0.2, start_states="zero"):
    """Returns a batch; a row can start in the middle of a trajectory."""
    data = {"x": torch.randn(*shape, INPUTS), "is_init": torch.rand(*shape, 1) < starts}
    for key in KINDS[kind][2]:
        state = torch.randn(*shape, LAYERS, HIDDEN)
        if start_states == "zero":
            state = state.masked_fill(data["is_init"].unsqueeze(-1), 0)
        data[key] = state
    return TensorDict(data, shape)


def gradients(module, data):
    module.zero_grad()
    module(data)["y"].sin().sum().backward()
    return [p.grad for p in module.parameters()]


@pytest.mark.parametrize("shape", [(3, 11), (9,), (2, 3, 8), (1, 1), (4, 1)])
@pytest.mark.parametrize("starts", [0.0, 0.3, 1.0])
def test_outputs_last_states_and_gradients_in_recurrent_mode(kind, shape, starts):
    theirs, ours = pair(kind)
    data = batch(kind, *shape, starts=starts)
    with set_recurrent_mode(True):
        expected, found = theirs(data.clone()), ours(data.clone())
        assert found.shape == expected.shape
        assert set(found.keys(True, True)) == set(expected.keys(True, True))
        torch.testing.assert_close(found["y"], expected["y"], **TOLERANCES)
        for key in ours.out_keys[1:]:
            last = (..., -1, slice(None), slice(None))
            assert found[key].shape == expected[key].shape
            torch.testing.assert_close(found[key][last], expected[key][last], **TOLERANCES)
            assert not found[key][..., :-1, :, :].any()
        for a, b in zip(gradients(ours, data.clone()), gradients(theirs, data.clone()), strict=True):
            torch.testing.assert_close(a, b, **TOLERANCES)


def test_gradients_reach_inputs_and_first_states(kind):
    theirs, ours = pair(kind)
    data = batch(kind, 3, 6)
    results = []
    for module in (theirs, ours):
        copy = data.clone()
        leaves = [copy[key].requires_grad_() for key in ("x", *KINDS[kind][2])]
        with set_recurrent_mode(True):
            y = module(copy)["y"]
        results.append(torch.autograd.grad(y.cos().sum(), leaves))
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, **TOLERANCES)


@pytest.mark.parametrize("options", [{}, {"recurrent_backend": "pad"}])
def test_all_states_where_trajectories_do_not_start_from_zero(kind, options):
    theirs, ours = pair(kind, **options)
    data = batch(kind, 3, 11, start_states="random")
    with set_recurrent_mode(True):
        expected, found = theirs(data.clone()), ours(data.clone())
    for key in ours.out_keys:
        torch.testing.assert_close(found[key], expected[key], **TOLERANCES)


def test_steps(kind):
    theirs, ours = pair(kind)
    data = batch(kind, 4, starts=0.5, start_states="random")
    expected, found = theirs(data.clone()), ours(data.clone())
    for key in ours.out_keys:
        torch.testing.assert_close(found[key], expected[key], **TOLERANCES)


def test_states_can_be_left_out(kind):
    theirs, ours = pair(kind)
    data = batch(kind, 3, 5).select("x", "is_init")
    with set_recurrent_mode(True):
        torch.testing.assert_close(ours(data.clone())["y"], theirs(data.clone())["y"], **TOLERANCES)


def test_bidirectional_layers(kind):
    theirs, ours, keys = KINDS[kind]
    names = {"in_key": "x", "out_key": "y"}
    theirs = theirs(INPUTS, HIDDEN, bidirectional=True, **names)
    ours = ours(INPUTS, HIDDEN, bidirectional=True, variant="plain", **names)
    ours.load_state_dict(theirs.state_dict())
    data = batch(kind, 3, 9).select("x", "is_init")
    with set_recurrent_mode(True):
        torch.testing.assert_close(ours(data.clone())["y"], theirs(data.clone())["y"], **TOLERANCES)


def test_lazy_stacks_and_flags_without_a_last_dimension(kind):
    theirs, ours = pair(kind)
    rows = [batch(kind, 6) for _ in range(3)]
    steps = batch(kind, 4, 1)
    without = steps.clone()
    without["is_init"] = steps["is_init"].squeeze(-1)
    with set_recurrent_mode(True):
        found = ours(LazyStackedTensorDict.lazy_stack(rows))["y"]
        torch.testing.assert_close(found, theirs(torch.stack(rows).clone())["y"], **TOLERANCES)
        torch.testing.assert_close(ours(without)["y"], theirs(steps)["y"], **TOLERANCES)


@pytest.mark.parametrize("missing", ["x", "is_init"])
def test_a_missing_input_is_named(kind, missing):
    _, ours = pair(kind)
    with set_recurrent_mode(True), pytest.raises(KeyError, match=missing):
        ours(batch(kind, 2, 3).exclude(missing))


@pytest.mark.parametrize("variant", ["paper", "haste"])
def test_a_collector_and_an_update(kind, variant):
    _, ours, keys = KINDS[kind]
    env = TransformedEnv(GymEnv("CartPole-v1"), InitTracker())
    module = ours(4, 8, variant=variant, in_key="observation", out_key="features")
    env.append_transform(module.make_tensordict_primer())
    head = TensorDictModule(nn.Linear(8, 2), in_keys=["features"], out_keys=["logits"])
    # Pushes to one side, so that episodes end within about ten steps.
    choose = TensorDictModule(lambda x: nn.functional.one_hot((x * 0).argmax(-1), 2), ["logits"], ["action"])
    policy = TensorDictSequential(module, head, choose)
    collector = Collector(env, policy, frames_per_batch=60, total_frames=60)
    (data,) = collector
    collector.shutdown()
    assert data["is_init"][1:].any()
    stepwise = data["features"]
    with set_recurrent_mode(True):
        found = module(data.select("observation", "is_init", *keys))["features"]
    torch.testing.assert_close(found, stepwise, **TOLERANCES)
    found.square().mean().backward()
    assert all(p.grad is not None for p in module.parameters())


@pytest.mark.parametrize(
    "options, message",
    [
        ({"variant": "lasagne"}, "variant must be one of paper, haste"),
        ({"recurrent_backend": "scan"}, "recurrent_backend must be resets or pad, got scan"),
        ({"input_size": None}, "input_size and hidden_size must be given"),
        ({"proj_size": 2}, "there is no option proj_size"),
        ({"batch_first": False}, "there is no option batch_first"),
        ({"checkpoint": "yes"}, "checkpoint must be True or False"),
    ],
)
def test_wrong_options(kind, options, message):
    arguments = {"input_size": 3, "hidden_size": 4, "in_key": "x", "out_key": "y"}
    with pytest.raises(ValueError, match=message):
        KINDS[kind][1](**arguments | options)


def test_a_given_layer():
    keys = {"in_key": "x", "out_key": "y"}
    lstm = planish.nn.LayerNormLSTM(3, 4, batch_first=True)
    assert LSTMModule(lstm=lstm, **keys).lstm is lstm
    for wrong, message in [
        ({"lstm": nn.LSTM(3, 4, batch_first=True)}, "must be a planish.nn.LayerNormLSTM, got LSTM"),
        ({"lstm": lstm, "variant": "haste"}, "without options of a layer"),
        ({"lstm": planish.nn.LayerNormLSTM(3, 4)}, "must have batch_first=True"),
    ]:
        with pytest.raises(ValueError, match=message):
            LSTMModule(**wrong, **keys)
