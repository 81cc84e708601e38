"""planish.convert: replaces the norms and recurrent layers of a model."""

import fnmatch
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import torch
from torch import nn

from planish import nn as own
from planish._checks import check_eps, check_finite
from planish._convert import recurrent
from planish._convert.checks import (
    DTYPES,
    check_devices,
    further_attributes,
    is_compiling,
    is_sharding,
)
from planish._convert.exact import Inputs, Rewrite, prove, verify
from planish._convert.fast_path import adapt_fast_path
from planish._convert.report import Change, Conversion, Left, Unfit
from planish._convert.rows import Options, is_of_this_library, replace_norm
from planish._convert.weight_typed import WeightTypedRMSNorm

__all__ = ["TARGETS", "Change", "Conversion", "Left", "convert"]

#: The values that ``to`` can have.
TARGETS = (
    "planish",
    "torch",
    "layer",
    "simple",
    "detach",
    "detach_mean",
    "detach_std",
    "ada",
    "ada_as_coded",
    "rms",
    "dyt",
    "derf",
    "none",
    "layer_norm_rnn",
)

_WITHOUT_EPS = ("none", "torch", "dyt", "derf")

OneFilter: TypeAlias = type[nn.Module] | str | Callable[[str, nn.Module], bool]
Filter: TypeAlias = OneFilter | Sequence[OneFilter]

# A position of a module: its name in the model, its parent (None for the model), its name there.
_Place: TypeAlias = tuple[str, nn.Module | None, str]

# The attributes of nn.Module that hold forward and backward hooks. Before and after share the
# dictionaries, so that a handle still removes its hook.
_HOOKS = (
    "_backward_pre_hooks",
    "_backward_hooks",
    "_is_full_backward_hook",
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
)
# Norms that exact=True replaces.
_EXACT = (nn.LayerNorm, own.LayerNorm, own.LayerNormSimple)
# Modules of this library that a model holds as one of its layers.
_LAYERS = tuple(
    kind
    for name in own.__all__
    if isinstance(kind := getattr(own, name), type) and kind not in (own.NNet, own.WeightNorm)
)


