"""Recurrent layers with layer normalization, with the interfaces of ``torch.nn``.

Shapes: T time steps, B sequences, I inputs, H hidden units, O elements of a hidden state (H, or
``proj_size`` in an LSTM with a projection), N heads, G gates times H (4H in an LSTM, in PyTorch's
order i, f, g, o; 3H in a GRU, r, z, n; H in an RNN), D directions, L layers times directions. LN is
layer normalization, ``(z - mean) / sqrt(var + eps)`` times a gain plus a bias; ``s`` is the
logistic function.
"""

import contextlib
import copy
import dataclasses
import math
import numbers
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar, overload

import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from planish._checks import check_eps
from planish.nn._sequences import mask_lengths, reset_flags
from planish.nn._tracing import leaf

__all__ = [
    "LayerNormGRU",
    "LayerNormGRUCell",
    "LayerNormLSTM",
    "LayerNormLSTMCell",
    "LayerNormRNN",
    "LayerNormRNNCell",
]

#: Values of ``variant`` and ``nonlinearity``.
LSTMCellVariant: TypeAlias = Literal[
    "paper",
    "haste",
    "fastrnns",
    "nemo",
    "tfa",
    "contrib",
    "torchaudio",
    "tflite",
    "draw",
    "slstm",
    "plain",
]
LSTMVariant: TypeAlias = LSTMCellVariant | Literal["batchnorm"]
GRUCellVariant: TypeAlias = Literal["paper", "haste", "dreamer", "plain"]
GRUVariant: TypeAlias = GRUCellVariant | Literal["batchnorm"]
RNNCellVariant: TypeAlias = Literal["paper", "plain"]
RNNVariant: TypeAlias = RNNCellVariant | Literal["batchnorm"]
Nonlinearity: TypeAlias = Literal["tanh", "relu"]

#: The type of a recurrent module.
_Module = TypeVar("_Module", bound="_Recurrent")

#: Integers of any type, as a tensor, a sequence or a NumPy array.
Lengths: TypeAlias = Tensor | Sequence[int] | NDArray[Any]
#: Values 0 or 1 of any real type.
Resets: TypeAlias = Tensor | NDArray[Any]


# Looked up once: attribute access of an operator is slow compared with parsing an argument.
_rnn_forward = torch.ops.planish.rnn_forward.default
_rnn_step = torch.ops.planish.rnn_step.default
_rnn_fold_biases = torch.ops.planish.rnn_fold_biases.default


@dataclasses.dataclass(frozen=True)
class _Variant:
    """A cell of the operators."""

    cell: str
    eps: float = 1e-5  #: used for eps=None


# src/rnn/cell.h explains how the cells differ.
_LSTMS = {
    "paper": _Variant("ln_lstm"),
    "haste": _Variant("ln_lstm_haste"),
    "fastrnns": _Variant("ln_lstm_fastrnns"),
    "nemo": _Variant("ln_lstm_fastrnns"),
    "tfa": _Variant("ln_lstm_tfa", eps=1e-3),
    "contrib": _Variant("ln_lstm_contrib", eps=1e-12),
    "torchaudio": _Variant("ln_lstm_torchaudio"),
    "tflite": _Variant("ln_lstm_tflite", eps=1e-8),
    "draw": _Variant("draw_lstm"),
    "slstm": _Variant("slstm"),
    "plain": _Variant("lstm"),
    "batchnorm": _Variant("bn_lstm"),
}
_GRUS = {
    "paper": _Variant("ln_gru"),
    "haste": _Variant("ln_gru_haste"),
    "dreamer": _Variant("ln_gru_dreamer", eps=1e-3),
    "plain": _Variant("gru"),
    "batchnorm": _Variant("bn_gru"),
}
_RNNS = {
    "tanh": {
        "paper": _Variant("ln_rnn"),
        "plain": _Variant("rnn"),
        "batchnorm": _Variant("bn_rnn"),
    },
    "relu": {
        "paper": _Variant("ln_rnn_relu"),
        "plain": _Variant("rnn_relu"),
    },
}

#: Inputs of a layer besides the parameters, as the operators name them.
_INPUTS = ("x", "h0", "c0", "h_reset", "c_reset", "lengths", "resets")
_RECURRENT_WEIGHTS = ("weight_hh", "weight_hr")
_PARAMETER_TYPES = {Tensor, nn.Parameter}
_INPUT_TYPES = {Tensor, nn.Parameter, type(None)}


def _impls(tensors: Iterable[Tensor | None]) -> list[int | None]:
    """Returns the addresses of the C++ tensors, which ``torch.utils.swap_tensors`` exchanges."""
    return [None if tensor is None else tensor._cdata for tensor in tensors]


def _are_recorded(parameters: Sequence[Tensor], inputs: Sequence[Tensor | None]) -> bool:
    """Returns whether a call must be one of operators.

    Compilers, tracers and ``__torch_function__`` of subclasses see no calls of an ``RnnLayer``.
    """
    return (
        torch.compiler.is_compiling()
        or torch._C._is_tracing()
        or not {*map(type, parameters)} <= _PARAMETER_TYPES
        or not {*map(type, inputs)} <= _INPUT_TYPES
    )


