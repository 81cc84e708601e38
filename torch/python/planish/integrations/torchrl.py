"""LSTMModule and GRUModule of TorchRL on Planish's recurrent layers.

In recurrent mode, a row of the batch can contain several trajectories; ``is_init`` is true where
one starts. TorchRL splits rows into trajectories and pads these to the longest. The modules here
run whole rows, with ``resets``.

    module = LSTMModule(4, 64, variant="haste", in_key="observation", out_key="features")
"""

from typing import Any, ClassVar

import torch
import torchrl.modules
from tensordict import TensorDictBase
from tensordict.nn import dispatch
from torch import Tensor

from planish import nn

__all__ = ["GRUModule", "LSTMModule"]

_LAYER_OPTIONS = {"bidirectional", "checkpoint", "device", "dtype", "eps", "variant"}
_MODULE_OPTIONS = {"default_recurrent_mode", "in_key", "in_keys", "out_key", "out_keys"}


class _Rows:
    """Constructor and forward pass of both modules. The other base is TorchRL's class."""

    _argument: ClassVar[str]  #: the layer's name, in the constructor and as an attribute
    _kind: ClassVar[type[nn.LayerNormLSTM] | type[nn.LayerNormGRU]]
    in_keys: list[Any]
    out_keys: list[Any]
    recurrent_mode: bool

    def __init__(
        self,
        input_size: int | None = None,
        hidden_size: int | None = None,
        num_layers: int = 1,
        bias: bool = True,
        dropout: float = 0.0,
        *,
        recurrent_backend: str = "resets",
        **keywords: Any,
    ) -> None:
        error = f"[{type(self).__name__}] "
        if recurrent_backend not in ("resets", "pad"):
            what = "recurrent_backend must be resets or pad"
            raise ValueError(f"{error}{what}, got {recurrent_backend}")
        sizes = (input_size, hidden_size, num_layers, bias, dropout)
        layer = keywords.pop(self._argument, None)
        options = {name: value for name, value in keywords.items() if name in _LAYER_OPTIONS}
        rest = {name: value for name, value in keywords.items() if name not in _LAYER_OPTIONS}
        unknown = sorted(set(rest) - _MODULE_OPTIONS)
        if unknown:
            raise ValueError(f"{error}there is no option {', '.join(unknown)}")
        if layer is None:
            if input_size is None or hidden_size is None:
                what = f"input_size and hidden_size must be given, or {self._argument}"
                raise ValueError(f"{error}{what}")
            layer = self._kind(
                input_size,
                hidden_size,
                num_layers,
                bias=bias,
                batch_first=True,
                dropout=dropout,
                **options,
            )
        elif options or sizes != (None, None, 1, True, 0.0):
            raise ValueError(f"{error}{self._argument} must be given without options of a layer")
        elif not isinstance(layer, self._kind):
            what = f"{self._argument} must be a planish.nn.{self._kind.__name__}"
            raise ValueError(f"{error}{what}, got {type(layer).__name__}")
        super().__init__(**{self._argument: layer}, **rest)
        self.recurrent_backend = recurrent_backend

    @dispatch  # type: ignore[untyped-decorator]
    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Runs one step, or in recurrent mode all time steps, and writes the results."""
        if self._run_rows(tensordict):
            return tensordict
        return super().forward(tensordict)  # type: ignore[misc]

    def _run_rows(self, tensordict: TensorDictBase) -> bool:
        """Runs all time steps of every row. Returns False if TorchRL's method must run."""
        layer = getattr(self, self._argument)
        if not self.recurrent_mode or self.recurrent_backend != "resets" or layer.bidirectional:
            return False
        x_key, *state_keys = (key for key in self.in_keys if key != "is_init")
        x, is_init, *states = (tensordict.get(k, None) for k in (x_key, "is_init", *state_keys))
        if tensordict.ndim == 0 or x is None or is_init is None:
            return False  # TorchRL raises the error
        shape = tensordict.shape
        rows, steps = shape[:-1].numel(), shape[-1]

        def as_rows(t: Tensor) -> Tensor:
            return t.reshape(rows, steps, *t.shape[len(shape) :])

        resets = is_init.reshape(rows, steps).clone()
        resets[:, :1] = False  # a row starts from the tensordict's states
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
            return False  # TorchRL raises the error
        y, last = layer(as_rows(x), hx, resets=resets)
        results = [y]
        for state in (last,) if isinstance(last, Tensor) else last:
            end = state.transpose(0, 1).unsqueeze(1)
            before = end.new_zeros(rows, steps - 1, *end.shape[2:])
            results.append(torch.cat([before, end], 1))
        for key, result in zip(self.out_keys, results, strict=True):
            tensordict.set(key, result.reshape(*shape, *result.shape[2:]))
        return True


class LSTMModule(_Rows, torchrl.modules.LSTMModule):  # type: ignore[misc]
    """``torchrl.modules.LSTMModule`` on ``planish.nn.LayerNormLSTM``.

    Args:
        input_size, hidden_size, num_layers, bias, dropout, bidirectional, device, dtype, variant,
            eps, checkpoint: As in ``LayerNormLSTM``, which is batch_first here. ``variant="plain"``
            is the LSTM of ``torch.nn``.
        lstm: A ``LayerNormLSTM`` with batch_first, in place of these.
        recurrent_backend: ``"resets"``, or ``"pad"`` for TorchRL's method.
        in_key, in_keys, out_key, out_keys, default_recurrent_mode: As in the base class.

    In recurrent mode, ``"resets"`` writes the states of the last time step only; ``"pad"`` writes
    those at the end of every trajectory. Outputs are the same up to rounding, except for the
    variant ``"batchnorm"``. ``"resets"`` uses TorchRL's method for bidirectional layers, and for
    batches with a trajectory that starts from states other than 0 or with gradients.

    Raises ``ValueError`` for unknown and wrong options.
    """

    _argument = "lstm"
    _kind = nn.LayerNormLSTM


class GRUModule(_Rows, torchrl.modules.GRUModule):  # type: ignore[misc]
    """``torchrl.modules.GRUModule`` on ``planish.nn.LayerNormGRU``.

    The arguments are those of ``LSTMModule``, with ``gru``, a ``LayerNormGRU``, in place of
    ``lstm``.
    """

    _argument = "gru"
    _kind = nn.LayerNormGRU