def convert(
    model: nn.Module,
    to: str,
    *,
    filter: Filter | None = None,
    eps: float | None = None,
    C: float | None = None,
    k: float | None = None,
    variant: str | None = None,
    keep_rounding: bool = False,
    exact: bool = False,
    inputs: Any = None,
) -> Conversion:
    """Replaces the norms of a model in place, and reports what it replaced.

    ``to`` is one of

    ==================  ===========================================================================
    "planish"           the same norm with this library's kernels
    "torch"             the module of ``torch.nn`` that is equal to one of this library
    "layer"             LayerNorm; BatchNorm1d and 2d become LayerNorm1d and 2d
    "rms"               RMSNorm
    "simple"            LayerNormSimple
    "detach"            DetachNorm; "detach_mean" and "detach_std" detach one of the two
    "ada"               AdaNorm, with C and k; "ada_as_coded" is the formula of its authors' code
    "dyt", "derf"       DyT or Derf, functions in place of a norm, with weight and bias kept
    "none"              torch.nn.Identity
    "layer_norm_rnn"    torch.nn.LSTM, GRU and RNN become LayerNormLSTM, GRU and RNN (``variant``)
    ==================  ===========================================================================

    ``convert`` replaces LayerNorm, RMSNorm, BatchNorm1d and BatchNorm2d of ``torch.nn``, this
    library's norms, and the model's own classes that are equivalent to RMSNorm. Such a class has
    RMSNorm's formula in its code, and RMSNorm's results for many inputs. "planish", "torch" and
    "none" also replace GroupNorm and InstanceNorm1d to 3d.

    Modules that do more than their class, or are not understood, stay, and the report gives the
    reason. These are subclasses; parametrized, pruned, compiled and sharded modules; and modules
    with a replaced method, further methods or state-dict hooks. Recurrent layers with forward
    pre-hooks stay, too.

    The new module holds the same parameters and buffers, not copies, so optimizers and tied weights
    keep working. New parameters have their initial values. eps, device, dtype, training flag,
    further attributes, and forward and backward hooks are kept. ``eps=...`` sets another eps. A
    module with several names is replaced by one module. No random number is drawn. A recurrent
    layer loses its two biases if the cell has none, and has their sum if the cell has one.

    ``keep_rounding`` gives an RMSNorm ``cast_before_weight`` where the model's own class, such as
    Llama's, rounds 16-bit types before the product with the weight. Without it they are rounded
    once, at the end. It applies to "planish".

    ``filter`` selects the modules to replace: those of a class, those whose name matches a glob
    ("encoder.*"), or those for which a function ``(name, module) -> bool`` returns True. A sequence
    of these selects the modules that any of them selects.

    "torch" converts back: LayerNorm, LayerNormSimple, RMSNorm, BatchNorm1d and 2d, and recurrent
    layers and cells with ``variant="plain"`` become modules of ``torch.nn``. An RMSNorm that was a
    class of the model's own becomes ``torch.nn.RMSNorm``.

    ``torch.nn.TransformerEncoderLayer`` has a fast path for evaluation that computes LayerNorm
    itself from the weights of its norms. It is switched off where a norm of a layer was replaced,
    and on again after "torch".

    ``convert(model, "rms", exact=True, inputs=...)`` replaces LayerNorm by RMSNorm without a change
    of the model's results (Jiang et al. 2023). Layers that write the inputs of the norms are
    centred: their weights and biases lose their mean over the outputs. So the inputs of the norms
    have mean 0, for which LayerNorm is RMSNorm with a bias; that bias moves into the linear layers
    that read it. inputs, which torch.export traces, are the arguments of a call: a tensor, a tuple,
    or a dictionary. The proof holds for calls that run the same operations. The result is compared
    with the model's in float64, too. Other norms stay. Raises ValueError with the reason, and
    changes nothing, if the proof fails for a norm that filter selects: the residual stream is read
    without a norm, is written by something else than linear, convolution and embedding layers,
    parameters and buffers, or has a norm with unequal weights in it (post-norm); weights are tied;
    dropout is active; a norm's bias is read by something else than linear layers.

    Raises ValueError for an unknown ``to`` and for an option that ``to`` does not take. Also raises
    ValueError for a model that is itself such a norm, because it cannot be replaced in place.

    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4))
    >>> convert(model, "ada", k=0.2)
    convert to "ada": 1 changed, 0 left
      1 x LayerNorm -> planish.nn.AdaNorm, drops weight and bias
          1
    >>> model[1]
    AdaNorm((4,), C=1.0, k=0.2, as_coded=False, eps=1e-05)
    """
    _check_options(to, eps, C, k, variant, keep_rounding)
    _check_exact(to, eps, exact, inputs)
    options = Options(
        to, eps, 1.0 if C is None else C, 0.1 if k is None else k, variant, bool(keep_rounding)
    )
    options.like = next((p for p in model.parameters() if p.dtype in DTYPES), options.like)
    replace = _replacer(model, options)
    modules = model.named_modules(remove_duplicate=False)
    sharded = [f"{name}." for name, module in modules if is_sharding(module)]
    report = Conversion(to)
    swaps: list[tuple[nn.Module, nn.Module, list[_Place]]] = []
    for module, places in _candidates(model, to).items():
        names = tuple(name for name, _, _ in places)
        kind = _kind(module)
        if not any(_passes(filter, name, module) for name in names):
            report.left.append(Left(names, kind, "excluded by the filter"))
            continue
        try:
            if exact and type(module) not in _EXACT:
                raise Unfit("exact=True replaces LayerNorm")
            _check_places(places, sharded)
            after = _replacement(module, replace)
        except Unfit as unfit:
            report.left.append(Left(names, kind, str(unfit)))
            continue
        if module is model:
            raise ValueError(f"[convert] model must hold the norms to replace, got a {kind} itself")
        before_state, after_state = _tensors(module), _tensors(after)
        report.changed.append(
            Change(
                names,
                kind,
                _kind(after),
                tuple(
                    name
                    for name in before_state
                    if name not in after_state
                    and name.replace("bias_hh", "bias_ih") not in after_state  # which is their sum
                ),
                tuple(name for name in after_state if name not in before_state),
            )
        )
        swaps.append((module, after, places))
    rewrite = _rewrite(model, swaps, inputs) if exact else None
    # All replacements exist and nothing fails from here on: model is never half converted.
    if rewrite is not None:
        rewrite.apply(model)
        report.notes.extend(rewrite.notes())
    for before, after, places in swaps:
        after.train(before.training)
        for hooks in _HOOKS:
            after.__dict__[hooks] = before.__dict__[hooks]
        for _, parent, attribute in places:
            assert parent is not None
            parent._modules[attribute] = after
    report.notes.extend(adapt_fast_path(model, {after for _, after, _ in swaps}))
    return report


def _check_options(
    to: str,
    eps: float | None,
    C: float | None,
    k: float | None,
    variant: str | None,
    keep_rounding: bool,
) -> None:
    if to not in TARGETS:
        raise ValueError(f"[convert] to must be one of {', '.join(TARGETS)}, got {to!r}")
    takers: dict[str, tuple[float | str | None, tuple[str, ...]]] = {
        "eps": (eps, tuple(target for target in TARGETS if target not in _WITHOUT_EPS)),
        "C": (C, ("ada", "ada_as_coded")),
        "k": (k, ("ada", "ada_as_coded")),
        "variant": (variant, ("layer_norm_rnn",)),
        "keep_rounding": (True if keep_rounding else None, ("planish",)),
    }
    for name, (value, targets) in takers.items():
        if value is not None and to not in targets:
            raise ValueError(f'[convert] {name} must be left out for "{to}", got {value}')
    if eps is not None:
        check_eps("convert", eps)
    for name, factor in (("C", C), ("k", k)):
        if factor is not None:
            check_finite("convert", name, factor)
    if variant is not None and not recurrent.has_variant(variant):
        raise ValueError(
            f"[convert] variant must be one that a recurrent layer has, got {variant!r}"
        )