class _Recurrent(nn.Module):
    """Base of layers and cells: holds the parameters, and the ``RnnLayer`` objects that run them."""

    _states: ClassVar[tuple[str, ...]] = ("h",)
    #: The size of the projection of an LSTM's h; 0 without one.
    proj_size: int = 0
    #: The number of blocks of weight_hh.
    num_heads: int = 1
    _recurrent_sizes: ClassVar[Mapping[str, tuple[int, ...]]] = {}
    _undrawn = False  # set if parameters were on the meta device when they were to be drawn

    def __init__(
        self,
        variants: Mapping[str, _Variant],
        variant: str,
        input_size: int,
        hidden_size: int,
        bias: bool,
        eps: float | None,
        proj_size: int = 0,
        num_heads: int = 1,
    ) -> None:
        super().__init__()
        self._check_at_least_one("input_size", input_size)
        self._check_at_least_one("hidden_size", hidden_size)
        self._check_integer("proj_size", proj_size)
        if proj_size < 0:
            raise self._error("proj_size must be at least 0", proj_size)
        if proj_size >= hidden_size:
            raise self._error(f"proj_size must be less than hidden_size, {hidden_size}", proj_size)
        self._check_at_least_one("num_heads", num_heads)
        if hidden_size % num_heads != 0:
            raise self._error(f"num_heads must divide hidden_size, {hidden_size}", num_heads)
        if proj_size > 0 and num_heads > 1:
            raise self._error("num_heads must be 1 with proj_size", num_heads)
        self._check_bool("bias", bias)
        if variant not in variants:
            raise self._error(f"variant must be one of {', '.join(variants)}", variant)
        # As int: arithmetic of NumPy's small integers overflows.
        self.input_size = int(input_size)
        self.hidden_size = int(hidden_size)
        self.proj_size = int(proj_size)
        self.num_heads = int(num_heads)
        self.bias = bias
        self.variant = variant
        self.eps = check_eps(self._name(), variants[variant].eps if eps is None else eps)
        self._cell = variants[variant].cell
        #: The operators' RnnLayer of each layer and direction, by the suffix of its parameters.
        self._layers: dict[str, Any] = {}
        #: The names of the parameters of each layer and direction.
        self._layer_names: dict[str, tuple[str, ...]] = {}

    def _name(self) -> str:
        return type(self).__name__

    def _error(self, what: str, value: object) -> ValueError:
        return ValueError(f"[{self._name()}] {what}, got {value}")

    def _check_integer(self, name: str, size: int) -> None:
        if isinstance(size, bool) or not isinstance(size, int | numbers.Integral):
            raise self._error(f"{name} must be an integer", repr(size))

    def _check_at_least_one(self, name: str, size: int) -> None:
        self._check_integer(name, size)
        if size < 1:
            raise self._error(f"{name} must be at least 1", size)

    def _check_bool(self, name: str, value: bool) -> None:
        if not isinstance(value, bool):
            raise self._error(f"{name} must be True or False", repr(value))

    def _check_size(self, name: str, tensor: Tensor | None, size: tuple[int, ...]) -> None:
        if tensor is not None and tensor.shape != size:
            raise self._error(f"{name} must have {list(size)}", list(tensor.shape))

    def _check_left_out(self, name: str, value: Any, what: str) -> None:
        if value is not None:
            shape = list(torch.as_tensor(value).shape)
            raise self._error(f"{name} must be left out for {what}", shape)

    def _check_inputs(self, x: Tensor) -> None:
        if x.shape[-1] != self.input_size:
            what = f"x must have input_size, {self.input_size}, as its last dimension"
            raise self._error(what, list(x.shape))

    def _width(self, state: str) -> int:
        """Returns the elements of a state, "h" or "c"."""
        if state == "h":
            return self.proj_size or self.hidden_size
        return self.hidden_size * (2 if self._cell == "slstm" else 1)

    def _add_layer(self, suffix: str, inputs: int, device: Any, dtype: Any) -> None:
        layer = torch.classes.planish.RnnLayer(self._cell, self.bias, suffix, type(self).__name__)
        sizes = layer.sizes(inputs, self.hidden_size, self.proj_size, self.num_heads)
        for name, size in sizes.items():
            data = torch.empty(size, device=device, dtype=dtype)
            self.register_parameter(name + suffix, nn.Parameter(data))
        self._names = tuple(sizes)
        #: The sizes that decide between a dense matrix, heads and a projection.
        self._recurrent_sizes = {  # type: ignore[misc]
            name: tuple(size) for name, size in sizes.items() if name in _RECURRENT_WEIGHTS
        }
        self._layers[suffix] = layer
        self._layer_names[suffix] = tuple(name + suffix for name in sizes)

    def reset_parameters(self) -> None:
        """Initializes the parameters.

        Draws weights and biases from the uniform distribution on [-1/sqrt(H), 1/sqrt(H)], in the
        order of PyTorch's modules. Sets the gains of norms to 1 and their biases to 0, that of z in
        DreamerV3's GRU to 1.
        """
        self._draw(dict(self.named_parameters(recurse=False)))

    def _draw(self, parameters: Mapping[str, Tensor]) -> None:
        # Uses nn.init because transformers replaces its functions while it loads a model.
        bound = 1 / math.sqrt(self.hidden_size)
        for name, parameter in parameters.items():
            if name.startswith("ln_"):
                self._set_norm(name, parameter)
            else:
                nn.init.uniform_(parameter, -bound, bound)
        self._undrawn = any(parameter.is_meta for parameter in parameters.values())

    def _set_norm(self, name: str, parameter: Tensor) -> None:
        """Sets a parameter of a norm to its initial value."""
        if "_weight" in name:
            nn.init.ones_(parameter)
            return
        nn.init.zeros_(parameter)
        if self._cell == "ln_gru_dreamer":
            nn.init.ones_(parameter[self.hidden_size : 2 * self.hidden_size])

    @property
    def _is_hf_initialized(self) -> bool:
        """Tells transformers not to initialize this module, which it does by class names.

        ``from_pretrained`` creates a model on the meta device and marks the parameters that it
        loads. The others are drawn here.
        """
        if self._undrawn:
            parameters = self.named_parameters(recurse=False)
            loaded = "_is_hf_initialized"
            self._draw({name: p for name, p in parameters if not getattr(p, loaded, False)})
        return True

    @_is_hf_initialized.setter
    def _is_hf_initialized(self, value: bool) -> None:
        if value:
            self._undrawn = False

    def _parameters_of(self, suffix: str) -> tuple[list[Any], bool]:
        """Returns a layer's parameters, and whether some are computed.

        ``torch.nn.utils.parametrize`` computes them, and data-parallel replicas do.
        """
        names = self._layer_names[suffix]
        computed = False
        if torch.compiler.is_compiling():
            found = [getattr(self, name) for name in names]
        else:
            parameters = self._parameters
            try:  # getattr of a module is slow
                found = [parameters[name] for name in names]
            except KeyError:
                found, computed = [getattr(self, name) for name in names], True
        # The operators would take a replaced weight for that of another kind of layer.
        for name, size in self._recurrent_sizes.items():
            weight = found[self._names.index(name)]
            if weight is None or weight.shape != size:
                got = None if weight is None else list(weight.shape)
                raise self._error(f"{name}{suffix} must have {list(size)}", got)
        return found, computed

    def _arguments(
        self, parameters: Sequence[Tensor | None], inputs: Sequence[Tensor | None]
    ) -> dict[str, Any]:
        """Returns a layer's parameters and inputs as arguments of the operators."""
        arguments: dict[str, Any] = dict(zip(self._names, parameters, strict=True))
        bias_ih, bias_hh = arguments.pop("bias_ih", None), arguments.pop("bias_hh", None)
        if bias_ih is not None and bias_hh is not None:
            biases = _rnn_fold_biases(self._cell, bias_ih, bias_hh)
            arguments.update(zip(("bias", "bias_hn"), biases, strict=False))
        elif bias_ih is not None:
            arguments["bias"] = bias_ih
        arguments.update(zip(_INPUTS, inputs, strict=False))
        return {name: tensor for name, tensor in arguments.items() if tensor is not None}

    def freeze(self) -> None:
        """Skips the comparison of the parameters with the packed weights in inference.

        In evaluation mode without gradients, a call compares the parameters' bytes with those that
        were packed, which can take as long as a step. A frozen module packs at the next such call
        and then skips the comparison. The ``steps()`` of a frozen cell skip it, too, even in
        training, until the cell is unfrozen.

        Until ``unfreeze()``, do not write to the parameters in a way that PyTorch does not count as
        a change. Fused optimizers, collectives, ``Tensor.data`` and other code with access to their
        memory do so. Results would be those of the old parameters. Counted changes in place, and
        replaced parameters, raise ``RuntimeError`` at the next call (``ValueError`` in
        ``steps()``).

        ``train()``, ``load_state_dict`` and conversions (``to()``, ``double()``) unfreeze. Copies
        and loaded modules are not frozen.
        """
        for layer in self._layers.values():
            layer.freeze()

    def unfreeze(self) -> None:
        """Resumes the comparison of the parameters with the packed weights."""
        for layer in self._layers.values():
            layer.unfreeze()

    def quantize_(self: _Module, weight_type: str) -> _Module:
        """Stores packed weights in a smaller type, and returns the module.

        In evaluation mode without gradients a layer reads packed weights. A step of few sequences
        takes the time of reading them, so that it gets faster with fewer bytes. The parameters stay
        as they are: training, gradients, compilers, exports and other devices use them.

        Args:
            weight_type: ``"bfloat16"`` rounds the weight matrices to bfloat16. ``"int8"`` rounds
                each to multiples in [-127, 127] of a scale of its output row, and inputs and hidden
                states, in blocks of 256 elements, to int16 with a scale each. ``"full"`` undoes
                both.

        All other parameters, norms, gates and states stay in float. Copies and pickled modules keep
        the type. Each call still compares the parameters with the packed ones, which takes longer
        than a step: call ``freeze()``, too.

        Raises:
            ValueError: if ``weight_type`` has no such name, or the parameters are double.

        >>> cell = LayerNormGRUCell(3, 4).eval().quantize_("int8")
        >>> with torch.no_grad(), cell.frozen():
        ...     h = cell(torch.randn(5, 3))
        """
        dtype = next(self.parameters(recurse=False)).dtype
        if weight_type != "full" and dtype == torch.float64:
            raise self._error("weight_type must be full for float64 parameters", weight_type)
        for layer in self._layers.values():
            layer.set_weight_type(weight_type)
        return self

    @property
    def weight_type(self) -> str:
        """The type of packed weights that ``quantize_`` has set."""
        return str(next(iter(self._layers.values())).weight_type())

    def _copied_layers(self) -> dict[str, Any]:
        """Returns copies of the layers, without packed weights and not frozen."""
        copies = copy.deepcopy(self._layers)
        for name, layer in copies.items():
            layer.set_weight_type(self._layers[name].weight_type())
        return copies

    def _drop_packed(self) -> None:
        for layer in self._layers.values():
            layer.drop()

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Freezes the module in a ``with`` block.

        >>> cell = LayerNormGRUCell(3, 4).eval()
        >>> with torch.no_grad(), cell.frozen():
        ...     h = cell(torch.randn(5, 3))
        """
        before = all(layer.is_frozen() for layer in self._layers.values())
        self.freeze()
        try:
            yield
        finally:
            if not before:
                self.unfreeze()

    def train(self, mode: bool = True) -> "_Recurrent":
        """Frees packed weights, unfreezes if ``mode`` is True, and calls ``nn.Module.train``."""
        if mode:
            self.unfreeze()
        self._drop_packed()
        super().train(mode)
        return self

    def _apply(self, *arguments: Any, **options: Any) -> "_Recurrent":
        self.unfreeze()
        self._drop_packed()
        super()._apply(*arguments, **options)  # type: ignore[no-untyped-call]
        return self

    def _replicate_for_data_parallel(self) -> "_Recurrent":
        replica: _Recurrent = super()._replicate_for_data_parallel()  # type: ignore[no-untyped-call]
        replica._layers = self._copied_layers()
        return replica

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_layers": self._copied_layers(), "_weight_type": self.weight_type}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # A pickled RnnLayer has no type of weights. Modules pickled by old versions have none, too.
        weight_type = state.pop("_weight_type", "full")
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        for layer in self._layers.values():
            layer.set_weight_type(weight_type)

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *arguments: Any
    ) -> None:
        """Adds the two biases of a state dict from ``torch.nn`` if this variant has only one."""
        self.unfreeze()
        self._drop_packed()  # torch.utils.swap_tensors refuses tensors with other references
        if "bias_ih" in self._names and "bias_hh" not in self._names:
            for key in [key for key in state_dict if key.startswith(prefix + "bias_hh")]:
                to = prefix + "bias_ih" + key[len(prefix + "bias_hh") :]
                if to in state_dict and state_dict[to].shape == state_dict[key].shape:
                    state_dict[to] = state_dict[to] + state_dict.pop(key)
        super()._load_from_state_dict(state_dict, prefix, *arguments)

    def _states_of(self, hx: Any) -> tuple[Tensor | None, ...]:
        """Returns hx as a tuple with one entry for each state."""
        if hx is None:
            return (None,) * len(self._states)
        if len(self._states) == 1:
            if not isinstance(hx, Tensor):
                raise self._error("hx must be a tensor", type(hx).__name__)
            return (hx,)
        if not isinstance(hx, (tuple, list)) or len(hx) != 2:
            raise self._error("hx must be a tuple of two tensors, h and c", type(hx).__name__)
        return tuple(hx)

    def _repr_of(self, options: Mapping[str, tuple[object, object]]) -> str:
        """Returns the sizes, and the options that differ from their defaults."""
        words = [str(self.input_size), str(self.hidden_size)]
        options = {**options, "weight_type": (self.weight_type, "full")}
        words += [f"{name}={value}" for name, (value, usual) in options.items() if value != usual]
        return ", ".join(words)


def _at(states: Sequence[Tensor | None], index: int) -> tuple[Tensor | None, Tensor | None]:
    """Returns a layer's part of h and, in an LSTM, c."""
    h, c = (*states, None)[:2]
    return None if h is None else h[index], None if c is None else c[index]


