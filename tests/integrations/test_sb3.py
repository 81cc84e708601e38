"""RecurrentPPO on Planish's LSTM, beside that of sb3-contrib."""

import copy

import gymnasium
import numpy as np
import pytest
import sb3_contrib
import torch
from stable_baselines3.common.envs import FakeImageEnv, SimpleMultiObsEnv
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import nn

import planish
from planish.integrations.sb3 import MlpLstmPolicy, RecurrentPPO

# Sums of float in other orders.
TOLERANCES = {"rtol": 1e-5, "atol": 1e-6}
LAYOUTS = {
    "two LSTMs": {},
    "shared": {"shared_lstm": True, "enable_critic_lstm": False},
    "actor only": {"enable_critic_lstm": False},
}


class Counter(gymnasium.Env):
    """Episodes of 3, 4, ... 12 steps with random observations."""

    observation_space = gymnasium.spaces.Box(-1, 1, (3,))
    action_space = gymnasium.spaces.Discrete(2)
    episode = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 3 + self.episode % 10
        self.episode += 1
        return self.observation(), {}

    def observation(self):
        return self.np_random.uniform(-1, 1, 3).astype(np.float32)

    def step(self, action):
        self.left -= 1
        return self.observation(), float(action), self.left == 0, False, {}


def ppo(kind=RecurrentPPO, policy="MlpLstmPolicy", env=Counter, **options):
    options = {"n_steps": 32, "batch_size": 24, "n_epochs": 2, "seed": 3, "device": "cpu"} | options
    torch.manual_seed(0)
    return kind(policy, env(), **options)


def pair(**policy_kwargs):
    """sb3-contrib's, then ours with the same equations."""
    theirs = ppo(sb3_contrib.RecurrentPPO, policy_kwargs=policy_kwargs)
    return theirs, ppo(policy_kwargs=policy_kwargs | {"lstm_kwargs": {"variant": "plain"}})


@pytest.fixture(params=LAYOUTS)
def layout(request):
    return {"lstm_hidden_size": 8, "n_lstm_layers": 2, **LAYOUTS[request.param]}


def loss_and_gradients(policy, batch):
    """Returns the mean of a loss over the steps of a minibatch, and the gradients."""
    policy.zero_grad()
    outputs = policy.evaluate_actions(
        batch.observations, batch.actions.long().flatten(), batch.lstm_states, batch.episode_starts
    )
    loss = sum(output.flatten()[batch.mask > 0].sin().mean() for output in outputs)
    loss.backward()
    return [loss, *(p.grad for p in policy.parameters() if p.grad is not None)]


def test_losses_and_gradients_of_an_update_are_those_of_sb3(layout):
    theirs, ours = pair(**layout)
    for a, b in zip(theirs.policy.parameters(), ours.policy.parameters(), strict=True):
        assert torch.equal(a, b)  # the same initial weights
    theirs.learn(64)
    ours.policy.load_state_dict(theirs.policy.state_dict())
    ours.rollout_buffer.__dict__.update(theirs.rollout_buffer.__dict__)
    rows = []
    for size in (24, None):
        batches = []
        for model in (theirs, ours):
            np.random.seed(5)  # where the buffer is cut
            batches.append(list(model.rollout_buffer.get(size)))
        for a, b in zip(*batches, strict=True):
            rows.append((len(a.mask), len(b.mask)))
            results = loss_and_gradients(theirs.policy, a), loss_and_gradients(ours.policy, b)
            for x, y in zip(*results, strict=True):
                torch.testing.assert_close(x, y, **TOLERANCES)
            # sb3-contrib's batches with this policy, and ours with that of sb3-contrib
            for result in (loss_and_gradients(ours.policy, a), loss_and_gradients(theirs.policy, b)):
                for x, y in zip(result, results[0], strict=True):
                    torch.testing.assert_close(x, y, **TOLERANCES)
    assert sum(b for _, b in rows) < sum(a for a, _ in rows)  # less padding


def test_a_run_learns_the_same(layout):
    # Both draw the same random numbers. Rounding changes none of the sampled actions here.
    theirs, ours = pair(**layout)
    for model in (theirs, ours):
        model.set_random_seed(3)
        model.learn(128)
    for a, b in zip(theirs.policy.parameters(), ours.policy.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)  # Adam divides by small gradients


def test_prediction_keeps_and_resets_the_states():
    models = pair()
    states = [None, None]
    generator = np.random.default_rng(0)
    for step in range(6):
        x = generator.uniform(-1, 1, (4, 3)).astype(np.float32)
        starts = np.array([step == 0, step == 2, False, step == 5])
        actions = []
        for i, model in enumerate(models):
            action, states[i] = model.predict(x, states[i], starts, deterministic=True)
            actions.append(action)
        assert np.array_equal(*actions)
        for a, b in zip(*states, strict=True):
            np.testing.assert_allclose(a, b, **TOLERANCES)