def _check_exact(to: str, eps: float | None, exact: bool, inputs: Any) -> None:
    if exact and to != "rms":
        raise ValueError(f'[convert] exact must be left out for "{to}", got {exact}')
    if exact and eps is not None:
        raise ValueError(f"[convert] eps must be left out with exact=True, got {eps}")
    if exact and inputs is None:
        raise ValueError(
            "[convert] inputs must be the arguments of a call with exact=True, got None"
        )
    if not exact and inputs is not None:
        raise ValueError("[convert] inputs must be left out without exact=True, got inputs")


def _rewrite(
    model: nn.Module, swaps: list[tuple[nn.Module, nn.Module, list[_Place]]], inputs: Any
) -> Rewrite:
    """Proves that the replacements are exact. Raises ValueError if they are not."""
    given = Inputs.of(inputs)
    chosen = {before: places[0][0] for before, _, places in swaps}
    after = {name: new for _, new, places in swaps for name, _, _ in places}
    try:
        rewrite = prove(model, chosen, given)
        verify(model, rewrite, after, given)
    except Unfit as unfit:
        raise ValueError(f"[convert] model cannot be converted exactly: {unfit}") from unfit
    return rewrite


def _replacer(model: nn.Module, options: Options) -> Callable[[nn.Module], nn.Module]:
    if options.to == "layer_norm_rnn":
        owners = recurrent.Owners(model)
        return lambda module: recurrent.replace_layer(module, options, owners)
    if options.to == "torch":
        return lambda module: (
            recurrent.restore_recurrent(module)
            if recurrent.is_recurrent(module)
            else replace_norm(module, options)
        )
    return lambda module: replace_norm(module, options)


def _check_places(places: list[_Place], sharded: list[str]) -> None:
    """Raises Unfit if anything but the parent calls the module or sets its parameters."""
    for name, parent, _ in places:
        if parent is not None and is_compiling(parent):
            raise Unfit("it is compiled by torch.compile")
        if any(prefix == "." or f"{name}.".startswith(prefix) for prefix in sharded):
            raise Unfit("FSDP shards it: convert the model before")


def _replacement(module: nn.Module, replace: Callable[[nn.Module], nn.Module]) -> nn.Module:
    """Returns the replacement of module. Raises only Unfit."""
    try:
        with torch.inference_mode(False), torch.no_grad():
            after = replace(module)
        known = is_of_this_library(type(module)) or type(module).__module__.startswith("torch.")
        after.__dict__.update(further_attributes(module, after, known))
        if is_of_this_library(type(after)):
            check_devices(after)
    except Unfit:
        raise
    except Exception as error:  # a module can be broken in more ways than are checked
        raise Unfit(f"{type(error).__name__}: {error}".splitlines()[0]) from error
    return after


def _candidates(model: nn.Module, to: str) -> dict[nn.Module, list[_Place]]:
    """Returns each norm, or recurrent layer, with all its places."""
    modules = dict(model.named_modules(remove_duplicate=False))
    places: dict[nn.Module, list[_Place]] = {}
    for name, module in modules.items():
        if _is_wanted(module, name, to):
            prefix, _, attribute = name.rpartition(".")
            parent = modules[prefix] if name else None
            places.setdefault(module, []).append((name, parent, attribute))
    return places


def _is_wanted(module: nn.Module, name: str, to: str) -> bool:
    if ".parametrizations." in f".{name}.":
        return False
    if to == "layer_norm_rnn":
        return isinstance(module, nn.RNNBase)
    if to == "torch":
        return isinstance(module, _LAYERS)
    return _looks_like_norm(module)


def _class_name(module: nn.Module) -> str:
    if isinstance(module, torch.jit.ScriptModule):
        return str(module.original_name)
    return type(module).__name__


def _kind(module: nn.Module) -> str:
    name = _class_name(module)
    if not is_of_this_library(type(module)):
        return name
    if type(module) is WeightTypedRMSNorm:
        return "planish.nn.RMSNorm with the weight's type"
    if not hasattr(own, name):
        return f"planish.nn.{type(module).__base__.__name__} over heads"  # type: ignore[union-attr]
    return f"planish.nn.{name}"


def _looks_like_norm(module: nn.Module) -> bool:
    known = (nn.LayerNorm, nn.RMSNorm, nn.modules.batchnorm._BatchNorm)
    return (
        isinstance(module, known)
        or type(module) in _LAYERS
        and not recurrent.is_recurrent(module)
        or re.search(r"norm(\dd)?$", _class_name(module), re.IGNORECASE) is not None
    )


def _passes(filter: Filter | None, name: str, module: nn.Module) -> bool:
    if filter is None:
        return True
    if isinstance(filter, type):
        return isinstance(module, filter)
    if isinstance(filter, str):
        return fnmatch.fnmatchcase(name, filter)
    if callable(filter):
        return bool(filter(name, module))
    return any(_passes(one, name, module) for one in filter)


def _tensors(module: nn.Module) -> list[str]:
    pairs = [*module.named_parameters(), *module.named_buffers()]
    return [name for name, _ in pairs]