class _Layers(_Recurrent):
    """Base of LayerNormLSTM, LayerNormGRU and LayerNormRNN."""

    mode: str  #: "LSTM", "GRU", "RNN_TANH" or "RNN_RELU", like ``torch.nn.LSTM.mode``

    def __init__(
        self,
        variants: Mapping[str, _Variant],
        input_size: int,
        hidden_size: int,
        num_layers: int,
        bias: bool,
        batch_first: bool,
        dropout: float,
        bidirectional: bool,
        device: Any,
        dtype: Any,
        variant: str,
        eps: float | None,
        checkpoint: bool,
        num_heads: int,
        proj_size: int = 0,
    ) -> None:
        super().__init__(
            variants, variant, input_size, hidden_size, bias, eps, proj_size, num_heads
        )
        self._check_at_least_one("num_layers", num_layers)
        self._check_bool("batch_first", batch_first)
        self._check_bool("bidirectional", bidirectional)
        self._check_bool("checkpoint", checkpoint)
        if isinstance(dropout, bool) or not isinstance(dropout, int | float | numbers.Real):
            raise self._error("dropout must be a number", repr(dropout))
        if not 0 <= dropout <= 1:
            raise self._error("dropout must be from 0 to 1", f"{dropout:g}")
        if dropout > 0 and num_layers == 1:
            warnings.warn(
                f"[{type(self).__name__}] dropout={dropout:g} has no effect with num_layers=1: it "
                "is applied between layers",
                stacklevel=3,
            )
        self.num_layers = num_layers = int(num_layers)
        self.batch_first = batch_first
        self.dropout = dropout
        self.bidirectional = bidirectional
        self.checkpoint = checkpoint
        directions = ("", "_reverse") if bidirectional else ("",)
        self._suffixes = [f"_l{k}{second}" for k in range(num_layers) for second in directions]
        for index, suffix in enumerate(self._suffixes):
            first = index < len(directions)
            inputs = self.input_size if first else len(directions) * self._width("h")
            self._add_layer(suffix, inputs, device, dtype)
        self.reset_parameters()

    @property
    def all_weights(self) -> list[list[nn.Parameter]]:
        """The parameters of each layer and direction, like ``nn.LSTM.all_weights``."""
        return [[getattr(self, name + suffix) for name in self._names] for suffix in self._suffixes]

    def flatten_parameters(self) -> None:
        """Does nothing, because there is no flat copy of the parameters; for compatibility."""

    def extra_repr(self) -> str:
        return self._repr_of(
            {
                "num_layers": (self.num_layers, 1),
                "bias": (self.bias, True),
                "batch_first": (self.batch_first, False),
                "dropout": (self.dropout, 0),
                "bidirectional": (self.bidirectional, False),
                "proj_size": (self.proj_size, 0),
                "num_heads": (self.num_heads, 1),
                "variant": (self.variant, "paper"),
                "eps": (self.eps, 1e-5),
                "checkpoint": (self.checkpoint, False),
            }
        )

    def _run_layers(
        self,
        x: Tensor,
        states: Sequence[Tensor | None],
        resets_to: Sequence[Tensor | None],
        lengths: Tensor | None,
        resets: Tensor | None,
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Runs all layers. x and resets have time first, x has three dimensions, states L first."""
        directions = 2 if self.bidirectional else 1
        last: list[list[Tensor]] = [[] for _ in self._states]
        for layer in range(self.num_layers):
            if layer > 0:
                x = functional.dropout(x, self.dropout, self.training)
            outputs: list[Tensor] = []
            for direction in range(directions):
                index = layer * directions + direction
                inputs = (x, *_at(states, index), *_at(resets_to, index), lengths, resets)
                y, *next_states = self._run_layer(self._suffixes[index], inputs, direction == 1)
                outputs.append(y)
                for of_layers, state in zip(last, next_states, strict=False):
                    of_layers.append(state)
            x = outputs[0] if directions == 1 else torch.cat(outputs, -1)
        if len(self._suffixes) == 1:
            return x, tuple(of_layers[0].unsqueeze(0) for of_layers in last)
        return x, tuple(torch.stack(of_layers) for of_layers in last)

    def _run_layer(
        self, suffix: str, inputs: Sequence[Tensor | None], reverse: bool
    ) -> tuple[Tensor, ...]:
        """Runs one layer in one direction on the tensors of _INPUTS."""
        parameters, computed = self._parameters_of(suffix)
        outputs: tuple[Tensor, ...]
        if _are_recorded(parameters, inputs):
            outputs = _rnn_forward(
                self._cell,
                **self._arguments(parameters, inputs),
                reverse=reverse,
                eps=self.eps,
                checkpoint=self.checkpoint,
            )
        else:
            outputs = self._layers[suffix].forward(
                parameters, self.training, computed, *inputs, reverse, self.eps, self.checkpoint
            )
        return outputs

    def _check_states(self, states: Sequence[Tensor | None], *sizes: int) -> None:
        for name, state in zip(self._states, states, strict=True):
            self._check_size(name + "_0", state, (*sizes, self._width(name)))

    def _lengths_of(self, x: Tensor, lengths: Lengths | None, mask: Tensor | None) -> Tensor | None:
        """Returns lengths, or the lengths of mask, as int64 on x's device."""
        if mask is not None:
            if lengths is not None:
                raise self._error("mask must be left out with lengths", list(mask.shape))
            self._check_size("mask", mask, x.shape[:-1])
            if mask.dtype != torch.bool:
                raise self._error("mask must be bool", mask.dtype)
            of_mask: Tensor = mask_lengths(mask.mT if self.batch_first else mask, self._name())
            return of_mask
        if lengths is None:
            return None
        # torch.compile recompiles as_tensor for each new list.
        make = torch.tensor if isinstance(lengths, list | tuple) else torch.as_tensor
        tensor = make(lengths, device=x.device)
        self._check_size("lengths", tensor, (x.shape[0 if self.batch_first else 1],))
        if tensor.dtype == torch.bool or tensor.is_floating_point() or tensor.is_complex():
            raise self._error("lengths must be integers", tensor.dtype)
        return tensor.to(torch.int64)

    def _resets_of(self, x: Tensor, resets: Resets | None) -> Tensor | None:
        """Returns resets as bool."""
        if resets is None:
            return None
        tensor = resets if isinstance(resets, Tensor) else torch.as_tensor(resets, device=x.device)
        if tensor.dim() == x.dim() and tensor.shape[-1] == 1:
            tensor = tensor.squeeze(-1)
        self._check_size("resets", tensor, x.shape[:-1])
        if tensor.is_complex():
            raise self._error("resets must be bool, integers or floating point", tensor.dtype)
        if tensor.dtype == torch.bool:
            return tensor
        flags: Tensor = reset_flags(tensor.detach(), self._name())
        return flags

    def _run(
        self,
        x: Tensor,
        states: Sequence[Tensor | None],
        resets_to: Sequence[Tensor | None],
        lengths: Lengths | None,
        resets: Resets | None,
        mask: Tensor | None,
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Checks the arguments and runs all layers; tensors have the module's layout."""
        if x.dim() not in (2, 3):
            raise self._error("x must have 2 or 3 dimensions", list(x.shape))
        self._check_inputs(x)
        layers = len(self._suffixes)
        if x.dim() == 2:
            self._check_left_out("lengths", lengths, "x [T, I]")
            self._check_left_out("mask", mask, "x [T, I]")
            self._check_states(states, layers)
        else:
            batch = x.shape[0 if self.batch_first else 1]
            self._check_states(states, layers, batch)
        lengths, resets = self._lengths_of(x, lengths, mask), self._resets_of(x, resets)
        for name, reset_to in zip(self._states, resets_to, strict=True):
            self._check_size(name + "_reset", reset_to, (layers, self._width(name)))

        if x.dim() == 2:
            y, last = self._run_layers(
                x.unsqueeze(1),
                [None if state is None else state.unsqueeze(1) for state in states],
                resets_to,
                None,
                None if resets is None else resets.unsqueeze(1),
            )
            return y.squeeze(1), tuple(state.squeeze(1) for state in last)
        if self.batch_first:
            resets = None if resets is None else resets.transpose(0, 1)
            y, last = self._run_layers(x.transpose(0, 1), states, resets_to, lengths, resets)
            return y.transpose(0, 1), last
        return self._run_layers(x, states, resets_to, lengths, resets)

    def _run_packed(
        self,
        x: PackedSequence,
        states: Sequence[Tensor | None],
        others: Mapping[str, Any],
    ) -> tuple[PackedSequence, tuple[Tensor, ...]]:
        """Like _run, for a packed sequence. States have the order before sorting."""
        for name, tensor in others.items():
            self._check_left_out(name, tensor, "a PackedSequence")
        if x.data.dim() != 2:
            raise self._error("x.data must have 2 dimensions", list(x.data.shape))
        self._check_inputs(x.data)
        padded, lengths = pad_packed_sequence(PackedSequence(x.data, x.batch_sizes))
        self._check_states(states, len(self._suffixes), padded.shape[1])
        if x.sorted_indices is not None:
            states = [
                None if state is None else state.index_select(1, x.sorted_indices)
                for state in states
            ]
        none = [None] * len(states)
        y, last = self._run_layers(padded, states, none, lengths.to(padded.device), None)
        if x.unsorted_indices is not None:
            last = tuple(state.index_select(1, x.unsorted_indices) for state in last)
        data = pack_padded_sequence(y, lengths).data
        return PackedSequence(data, x.batch_sizes, x.sorted_indices, x.unsorted_indices), last


class LayerNormLSTM(_Layers):
    """An LSTM with layer normalization over whole sequences, used like ``torch.nn.LSTM``::

        a = LN(weight_ih x_t; ln_ih) + LN(weight_hh h_{t-1}; ln_hh) + bias_ih
        c_t = s(f) * c_{t-1} + s(i) * tanh(g),   h_t = s(o) * tanh(LN(c_t; ln_c))

    (Ba, Kiros & Hinton 2016, Eq. 20-22). Each LN of a matrix product is over all 4H sums.

    Args:
        input_size: I, at least 1.
        hidden_size: H, at least 1.
        num_layers: number of layers, at least 1; each takes the outputs of the one before.
        bias: False removes ``bias_ih`` and ``bias_hh``. The biases of the norms stay.
        batch_first: inputs, outputs and resets are [B, T, ...]. States are [L, B, ...] in any case.
        dropout: the probability of zeroing an output of a layer, except the last, in training.
        bidirectional: adds a layer that runs from the last step to the first beside each layer.
        device: the device of the parameters.
        dtype: the type of the parameters: ``torch.float32``, ``float64``, ``bfloat16`` or
            ``float16``. 16-bit types are computed in float32.
        proj_size: O, less than H, multiplies h_t by ``weight_hr`` [O, H] (Sak et al. 2014, Eq. 7-8),
            like ``torch.nn.LSTM``; 0: no projection, O = H.
        variant: the kind of LSTM:

            - ``"paper"``: the equations above.
            - ``"haste"``: as in the library haste, without ``ln_ih_bias`` and ``ln_hh_bias``.
            - ``"fastrnns"``: as in PyTorch's fastrnns benchmark, without ``bias_ih``; the next step
              gets LN(c_t) as its cell state.
            - ``"nemo"``: ``ln_lstm`` of NeMo, which is that of fastrnns.
            - ``"tfa"``: as in TensorFlow Addons: like fastrnns, with ``bias_ih``. Its eps is 1e-3.
            - ``"contrib"``: ``LayerNormBasicLSTMCell`` of TensorFlow 1: LN(weight_ih x_t +
              weight_hh h_{t-1}; ln) separately for each gate; the next step gets LN(c_t) as its
              cell state. Its eps is 1e-12; its forget bias of 1 is part of ``ln_bias``.
            - ``"torchaudio"``: the LSTM of torchaudio's RNN-T: LN(weight_ih x_t + weight_hh
              h_{t-1}; ln) over all 4H sums; the next step gets LN(c_t) as its cell state.
            - ``"tflite"``: as in TensorFlow Lite: contrib's norms without ``ln_bias`` and with
              ``bias_ih``; c_t is not normalized. Its eps is 1e-8.
            - ``"draw"``: plain sums with two biases, and LN(c_t) only in h_t (Eq. 29-31).
            - ``"slstm"``: the sLSTM of xLSTM (Beck et al. 2024, Eq. 8-17), with exponential input
              gate and normalizer n, without norms: n_t = s(f) * n_{t-1} + exp(i) and c_t = (s(f) *
              n_{t-1} * c_{t-1} + exp(i) * tanh(g)) / n_t, h_t = s(o) * c_t. A cell state has 2H
              elements, this c (the paper's divided by n) and then log(n). Without c_0 or c_reset
              n is 0.
            - ``"plain"``: ``torch.nn.LSTM``.
            - ``"batchnorm"``: statistics over the sequences of the batch instead of LN, separately
              for each step (Cooijmans et al. 2016, Eq. 6-8). There are no running estimates, so
              results depend on the other sequences of the batch, in evaluation, too.
        eps: added to variances, inside the root; finite and at least 0. None selects the default of
            the library that the variant comes from: 1e-3 for ``"tfa"``, 1e-12 for ``"contrib"``,
            1e-8 for ``"tflite"``, 1e-5 for the others.
        checkpoint: saves less for backward, which repeats the forward pass.
        num_heads: N divides H. ``weight_hh`` is block-diagonal, as in xLSTM and DreamerV3: the gates
            of a head's H / N units get only the head's part of h. Norms are over all units. Not
            with ``proj_size``.

    Parameters of layer k (those of the backward direction end in ``_reverse``):

    - ``weight_ih_l{k}`` [4H, I or D * O], ``weight_hh_l{k}`` [4H, O / N];
    - ``bias_ih_l{k}`` [4H], unless the variant has none; plain and draw also have ``bias_hh_l{k}``;
    - for each norm of the variant: ``ln_ih_weight_l{k}``, ``ln_ih_bias_l{k}``,
      ``ln_hh_weight_l{k}``, ``ln_hh_bias_l{k}``, ``ln_weight_l{k}``, ``ln_bias_l{k}`` [4H];
      ``ln_c_weight_l{k}``, ``ln_c_bias_l{k}`` [H];
    - with a projection, ``weight_hr_l{k}`` [O, H].

    A state dict of ``torch.nn.LSTM`` with the same ``proj_size`` can be loaded with
    ``strict=False``. If the variant has only one bias, it becomes the sum of both.

    In evaluation mode without gradients, the module keeps packed weights, and each call compares
    them with the parameters; ``freeze()`` skips this. Several threads can call a module at once.

    Raises:
        ValueError: an option is out of range, or a shape, type or value is invalid.

    >>> lstm = LayerNormLSTM(3, 4, num_layers=2, bidirectional=True)
    >>> lstm
    LayerNormLSTM(3, 4, num_layers=2, bidirectional=True)
    >>> y, (h_n, c_n) = lstm(torch.randn(7, 5, 3))
    >>> y.shape, h_n.shape, c_n.shape
    (torch.Size([7, 5, 8]), torch.Size([4, 5, 4]), torch.Size([4, 5, 4]))
    """

    _states = ("h", "c")
    mode = "LSTM"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        proj_size: int = 0,
        variant: LSTMVariant = "paper",
        eps: float | None = 1e-5,
        checkpoint: bool = False,
        num_heads: int = 1,
    ) -> None:
        super().__init__(
            _LSTMS, input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional,
            device, dtype, variant, eps, checkpoint, num_heads, proj_size,
        )  # fmt: skip

    @overload
    def forward(
        self,
        input: Tensor,
        hx: tuple[Tensor, Tensor] | None = None,
        *,
        lengths: Lengths | None = None,
        resets: Resets | None = None,
        mask: Tensor | None = None,
        h_reset: Tensor | None = None,
        c_reset: Tensor | None = None,
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]: ...

    @overload
    def forward(
        self, input: PackedSequence, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[PackedSequence, tuple[Tensor, Tensor]]: ...

    @leaf
    def forward(
        self,
        input: Tensor | PackedSequence,
        hx: tuple[Tensor, Tensor] | None = None,
        *,
        lengths: Lengths | None = None,
        resets: Resets | None = None,
        mask: Tensor | None = None,
        h_reset: Tensor | None = None,
        c_reset: Tensor | None = None,
    ) -> tuple[Tensor | PackedSequence, tuple[Tensor, Tensor]]:
        """Runs the layers over a sequence.

        Args:
            input: [T, B, I], [B, T, I] with ``batch_first``, [T, I] for one sequence, or a
                ``PackedSequence``.
            hx: (h_0, c_0), [L, B, O] and [L, B, H], without B for one sequence; zeros by default.
            lengths: [B] integers of any type, as a tensor, a sequence or a NumPy array, each from 1
                to T, in any order. An alternative to packing. Past its length, a sequence is not
                read, and its outputs are 0.
            resets: [T, B] or [T, B, 1] in the layout of the input, bool or 0 and 1 of any real
                type. Where it is True, the state becomes ``h_reset`` and ``c_reset`` before this
                step. In reinforcement learning, it is True where a new episode starts. Gradients
                pass a reset only to ``h_reset`` and ``c_reset``.
            mask: bool, [T, B] in the layout of the input, an alternative to ``lengths``: True
                before the end of each sequence, False after it.
            h_reset: [L, O] the hidden state after a reset; zeros by default.
            c_reset: [L, H] the cell state after a reset; zeros by default.

        Returns:
            y [T, B, D * O] in the layout of the input, and (h_n, c_n), with the shapes of hx. The
            latter is the state after the last step of each sequence.

        >>> lstm = LayerNormLSTM(2, 3)
        >>> starts = torch.tensor([[True], [False], [True]])  # two episodes, of 2 steps and of 1
        >>> x = torch.randn(3, 1, 2)
        >>> y, _ = lstm(x, resets=starts)
        >>> torch.equal(y[2], lstm(x[2:])[0][0])
        True
        """
        states = self._states_of(hx)
        if isinstance(input, PackedSequence):
            others = {"lengths": lengths, "resets": resets, "mask": mask}
            others |= {"h_reset": h_reset, "c_reset": c_reset}
            packed, (h_n, c_n) = self._run_packed(input, states, others)
            return packed, (h_n, c_n)
        y, (h_n, c_n) = self._run(input, states, (h_reset, c_reset), lengths, resets, mask)
        return y, (h_n, c_n)


class _HiddenStateLayers(_Layers):
    """Layers whose state is only h."""

    @overload
    def forward(
        self,
        input: Tensor,
        hx: Tensor | None = None,
        *,
        lengths: Lengths | None = None,
        resets: Resets | None = None,
        mask: Tensor | None = None,
        h_reset: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]: ...

    @overload
    def forward(
        self, input: PackedSequence, hx: Tensor | None = None
    ) -> tuple[PackedSequence, Tensor]: ...

    @leaf
    def forward(
        self,
        input: Tensor | PackedSequence,
        hx: Tensor | None = None,
        *,
        lengths: Lengths | None = None,
        resets: Resets | None = None,
        mask: Tensor | None = None,
        h_reset: Tensor | None = None,
    ) -> tuple[Tensor | PackedSequence, Tensor]:
        """Like ``LayerNormLSTM.forward``; the state, in hx and in the result, is only h."""
        states = self._states_of(hx)
        if isinstance(input, PackedSequence):
            others = {"lengths": lengths, "resets": resets, "mask": mask, "h_reset": h_reset}
            packed, (h_n,) = self._run_packed(input, states, others)
            return packed, h_n
        y, (h_n,) = self._run(input, states, (h_reset,), lengths, resets, mask)
        return y, h_n


class LayerNormGRU(_HiddenStateLayers):
    """A GRU with layer normalization over whole sequences, used like ``torch.nn.GRU``::

        ax = LN(weight_ih x_t; ln_ih),   ah = LN(weight_hh h_{t-1}; ln_hh)
        n = tanh(ax_n + s(ax_r + ah_r) * ah_n),   z = s(ax_z + ah_z)
        h_t = (1 - z) * n + z * h_{t-1}

    (Ba, Kiros & Hinton 2016, Eq. 26-28, with PyTorch's meaning of z and gates r, z, n). One LN is
    over the 2H sums of r and z together, another over the H sums of n. There is no bias except
    those of the norms.

    Arguments, parameters and errors are those of ``LayerNormLSTM``, with 3H instead of 4H and
    without ``ln_c``, ``proj_size`` and ``weight_hr``. ``variant`` is one of these:

    - ``"paper"``: the equations above.
    - ``"haste"``: as in the library haste: each LN is over all 3H sums and has no bias, and
      ``bias_ih`` and ``bias_hh`` are added after it.
    - ``"dreamer"``: the GRU of DreamerV3: a = LN(weight_ih x_t + weight_hh h_{t-1}; ln) over all 3H
      sums, n = tanh(s(a_r) * a_n), z = s(a_z). Its update gate is 1 - z. Its ``ln_bias`` of z
      starts at 1, so that the update gate starts at s(-1). Its eps is 1e-3.
    - ``"plain"``: ``torch.nn.GRU``.
    - ``"batchnorm"``: the paper's equations with statistics over the batch.

    >>> gru = LayerNormGRU(3, 4, batch_first=True)
    >>> y, h_n = gru(torch.randn(5, 7, 3))
    >>> y.shape, h_n.shape
    (torch.Size([5, 7, 4]), torch.Size([1, 5, 4]))
    """

    mode = "GRU"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        variant: GRUVariant = "paper",
        eps: float | None = 1e-5,
        checkpoint: bool = False,
        num_heads: int = 1,
    ) -> None:
        super().__init__(
            _GRUS, input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional,
            device, dtype, variant, eps, checkpoint, num_heads,
        )  # fmt: skip


class LayerNormRNN(_HiddenStateLayers):
    """Elman's RNN with layer normalization over whole sequences, used like ``torch.nn.RNN``::

        h_t = tanh(LN(weight_ih x_t + weight_hh h_{t-1}; ln))

    (Ba, Kiros & Hinton 2016, Eq. 4).

    Arguments, parameters and errors are those of ``LayerNormLSTM``, with H instead of 4H and without
    ``proj_size``; of the norms, only ``ln_weight_l{k}`` and ``ln_bias_l{k}`` exist. As in ``torch.nn.RNN``,
    ``nonlinearity``, ``"tanh"`` or ``"relu"``, comes before ``bias``. ``variant`` is ``"paper"``;
    ``"plain"``, which is ``torch.nn.RNN``; or, only with tanh, ``"batchnorm"``.

    >>> rnn = LayerNormRNN(3, 4, nonlinearity="relu")
    >>> y, h_n = rnn(torch.randn(7, 5, 3))
    >>> y.shape, bool((y >= 0).all())
    (torch.Size([7, 5, 4]), True)
    """


    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: Nonlinearity = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        variant: RNNVariant = "paper",
        eps: float | None = 1e-5,
        checkpoint: bool = False,
        num_heads: int = 1,
    ) -> None:
        super().__init__(
            _rnns(self, nonlinearity), input_size, hidden_size, num_layers, bias, batch_first,
            dropout, bidirectional, device, dtype, variant, eps, checkpoint, num_heads,
        )  # fmt: skip
        self.nonlinearity = nonlinearity
        self.mode = "RNN_RELU" if nonlinearity == "relu" else "RNN_TANH"

    def extra_repr(self) -> str:
        relu = ", nonlinearity=relu" if self.nonlinearity == "relu" else ""
        return super().extra_repr() + relu