@pytest.mark.parametrize("variant", ["paper", "haste", "torchaudio"])
def test_layer_normalization_learns_and_is_saved(variant, tmp_path):
    model = ppo(policy_kwargs={"lstm_hidden_size": 8, "lstm_kwargs": {"variant": variant}})
    before = copy.deepcopy(model.policy.state_dict())
    model.learn(64)
    lstm = model.policy.lstm_actor
    assert (type(lstm), lstm.variant) == (planish.nn.LayerNormLSTM, variant)
    changed = {name for name, value in model.policy.state_dict().items() if not torch.equal(value, before[name])}
    assert {name for name in before if "lstm_actor" in name and "weight" in name} <= changed
    model.save(tmp_path / "model")
    loaded = RecurrentPPO.load(tmp_path / "model", device="cpu")
    x = np.ones((2, 3), np.float32)
    for a, b in zip(model.predict(x, deterministic=True)[1], loaded.predict(x, deterministic=True)[1], strict=True):
        assert np.array_equal(a, b)


def test_the_layer_is_layer_normalized_by_default():
    assert ppo().policy.lstm_critic.variant == "paper"


def test_images_and_dicts():
    options = {"n_steps": 8, "batch_size": 8, "n_epochs": 1}
    image = ppo(
        policy="CnnLstmPolicy",
        env=lambda: FakeImageEnv(screen_height=40, screen_width=40, n_channels=1),
        policy_kwargs={"features_extractor_kwargs": {"features_dim": 8}},
        **options,
    )
    several = ppo(policy="MultiInputLstmPolicy", env=lambda: SimpleMultiObsEnv(random_start=False), **options)
    for model in (image, several):
        model.learn(8)
        assert isinstance(model.policy.lstm_actor, planish.nn.LayerNormLSTM)


def test_other_recurrent_layers_stay():
    class Extractor(BaseFeaturesExtractor):
        def __init__(self, space):
            super().__init__(space, 3)
            self.rnn = nn.GRU(3, 3)

        def forward(self, x):
            return self.rnn(x)[0]

    model = ppo(policy_kwargs={"features_extractor_class": Extractor}).learn(32)
    assert isinstance(model.policy.features_extractor.rnn, nn.GRU)


@pytest.mark.parametrize("variant", ["plain", "tfa"])
def test_a_policy_is_saved(variant, tmp_path):
    options = {"variant": variant, "eps": 0.5}
    model = ppo(policy_kwargs={"lstm_hidden_size": 6, "n_lstm_layers": 2, "lstm_kwargs": options})
    model.policy.save(tmp_path / "policy")
    loaded = MlpLstmPolicy.load(tmp_path / "policy")
    assert loaded.lstm_actor.eps == 0.5
    x = np.ones((2, 3), np.float32)
    states = [policy.predict(x, deterministic=True)[1] for policy in (model.policy, loaded)]
    for a, b in zip(*states, strict=True):
        assert np.array_equal(a, b)


def test_eps_of_the_variant():
    model = ppo(policy_kwargs={"lstm_kwargs": {"variant": "tfa", "eps": None}})
    assert model.policy.lstm_actor.eps == 1e-3


@pytest.mark.parametrize(
    "options, message",
    [
        ({"proj_size": 3}, "lstm_kwargs can have bias, checkpoint, dropout, eps, variant, got proj_size"),
        ({"bidirectional": True}, "got bidirectional"),
        ({"variant": "lasagne"}, "variant must be one of paper, haste"),
        ({"variant": "dreamer"}, "variant must be one of paper, haste"),
        ({"checkpoint": "yes"}, "checkpoint must be True or False"),
        ({"eps": -1}, "eps must be finite and at least 0"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(ValueError, match=message):
        ppo(policy_kwargs={"lstm_kwargs": options})


def test_the_policy_works_with_the_algorithm_of_sb3():
    model = ppo(sb3_contrib.RecurrentPPO, MlpLstmPolicy).learn(64)
    assert isinstance(model.policy.lstm_actor, planish.nn.LayerNormLSTM)


def test_only_the_replaced_layers_are_trained():
    model = ppo()
    trained = {id(p) for group in model.policy.optimizer.param_groups for p in group["params"]}
    assert trained == {id(p) for p in model.policy.parameters()}
    assert not any(isinstance(module, nn.LSTM) for module in model.policy.modules())
