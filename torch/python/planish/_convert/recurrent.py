"""Replacements of recurrent layers, from torch.nn and back."""

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from planish._convert.checks import check_class, check_instance, check_parameters
from planish._convert.report import Unfit
from planish._convert.rows import Options
from planish.nn import recurrent

__all__ = ["Owners", "has_variant", "is_recurrent", "replace_layer", "restore_recurrent"]

_LAYERS: dict[type[nn.Module], Callable[..., nn.Module]] = {
    nn.LSTM: recurrent.LayerNormLSTM,
    nn.GRU: recurrent.LayerNormGRU,
    nn.RNN: recurrent.LayerNormRNN,
}
_BACK: dict[type[nn.Module], Callable[..., nn.Module]] = {
    recurrent.LayerNormLSTM: nn.LSTM,
    recurrent.LayerNormGRU: nn.GRU,
    recurrent.LayerNormRNN: nn.RNN,
    recurrent.LayerNormLSTMCell: nn.LSTMCell,
    recurrent.LayerNormGRUCell: nn.GRUCell,
    recurrent.LayerNormRNNCell: nn.RNNCell,
}


def is_recurrent(module: nn.Module) -> bool:
    """Returns True for recurrent layers and cells of this library."""
    return isinstance(module, tuple(_BACK))


def has_variant(variant: str) -> bool:
    """Returns True if a recurrent layer of this library has the variant."""
    for layer in _LAYERS.values():
        try:
            layer(1, 1, variant=variant, device="meta")
        except ValueError:
            continue
        return True
    return False


class Owners:
    """The modules of a model that hold each piece of memory."""

    def __init__(self, model: nn.Module) -> None:
        self._of: dict[Any, dict[nn.Module, str]] = {}
        for place, module in model.named_modules():
            for name, tensor in (*module._parameters.items(), *module._buffers.items()):
                for key in _memory(tensor):
                    of_key = self._of.setdefault(key, {})
                    of_key.setdefault(module, f"{place}.{name}" if place else name)

    def check_alone(self, module: nn.Module) -> None:
        """Raises Unfit if a parameter of module is shared with another module."""
        for name, tensor in module._parameters.items():
            for key in _memory(tensor):
                for other, place in self._of[key].items():
                    if other is not module:
                        raise Unfit(f"its {name} shares memory with {place}")


def _memory(tensor: Tensor | None) -> Iterator[Any]:
    if tensor is None or nn.parameter.is_lazy(tensor):
        return
    yield id(tensor)
    try:
        pointer = tensor.untyped_storage().data_ptr()
    except Exception:  # a tensor without storage; classes of tensors differ in what they raise
        return
    if pointer:
        yield ("storage", tensor.device, pointer)


def replace_layer(module: nn.Module, options: Options, owners: Owners) -> nn.Module:
    """Returns the layer with layer normalization for one of torch.nn. Raises Unfit if none."""
    check_instance(module)
    kind = type(module)
    target = _LAYERS.get(kind)
    if target is None:
        raise Unfit("it is a recurrent layer of another class")
    assert isinstance(module, nn.RNNBase)
    check_class(kind)
    names = [name for of_layer in module._all_weights for name in of_layer]
    check_parameters(module, names)
    own: dict[str, nn.Parameter] = {}
    for name in names:
        parameter = module._parameters[name]
        if parameter is None:
            raise Unfit(f"its {name} is None")
        for other, earlier in own.items():
            if earlier is parameter:
                raise Unfit(f"its {name} is its {other}")
        own[name] = parameter
    flat = getattr(module, "_flat_weights", None)
    if not isinstance(flat, list) or [*map(id, flat)] != [*map(id, own.values())]:
        raise Unfit("its flat weights are not its parameters")
    if module._forward_pre_hooks:
        raise Unfit("it has a forward pre-hook, which can rewrite its weights")
    owners.check_alone(module)
    given = {"eps": options.eps, "variant": options.variant}
    arguments = {name: value for name, value in given.items() if value is not None}
    if isinstance(module, nn.RNN):
        arguments["nonlinearity"] = module.nonlinearity
    if module.proj_size > 0:
        arguments["proj_size"] = module.proj_size
    try:
        after = _layer(target, module, **arguments)
    except ValueError:
        if options.variant is None:
            raise
        raise Unfit(f'{kind.__name__} has no variant "{options.variant}"') from None
    like = own["weight_ih_l0"]
    wanted = dict(after.named_parameters())
    for name, parameter in wanted.items():
        if tuple(parameter.shape) != tuple(own[name].shape if name in own else parameter.shape):
            raise Unfit(f"its {name} has {list(own[name].shape)}")
        hidden = name.replace("bias_ih", "bias_hh")
        if name in own and (hidden == name or hidden in wanted):
            after._parameters[name] = own[name]
        elif name in own:  # one bias in the place of two
            both = (own[name] + own[hidden]).detach()
            trained = own[name].requires_grad or own[hidden].requires_grad
            after._parameters[name] = nn.Parameter(both, trained)
        else:
            new = torch.zeros(parameter.shape, dtype=like.dtype, device=like.device)
            if name.startswith("ln_"):
                set_norm: Any = after._set_norm
                set_norm(name, new)
            after._parameters[name] = nn.Parameter(new)
    return after


def restore_recurrent(module: Any) -> nn.Module:
    """Returns torch.nn's layer or cell for a plain one of this library. Raises Unfit if none."""
    check_instance(module)
    kind = type(module)
    target = _BACK.get(kind)
    if target is None:
        raise Unfit("it is a recurrent layer of another class")
    check_class(kind)
    if module.variant != "plain":
        raise Unfit(f'torch.nn has no {kind.__name__} of variant "{module.variant}"')
    arguments: dict[str, Any] = {}
    if hasattr(module, "nonlinearity"):
        arguments["nonlinearity"] = module.nonlinearity
    if module.num_heads > 1:
        raise Unfit(f"torch.nn has no {kind.__name__} with num_heads")
    if hasattr(module, "num_layers"):
        if module.proj_size > 0:
            arguments["proj_size"] = module.proj_size
        after = _layer(target, module, **arguments)
    elif module.proj_size > 0:
        raise Unfit(f"torch.nn has no {kind.__name__} with a proj_size")
    else:
        after = target(
            module.input_size, module.hidden_size, bool(module.bias), device="meta", **arguments
        )
    names = [name for name, _ in after.named_parameters()]
    check_parameters(module, names)
    for name, parameter in after.named_parameters():
        own = module._parameters[name]
        if own is None or own.shape != parameter.shape:
            raise Unfit(f"its {name} has {None if own is None else list(own.shape)}")
    for name in names:
        # Not into _parameters: torch.nn's layers keep a list of their weights beside it.
        setattr(after, name, module._parameters[name])
    return after


def _layer(target: Callable[..., nn.Module], module: Any, **arguments: Any) -> nn.Module:
    with warnings.catch_warnings():  # dropout with one layer, about which module has warned
        warnings.simplefilter("ignore")
        return target(
            module.input_size,
            module.hidden_size,
            module.num_layers,
            bias=module.bias,
            batch_first=module.batch_first,
            dropout=module.dropout,
            bidirectional=module.bidirectional,
            device="meta",
            **arguments,
        )