def _rnns(module: nn.Module, nonlinearity: str) -> Mapping[str, _Variant]:
    if nonlinearity not in _RNNS:
        raise ValueError(
            f"[{type(module).__name__}] nonlinearity must be one of {', '.join(_RNNS)}, got "
            f"{nonlinearity}"
        )
    return _RNNS[nonlinearity]


class _Step(_Recurrent):
    """Base of LayerNormLSTMCell, LayerNormGRUCell and LayerNormRNNCell."""

    def __init__(
        self,
        variants: Mapping[str, _Variant],
        input_size: int,
        hidden_size: int,
        bias: bool,
        device: Any,
        dtype: Any,
        variant: str,
        eps: float | None,
        num_heads: int,
        proj_size: int = 0,
    ) -> None:
        steps = {name: v for name, v in variants.items() if name != "batchnorm"}
        super().__init__(
            steps, variant, input_size, hidden_size, bias, eps, proj_size, num_heads
        )
        self._add_layer("", self.input_size, device, dtype)
        self.reset_parameters()

    def extra_repr(self) -> str:
        return self._repr_of(
            {
                "bias": (self.bias, True),
                "proj_size": (self.proj_size, 0),
                "num_heads": (self.num_heads, 1),
                "variant": (self.variant, "paper"),
                "eps": (self.eps, 1e-5),
            }
        )

    def _run(self, x: Tensor, hx: Any, steps: "_Steps | None" = None) -> tuple[Tensor, ...]:
        dimensions = x.dim()
        if dimensions not in (1, 2):
            raise self._error("x must have 1 or 2 dimensions", list(x.shape))
        self._check_inputs(x)
        states = self._states_of(hx)
        before: list[Tensor | None] = [None, None]
        for index, (name, state) in enumerate(zip(self._states, states, strict=True)):
            self._check_size(name, state, (*x.shape[:-1], self._width(name)))
            if state is not None:
                before[index] = state.unsqueeze(0) if dimensions == 1 else state
        if dimensions == 1:
            x = x.unsqueeze(0)
        step: tuple[Tensor, Tensor]
        if steps is not None and not torch.compiler.is_compiling():
            step = steps.step(x, *before)
        else:
            step = self._run_step((x, *before))
        next_states = step[: len(states)]
        return tuple(s.squeeze(0) for s in next_states) if dimensions == 1 else next_states

    def _make_steps(self) -> "_Steps | None":
        """Returns the operators' RnnSteps, or None if steps must call the operators."""
        if torch.compiler.is_compiling() or torch._C._is_tracing():
            return None
        parameters, computed = self._parameters_of("")
        if any(parameter is None for parameter in parameters):  # a bias that was removed
            return None
        sources: dict[str, Tensor] = {}
        if computed:  # from parameters and buffers of parametrizations, too
            sources = {**dict(self.named_parameters()), **dict(self.named_buffers())}
        layer = self._layers[""]
        steps = layer.steps(parameters, self.training, computed, self.eps, sources)
        return _Steps(self, steps)

    def _run_step(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, Tensor]:
        """Computes a step from x, h0 and c0."""
        parameters, computed = self._parameters_of("")
        step: tuple[Tensor, Tensor]
        if _are_recorded(parameters, inputs):
            step = _rnn_step(self._cell, **self._arguments(parameters, inputs), eps=self.eps)
        else:
            step = self._layers[""].step(parameters, self.training, computed, *inputs, self.eps)
        return step


