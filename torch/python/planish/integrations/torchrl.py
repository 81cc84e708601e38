"""LSTMModule and GRUModule of TorchRL on Planish's recurrent layers.

In recurrent mode, trajectories end inside the batch, where ``is_init`` is true. TorchRL cuts them
apart and pads all to the longest. These modules run each row of the batch whole, with ``resets``.

    module = LSTMModule(4, 64, variant="haste", in_key="observation", out_key="features")
"""

from typing import Any

import torch
import torchrl.modules
from tensordict import TensorDictBase
from tensordict.nn import dispatch
from torch import Tensor

from planish import nn

__all__ = ["GRUModule", "LSTMModule"]

_LAYER_OPTIONS = {"bidirectional", "checkpoint", "device", "dtype", "eps", "variant"}
_MODULE_OPTIONS = {"default_recurrent_mode", "in_key", "in_keys", "out_key", "out_keys"}


class LSTMModule(torchrl.modules.LSTMModule):  # type: ignore[misc]
    """``torchrl.modules.LSTMModule`` on ``planish.nn.LayerNormLSTM``.

    Args:
        input_size, hidden_size, num_layers, bias, dropout, bidirectional, device, dtype, variant,
            eps, checkpoint: As in ``LayerNormLSTM``, which is batch_first here. ``variant="plain"``
            is the LSTM of ``torch.nn``.
        lstm: A ``LayerNormLSTM`` with batch_first, in place of these.
        recurrent_backend: ``"resets"``, or ``"pad"`` for TorchRL's method.
        keywords: in_key or in_keys, out_key or out_keys, default_recurrent_mode: as in the base
            class.

    With ``"resets"``, recurrent mode writes the states of the last time step only. ``"pad"`` also
    writes those at the end of every trajectory. Outputs are the same, up to rounding, but for the
    variant ``"batchnorm"``. Batches run with ``"pad"`` if a trajectory starts in them from states
    other than 0 or with gradients, and if the layer is bidirectional.

    Raises ``ValueError`` for options that it does not have, and wrong ones.
    """

    def __init__(
        self,
        input_size: int | None = None,
        hidden_size: int | None = None,
        num_layers: int = 1,
        bias: bool = True,
        dropout: float = 0.0,
        *,
        lstm: nn.LayerNormLSTM | None = None,
        recurrent_backend: str = "resets",
        **keywords: Any,
    ) -> None:
        sizes = (input_size, hidden_size, num_layers, bias, dropout)
        rnn, keywords = _layer(self, nn.LayerNormLSTM, lstm, sizes, keywords)
        super().__init__(lstm=rnn, **keywords)
        self.recurrent_backend = _checked(self, recurrent_backend)

    @dispatch  # type: ignore[untyped-decorator]
    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Runs a step, or in recurrent mode all time steps, and writes the results."""
        if _run_rows(self, self.lstm, tensordict):
            return tensordict
        return super().forward(tensordict)


class GRUModule(torchrl.modules.GRUModule):  # type: ignore[misc]
    """``torchrl.modules.GRUModule`` on ``planish.nn.LayerNormGRU``.

    Arguments are those of ``LSTMModule``, but for ``gru``, a ``LayerNormGRU`` with batch_first.
    """

    def __init__(
        self,
        input_size: int | None = None,
        hidden_size: int | None = None,
        num_layers: int = 1,
        bias: bool = True,
        dropout: float = 0.0,
        *,
        gru: nn.LayerNormGRU | None = None,
        recurrent_backend: str = "resets",
        **keywords: Any,
    ) -> None:
        sizes = (input_size, hidden_size, num_layers, bias, dropout)
        rnn, keywords = _layer(self, nn.LayerNormGRU, gru, sizes, keywords)
        super().__init__(gru=rnn, **keywords)
        self.recurrent_backend = _checked(self, recurrent_backend)

    @dispatch  # type: ignore[untyped-decorator]
    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Runs a step, or in recurrent mode all time steps, and writes the results."""
        if _run_rows(self, self.gru, tensordict):
            return tensordict
        return super().forward(tensordict)


def _checked(module: Any, recurrent_backend: str) -> str:
    if recurrent_backend not in ("resets", "pad"):
        raise ValueError(
            f"[{type(module).__name__}] recurrent_backend must be resets or pad, got "
            f"{recurrent_backend}"
        )
    return recurrent_backend


def _layer(
    module: Any, kind: Any, given: Any, sizes: tuple[Any, ...], keywords: dict[str, Any]
) -> tuple[Any, dict[str, Any]]:
    """Returns `given` or a new layer, and the keywords that remain for the base class."""
    options = {name: value for name, value in keywords.items() if name in _LAYER_OPTIONS}
    rest = {name: value for name, value in keywords.items() if name not in _LAYER_OPTIONS}
    error = f"[{type(module).__name__}] "
    unknown = sorted(set(rest) - _MODULE_OPTIONS)
    if unknown:
        raise ValueError(f"{error}there is no option {', '.join(unknown)}")
    inputs, hidden, layers, bias, dropout = sizes
    if given is None:
        if inputs is None or hidden is None:
            raise ValueError(error + "input_size and hidden_size must be given, or a layer")
        return kind(
            inputs, hidden, layers, bias=bias, batch_first=True, dropout=dropout, **options
        ), rest
    if options or sizes != (None, None, 1, True, 0.0):
        raise ValueError(error + "a layer must be given without options of a layer")
    if not isinstance(given, kind):
        raise ValueError(
            f"{error}the layer must be a planish.nn.{kind.__name__}, got {type(given).__name__}"
        )
    return given, rest


def _run_rows(module: Any, rnn: Any, tensordict: TensorDictBase) -> bool:
    """Runs all time steps of every row. Returns False if the base class must do it."""
    if not module.recurrent_mode or module.recurrent_backend != "resets" or rnn.bidirectional:
        return False
    x_key, *state_keys = (key for key in module.in_keys if key != "is_init")
    x, is_init, *states = (tensordict.get(k, None) for k in (x_key, "is_init", *state_keys))
    if tensordict.ndim == 0 or x is None or is_init is None:
        return False  # an error
    shape = tensordict.shape
    rows, steps = shape[:-1].numel(), shape[-1]

    def as_rows(t: Tensor) -> Tensor:
        return t.reshape(rows, steps, *t.shape[len(shape) :])

    resets = is_init.reshape(rows, steps).clone()
    resets[:, :1] = False  # the first states are those of the tensordict
    hx: Any = None
    if all(state is not None for state in states):
        states = [as_rows(state) for state in states]
        if bool(resets.any()) and any(
            state.requires_grad or bool(state[resets].any()) for state in states
        ):
            return False
        first = [state[:, 0].transpose(0, 1).contiguous() for state in states]
        hx = first[0] if len(first) == 1 else tuple(first)
    elif any(state is not None for state in states):
        return False  # an error
    y, last = rnn(as_rows(x), hx, resets=resets)
    results = [y]
    for state in (last,) if isinstance(last, Tensor) else last:
        end = state.transpose(0, 1).unsqueeze(1)
        before = end.new_zeros(rows, steps - 1, *end.shape[2:])
        results.append(torch.cat([before, end], 1))
    for key, result in zip(module.out_keys, results, strict=True):
        tensordict.set(key, result.reshape(*shape, *result.shape[2:]))
    return True
