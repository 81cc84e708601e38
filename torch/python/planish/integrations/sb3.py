"""RecurrentPPO of sb3-contrib on Planish's LSTM.

An update of sb3-contrib cuts rollouts where episodes start, pads the parts to the longest, and
calls the LSTM once for each time step. Here rollouts stay whole, and one call with ``resets`` runs
all time steps. Outputs, losses and gradients are the same up to rounding.

    model = RecurrentPPO("MlpLstmPolicy", env, policy_kwargs={"lstm_kwargs": {"variant": "haste"}})
"""

from typing import Any, ClassVar

import numpy as np
import sb3_contrib
from sb3_contrib.common.recurrent.buffers import RecurrentDictRolloutBuffer, RecurrentRolloutBuffer
from sb3_contrib.common.recurrent.policies import (
    RecurrentActorCriticCnnPolicy,
    RecurrentActorCriticPolicy,
    RecurrentMultiInputActorCriticPolicy,
)
from torch import Tensor

from planish._convert import convert
from planish.nn import LayerNormLSTM

__all__ = ["CnnLstmPolicy", "MlpLstmPolicy", "MultiInputLstmPolicy", "RecurrentPPO"]

_TORCH_OPTIONS = {"bias", "dropout"}
_OPTIONS = _TORCH_OPTIONS | {"checkpoint", "eps", "variant"}


class MlpLstmPolicy(RecurrentActorCriticPolicy):  # type: ignore[misc]
    """``MlpLstmPolicy`` of sb3-contrib with ``planish.nn.LayerNormLSTM``.

    Args:
        lstm_kwargs: Options of ``LayerNormLSTM``: ``variant``, ``eps``, ``bias``, ``dropout`` and
            ``checkpoint``. Layer normalization is that of the paper by default.
            ``{"variant": "plain"}`` is the LSTM of ``torch.nn``.

    The other arguments are those of the base class. The policy draws the same random numbers and
    has the same initial weights as sb3-contrib's. Raises ``ValueError`` for unknown and wrong
    options.
    """

    def __init__(
        self,
        observation_space: Any,
        action_space: Any,
        lr_schedule: Any,
        *args: Any,
        lstm_kwargs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        options = {} if lstm_kwargs is None else lstm_kwargs
        unknown = sorted(set(options) - _OPTIONS)
        if unknown:
            raise ValueError(
                f"[{type(self).__name__}] lstm_kwargs can have {', '.join(sorted(_OPTIONS))}, got "
                f"{', '.join(unknown)}"
            )
        ours = {name: value for name, value in options.items() if name not in _TORCH_OPTIONS}
        example = LayerNormLSTM(1, 1, device="meta", **ours)  # checks the options
        theirs = {name: value for name, value in options.items() if name in _TORCH_OPTIONS}
        super().__init__(
            observation_space, action_space, lr_schedule, *args, lstm_kwargs=theirs, **kwargs
        )
        self.lstm_kwargs = options
        convert(
            self,
            "layer_norm_rnn",
            filter=lambda name, _: name in ("lstm_actor", "lstm_critic"),
            variant=example.variant,
            eps=example.eps,
        )
        for lstm in (self.lstm_actor, self.lstm_critic):
            if lstm is not None:
                lstm.checkpoint = example.checkpoint
        # The base class's optimizer lacks the parameters of the norms.
        self.optimizer = self.optimizer_class(
            self.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs
        )

    def _get_constructor_parameters(self) -> dict[str, Any]:
        """Returns the arguments that ``save`` stores; the base class lacks those of the LSTM."""
        parameters: dict[str, Any] = super()._get_constructor_parameters()
        return parameters | {
            "lstm_hidden_size": self.lstm_actor.hidden_size,
            "n_lstm_layers": self.lstm_actor.num_layers,
            "shared_lstm": self.shared_lstm,
            "enable_critic_lstm": self.enable_critic_lstm,
            "lstm_kwargs": self.lstm_kwargs,
        }

    @staticmethod
    def _process_sequence(
        features: Tensor,
        lstm_states: tuple[Tensor, Tensor],
        episode_starts: Tensor,
        lstm: LayerNormLSTM,
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Runs an LSTM on n sequences, which features and episode_starts concatenate.

        Shape: features [n * T, I], states [L, n, H], episode_starts [n * T], output [n * T, H].
        """
        sequences = lstm_states[0].shape[1]
        x = features.reshape(sequences, -1, lstm.input_size).transpose(0, 1)
        resets = episode_starts.reshape(sequences, -1).transpose(0, 1)
        y, states = lstm(x, lstm_states, resets=resets)
        return y.transpose(0, 1).flatten(0, 1), states


class CnnLstmPolicy(MlpLstmPolicy, RecurrentActorCriticCnnPolicy):  # type: ignore[misc]
    """``CnnLstmPolicy`` of sb3-contrib, for images; otherwise as ``MlpLstmPolicy``."""


class MultiInputLstmPolicy(
    MlpLstmPolicy,
    RecurrentMultiInputActorCriticPolicy,  # type: ignore[misc]
):
    """``MultiInputLstmPolicy`` of sb3-contrib, for dicts; otherwise as ``MlpLstmPolicy``."""


class _WholeRollouts:
    """Mixin of rollout buffers whose samples are not cut where episodes start."""

    episode_starts: Any
    pad_and_flatten: Any

    def _get_samples(self, batch_inds: Any, env_change: Any, env: Any = None) -> Any:
        starts = self.episode_starts
        self.episode_starts = np.zeros_like(starts)  # where the base class cuts
        try:
            samples = super()._get_samples(batch_inds, env_change, env)  # type: ignore[misc]
        finally:
            self.episode_starts = starts
        return samples._replace(episode_starts=self.pad_and_flatten(starts[batch_inds]))


class _RolloutBuffer(_WholeRollouts, RecurrentRolloutBuffer):  # type: ignore[misc]
    pass


class _DictRolloutBuffer(_WholeRollouts, RecurrentDictRolloutBuffer):  # type: ignore[misc]
    pass


class RecurrentPPO(sb3_contrib.RecurrentPPO):  # type: ignore[misc]
    """``RecurrentPPO`` of sb3-contrib with the policies of this module.

    The arguments are those of the base class. Minibatches have the same steps as there, but less
    padding: only the ends of minibatches cut a rollout.
    """

    policy_aliases: ClassVar[dict[str, type[RecurrentActorCriticPolicy]]] = {
        "MlpLstmPolicy": MlpLstmPolicy,
        "CnnLstmPolicy": CnnLstmPolicy,
        "MultiInputLstmPolicy": MultiInputLstmPolicy,
    }

    rollout_buffer: Any

    def _setup_model(self) -> None:
        super()._setup_model()
        buffer = self.rollout_buffer
        is_dict = isinstance(buffer, RecurrentDictRolloutBuffer)
        self.rollout_buffer = (_DictRolloutBuffer if is_dict else _RolloutBuffer)(
            self.n_steps,
            self.observation_space,
            self.action_space,
            buffer.hidden_state_shape,
            self.device,
            gamma=self.gamma,
            gae_lambda=self.gae_lambda,
            n_envs=self.n_envs,
        )