class _Steps:
    """The operators' RnnSteps of a cell."""

    def __init__(self, cell: _Step, steps: Any) -> None:
        self._steps = steps
        self._tables = [
            (table, list(table.values()), _impls(table.values()))
            for module in cell.modules()
            for table in (module._parameters, module._buffers)
        ]

    def step(self, x: Tensor, h: Tensor | None, c: Tensor | None) -> tuple[Tensor, Tensor]:
        # RnnSteps compares the contents of the tensors; this finds replaced tensors.
        for table, _, impls in self._tables:
            if _impls(table.values()) != impls:
                raise ValueError(
                    "[RnnSteps] parameters have been replaced since the steps began: "
                    "call steps() again"
                )
        h1, c1 = self._steps.step(x, h, c)
        return h1, c1


class LayerNormLSTMCell(_Step):
    """One step of ``LayerNormLSTM``, used like ``torch.nn.LSTMCell``.

    Arguments and parameters are those of ``LayerNormLSTM`` that apply to a step, with ``proj_size``.
    Names have no ``_l{k}``, and there is no variant ``"batchnorm"``.

    >>> cell = LayerNormLSTMCell(3, 4)
    >>> h, c = cell(torch.randn(5, 3))
    >>> h, c = cell(torch.randn(5, 3), (h, c))
    >>> h.shape
    torch.Size([5, 4])
    """

    _states = ("h", "c")

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        proj_size: int = 0,
        variant: LSTMCellVariant = "paper",
        eps: float | None = 1e-5,
        num_heads: int = 1,
    ) -> None:
        super().__init__(
            _LSTMS, input_size, hidden_size, bias, device, dtype, variant, eps, num_heads, proj_size
        )

    @leaf
    def forward(
        self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Returns the next (h, c) for input [B, I] or [I]; hx is (h, c), zeros by default."""
        h, c = self._run(input, hx)
        return h, c

    def steps(self) -> Callable[..., tuple[Tensor, Tensor]]:
        """Returns a function for steps with gradients in a loop, where inputs depend on outputs.

        The function is called like the cell and returns the same results. The cell packs its
        weights at each step with gradients, and computes their gradients with one small matrix
        product a step. This function packs them once, and ``backward`` computes their gradients for
        many steps together.

        A step can continue from any state, be detached, or stay unused. The parameters are those of
        this call. Each step compares their bytes, and raises ``ValueError`` after any change. The
        steps of a frozen cell skip the comparison (see ``freeze``). Second derivatives raise
        ``NotImplementedError``; use the cell for them. Hooks of the module are not called.

        >>> cell = LayerNormLSTMCell(4, 4)
        >>> step = cell.steps()
        >>> h, c = step(torch.randn(5, 4))
        >>> for _ in range(3):
        ...     h, c = step(h.tanh(), (h, c))
        >>> h.sum().backward()
        """
        steps = self._make_steps()

        def step(
            input: Tensor, hx: tuple[Tensor, Tensor] | None = None
        ) -> tuple[Tensor, Tensor]:
            h, c = self._run(input, hx, steps)
            return h, c

        return step


class _HiddenStateStep(_Step):
    """Base of LayerNormGRUCell and LayerNormRNNCell, whose state is only h."""

    @leaf
    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """Returns the next h for input [B, I] or [I]; hx is h, [B, H] or [H], zeros by default."""
        (h,) = self._run(input, hx)
        return h

    def steps(self) -> Callable[..., Tensor]:
        """See ``LayerNormLSTMCell.steps``."""
        steps = self._make_steps()

        def step(input: Tensor, hx: Tensor | None = None) -> Tensor:
            (h,) = self._run(input, hx, steps)
            return h

        return step


class LayerNormGRUCell(_HiddenStateStep):
    """One step of ``LayerNormGRU``, used like ``torch.nn.GRUCell``. See ``LayerNormLSTMCell``.

    >>> LayerNormGRUCell(3, 4)(torch.randn(5, 3)).shape
    torch.Size([5, 4])
    """


    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        variant: GRUCellVariant = "paper",
        eps: float | None = 1e-5,
        num_heads: int = 1,
    ) -> None:
        super().__init__(
            _GRUS, input_size, hidden_size, bias, device, dtype, variant, eps, num_heads
        )


class LayerNormRNNCell(_HiddenStateStep):
    """One step of ``LayerNormRNN``, used like ``torch.nn.RNNCell``. See ``LayerNormLSTMCell``.

    >>> LayerNormRNNCell(3, 4)(torch.randn(3)).shape
    torch.Size([4])
    """


    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: Nonlinearity = "tanh",
        device: Any = None,
        dtype: Any = None,
        *,
        variant: RNNCellVariant = "paper",
        eps: float | None = 1e-5,
        num_heads: int = 1,
    ) -> None:
        variants = _rnns(self, nonlinearity)
        super().__init__(
            variants, input_size, hidden_size, bias, device, dtype, variant, eps, num_heads
        )
        self.nonlinearity = nonlinearity

    def extra_repr(self) -> str:
        relu = ", nonlinearity=relu" if self.nonlinearity == "relu" else ""
        return super().extra_repr() + relu
