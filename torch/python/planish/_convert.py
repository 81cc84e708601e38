"""planish.convert: other norms in the place of a model's own."""

import copy
import fnmatch
import math
import re
import textwrap
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from .nn import norms, recurrent

__all__ = ["TARGETS", "Change", "Conversion", "Left", "convert"]

#: What ``convert`` can be asked for.
TARGETS = (
    "planish",
    "layer",
    "simple",
    "detach",
    "detach_mean",
    "detach_std",
    "ada",
    "ada_as_coded",
    "rms",
    "none",
    "layer_norm_rnn",
)

OneFilter: TypeAlias = type[nn.Module] | str | Callable[[str, nn.Module], bool]
Filter: TypeAlias = OneFilter | Sequence[OneFilter]


@dataclass(frozen=True)
class Change:
    """A module that was replaced."""

    names: tuple[str, ...]  #: where it was: more than one name where it is shared
    before: str  #: its class
    after: str  #: the class in its place
    dropped: tuple[str, ...]  #: its parameters and buffers that have no place there
    added: tuple[str, ...]  #: parameters there that it had not, as at the start of training


@dataclass(frozen=True)
class Left:
    """A norm, or recurrent layer, that was not replaced."""

    names: tuple[str, ...]
    kind: str  #: its class
    reason: str


@dataclass
class Conversion:
    """What ``convert`` did; prints as a list by class."""

    to: str
    changed: list[Change] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        counts = f"{len(self.changed)} changed, {len(self.left)} left"
        lines = [f'convert to "{self.to}": {counts}']
        groups: dict[str, list[str]] = {}
        for change in self.changed:
            text = f"{change.before} -> {change.after}"
            for verb, tensors in (("drops", change.dropped), ("adds", change.added)):
                kinds = dict.fromkeys(re.sub(r"_l\d+(_reverse)?$", "", name) for name in tensors)
                text += f", {verb} {' and '.join(kinds)}" if tensors else ""
            groups.setdefault(text, []).append(" = ".join(change.names))
        for left in self.left:
            text = f"{left.kind} left: {left.reason}"
            groups.setdefault(text, []).append(" = ".join(left.names))
        for text, names in groups.items():
            lines.extend(_wrap(f"{len(names)} x {text}", "  ", "    "))
            lines.extend(_wrap(", ".join(names), " " * 6, " " * 6))
        lines.extend(f"  note: {note}" for note in self.notes)
        return "\n".join(lines)

    __repr__ = __str__


def _wrap(words: str, first: str, rest: str) -> list[str]:
    return textwrap.wrap(
        words, 100, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False
    )


class _Unfit(Exception):
    """Why a module is left."""


@dataclass
class _Row:
    """A norm over rows, as far as another one can take it over."""

    shape: tuple[int, ...]
    eps: float | None
    affine: bool  # whether a norm with parameters in its place has a weight
    biased: bool  # and a bias
    weight: Tensor | None = None
    bias: Tensor | None = None
    is_rms: bool = False


@dataclass
class _Options:
    eps: float | None
    C: float
    k: float
    variant: str | None
    like: Tensor  # whose type and device new parameters have where the norm has none


_BATCH = (nn.BatchNorm1d, nn.BatchNorm2d, norms.BatchNorm1d, norms.BatchNorm2d)
_CHANNEL = (norms.LayerNorm1d, norms.LayerNorm2d)
_RECURRENT: dict[type[nn.Module], Callable[..., nn.Module]] = {
    nn.LSTM: recurrent.LayerNormLSTM,
    nn.GRU: recurrent.LayerNormGRU,
    nn.RNN: recurrent.LayerNormRNN,
}
_BARE = (norms.LayerNormSimple, norms.DetachNorm, norms.AdaNorm)  # rows, no parameters

# Everything by which a module is watched; a handle removes its hook from the same dictionaries.
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
_STATE_HOOKS = (
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
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
) -> Conversion:
    """Replaces the norms in model, in place, and says what it replaced.

    ``to`` is one of

    ==================  ===========================================================================
    "planish"           the same norm on this library's kernels
    "layer"             LayerNorm; BatchNorm1d and 2d become LayerNorm1d and 2d
    "rms"               RMSNorm
    "simple"            LayerNormSimple
    "detach"            DetachNorm; "detach_mean" and "detach_std" of one moment alone
    "ada"               AdaNorm, with C and k; "ada_as_coded" as its authors' code has it
    "none"              torch.nn.Identity
    "layer_norm_rnn"    torch.nn.LSTM, GRU and RNN become LayerNormLSTM, GRU and RNN (``variant``)
    ==================  ===========================================================================

    Replaced are ``torch.nn``'s LayerNorm, RMSNorm, BatchNorm1d and BatchNorm2d, this library's
    norms, and classes that are an RMSNorm in all but name: one ``weight``, an eps, and the outputs
    of RMSNorm in a trial. Subclasses, parametrised norms and those whose forward or state-dict
    hooks are somebody's own are left, as is what ``to`` has no form for, each with its reason.

    The new module holds the same parameters and buffers, not copies, where it has a place for them:
    optimisers and tied weights go on. New ones start as at the start of training. eps, device,
    dtype, training flag and forward and backward hooks go over; eps=... sets another. A module with
    several names is replaced by one module. No random number is drawn. Of a recurrent layer the two
    biases are dropped where the cell has none, and one, their sum, where it has one.

    filter: only modules that are of a class, whose name matches a glob ("encoder.*"), or of which a
    function ``(name, module) -> bool`` says so; or a sequence of these, any of which will do.

    ``torch.nn.TransformerEncoderLayer`` has a fast path for evaluation that computes LayerNorm
    itself from the weights of its norms. It is switched off where a norm of a layer was replaced.

    Raises ValueError for an unknown ``to``, an option that ``to`` does not take, and a model that
    is itself the norm: there is no place to put another one.

    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4))
    >>> convert(model, "ada", k=0.2)
    convert to "ada": 1 changed, 0 left
      1 x LayerNorm -> planish.nn.AdaNorm, drops weight and bias
          1
    >>> model[1]
    AdaNorm((4,), C=1.0, k=0.2, as_coded=False, eps=1e-05)
    """
    if to not in TARGETS:
        raise ValueError(f"[convert] to must be one of {', '.join(TARGETS)} but has {to!r}")
    for name, value, takers in (
        ("C", C, ("ada", "ada_as_coded")),
        ("k", k, ("ada", "ada_as_coded")),
        ("variant", variant, ("layer_norm_rnn",)),
    ):
        if value is not None and to not in takers:
            raise ValueError(f'[convert] {name} must be left out for "{to}" but has {value}')
    if eps is not None and to == "none":
        raise ValueError(f'[convert] eps must be left out for "none" but has {eps}')
    like = next((p for p in model.parameters() if p.is_floating_point()), torch.empty(0))
    options = _Options(eps, 1.0 if C is None else C, 0.1 if k is None else k, variant, like)
    report = Conversion(to)
    swaps: list[tuple[nn.Module, nn.Module]] = []
    for names, module in _candidates(model, of_time=to == "layer_norm_rnn"):
        kind = _kind(module)
        try:
            if not any(_passes(filter, name, module) for name in names):
                raise _Unfit("the filter does not name it")
            after = _replacement(module, to, options)
        except _Unfit as unfit:
            report.left.append(Left(names, kind, str(unfit)))
            continue
        if module is model:
            raise ValueError(
                f"[convert] model must hold the norms that are replaced but has one itself, {kind}"
            )
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
        swaps.append((module, after))
    # All replacements exist: nothing fails from here on, and model is never half converted.
    for (before, after), change in zip(swaps, report.changed):
        after.train(before.training)
        for hooks in _HOOKS:
            after.__dict__[hooks] = before.__dict__[hooks]
        for name in change.names:
            parent, _, attribute = name.rpartition(".")
            setattr(model.get_submodule(parent), attribute, after)
    report.notes.extend(_leave_fast_path(model, {after for _, after in swaps}))
    return report


def _candidates(
    model: nn.Module, of_time: bool
) -> Iterator[tuple[tuple[str, ...], nn.Module]]:
    """Each norm, or recurrent layer, once, with all its names."""
    names: dict[nn.Module, list[str]] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        if of_time:
            wanted = isinstance(module, nn.RNNBase)
        else:
            wanted = _looks_like_norm(module) and ".parametrizations." not in f".{name}."
        if wanted:
            names.setdefault(module, []).append(name)
    for module, where in names.items():
        yield tuple(where), module


def _kind(module: nn.Module) -> str:
    name = type(module).__name__
    return f"planish.nn.{name}" if type(module).__module__.startswith("planish.") else name


def _looks_like_norm(module: nn.Module) -> bool:
    known = (nn.LayerNorm, nn.RMSNorm, nn.modules.batchnorm._BatchNorm)
    return (
        isinstance(module, known)
        or type(module) in _BARE
        or re.search(r"norm(\dd)?$", type(module).__name__, re.IGNORECASE) is not None
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


def _refuse_own_behaviour(module: nn.Module) -> None:
    if parametrize.is_parametrized(module):
        raise _Unfit("it is parametrised")
    if "forward" in module.__dict__:
        raise _Unfit("its forward is replaced")
    if any(module.__dict__.get(hooks) for hooks in _STATE_HOOKS):
        raise _Unfit("it has state-dict hooks")


def _replacement(module: nn.Module, to: str, options: _Options) -> nn.Module:
    _refuse_own_behaviour(module)
    kind = type(module)
    if to == "layer_norm_rnn":
        return _recurrent(module, options)
    if kind in _BATCH + _CHANNEL:
        return _channels(module, to, options)
    row = _row_of(module)
    if to == "none":
        return nn.Identity()
    if to == "planish":
        if kind.__module__ == norms.__name__:
            raise _Unfit("it is this library's already")
        return _rms(row, options) if row.is_rms else _layer(row, options)
    if to == "layer":
        result: nn.Module = _layer(row, options)
    elif to == "rms":
        result = _rms(row, options)
    else:
        eps = _eps(row.eps, options, 1e-5)
        if to == "simple":
            result = norms.LayerNormSimple(row.shape, eps)
        elif to.startswith("detach"):
            result = norms.DetachNorm(row.shape, to != "detach_std", to != "detach_mean", eps)
        else:
            if to == "ada_as_coded" and math.prod(row.shape) < 2:
                raise _Unfit("rows of one number have no unbiased deviation")
            result = norms.AdaNorm(row.shape, options.C, options.k, to == "ada_as_coded", eps)
    if kind is type(result) and module.extra_repr() == result.extra_repr():
        raise _Unfit("it is one already")
    return result


def _refuse_more(module: nn.Module) -> None:
    known = {"weight", "bias"}
    if {name for name, _ in module.named_parameters()} - known or list(module.children()):
        raise _Unfit("it holds more than a norm's parameters")


def _row_of(module: Any) -> _Row:
    kind = type(module)
    if kind in (nn.LayerNorm, norms.LayerNorm):
        _refuse_more(module)
        weight, bias = module.weight, module.bias
        return _Row(
            module.normalized_shape, module.eps, weight is not None, bias is not None, weight, bias
        )
    if kind in (nn.RMSNorm, norms.RMSNorm):
        _refuse_more(module)
        weight = module.weight
        affine = weight is not None
        return _Row(module.normalized_shape, module.eps, affine, affine, weight, is_rms=True)
    if kind in _BARE:
        return _Row(module.normalized_shape, module.eps, affine=True, biased=True)
    for base, name in (
        (nn.LayerNorm, "LayerNorm"),
        (nn.RMSNorm, "RMSNorm"),
        (nn.modules.batchnorm._BatchNorm, "BatchNorm"),
    ):
        if isinstance(module, base):
            raise _Unfit(f"it is a {name} of another class")
    row = _rms_by_trial(module)
    if row is None:
        raise _Unfit("it is of a class that is not known, and no RMSNorm")
    return row


def _rms_by_trial(module: nn.Module) -> _Row | None:
    """The RMSNorm that module is, whatever its class: models bring their own, and some that look
    the same add 1 to the weight, or place eps elsewhere. So it is tried, with a weight of our own.
    """
    parameters = dict(module.named_parameters())
    eps = next(
        (
            module.__dict__[name]
            for name in ("variance_epsilon", "eps", "epsilon")
            if isinstance(module.__dict__.get(name), float)
        ),
        None,
    )
    if set(parameters) != {"weight"} or [*module.named_buffers(), *module.named_children()]:
        return None
    weight = parameters["weight"]
    if weight.dim() != 1 or weight.is_meta or eps is None or not (math.isfinite(eps) and eps >= 0):
        return None
    generator = torch.Generator().manual_seed(0)
    cols = weight.numel()
    # The last two rows are where eps counts.
    scale = torch.tensor([1.0, 10.0, 1.0, 0.3]) * torch.tensor([1.0, 1.0] + [eps**0.5] * 2)
    x = (torch.randn(4, cols, generator=generator) * scale[:, None]).to(weight.device)
    trial = (torch.rand(cols, generator=generator) + 0.5).to(weight.device)
    bare = copy.copy(module)
    bare.__dict__["_parameters"] = {"weight": nn.Parameter(trial, requires_grad=False)}
    expected = trial.double() * x.double() / (x.double().square().mean(-1, True) + eps).sqrt()
    try:
        with torch.no_grad():
            y = type(module).forward(bare, x)
            # float32 rounds at 6e-8; any other formula is off by far more than 1e-4.
            same = torch.allclose(y.double(), expected, rtol=1e-4, atol=1e-6)
    except Exception:  # whatever a class of somebody's own may raise, it is no RMSNorm
        return None
    return _Row((cols,), eps, True, True, weight, is_rms=True) if same else None


def _eps(own: float | None, options: _Options, default: float) -> float:
    if options.eps is not None:
        return options.eps
    return default if own is None else own


def _vector(row: _Row, fill: float, options: _Options) -> nn.Parameter:
    like = options.like if row.weight is None else row.weight
    return nn.Parameter(torch.full(row.shape, fill, dtype=like.dtype, device=like.device))


def _put(module: nn.Module, **tensors: Tensor | None) -> None:
    """Gives module these very parameters and buffers, in place of its own on the meta device."""
    for name, tensor in tensors.items():
        if isinstance(tensor, nn.Parameter):
            module._parameters[name] = tensor
        else:
            module._buffers[name] = tensor


def _layer(row: _Row, options: _Options) -> nn.Module:
    eps = _eps(row.eps, options, 1e-5)
    after = norms.LayerNorm(row.shape, eps, row.affine, row.biased, device="meta")
    if row.affine:
        _put(after, weight=_vector(row, 1, options) if row.weight is None else row.weight)
    if row.affine and row.biased:
        _put(after, bias=_vector(row, 0, options) if row.bias is None else row.bias)
    return after


def _rms(row: _Row, options: _Options) -> nn.Module:
    eps = row.eps if options.eps is None else options.eps
    after = norms.RMSNorm(row.shape, eps, row.affine, device="meta")
    if row.affine:
        _put(after, weight=_vector(row, 1, options) if row.weight is None else row.weight)
    return after


def _channels(module: nn.Module, to: str, options: _Options) -> nn.Module:
    if to == "none":
        return nn.Identity()
    if to not in ("planish", "layer"):
        raise _Unfit(f'it normalises channels, "{to}" rows')
    if isinstance(module, _CHANNEL) or to == "planish" and isinstance(module, norms._BatchNorm):
        raise _Unfit("it is this library's already")
    _refuse_more(module)
    assert isinstance(module, nn.modules.batchnorm._BatchNorm)
    eps = _eps(module.eps, options, 1e-5)
    biased = module.bias is not None
    flat = isinstance(module, nn.BatchNorm1d)
    after: nn.Module
    if to == "layer":
        layer = norms.LayerNorm1d if flat else norms.LayerNorm2d
        after = layer(module.num_features, eps, module.affine, biased, device="meta")
    else:
        batch = norms.BatchNorm1d if flat else norms.BatchNorm2d
        after = batch(
            module.num_features,
            eps,
            module.momentum,
            module.affine,
            module.track_running_stats,
            device="meta",
            bias=biased,
        )
        _put(after, **module._buffers)
    if module.affine:
        _put(after, weight=module.weight)
    if biased:
        _put(after, bias=module.bias)
    return after


def _recurrent(module: nn.Module, options: _Options) -> nn.Module:
    target = _RECURRENT.get(type(module))
    if target is None:
        raise _Unfit("it is a recurrent layer of another class")
    assert isinstance(module, nn.RNNBase)
    if module.proj_size > 0:
        raise _Unfit("there is no proj_size")
    own = dict(module.named_parameters())
    arguments: dict[str, Any] = {"eps": _eps(None, options, 1e-5), "device": "meta"}
    if options.variant is not None:
        arguments["variant"] = options.variant
    if isinstance(module, nn.RNN):
        arguments["nonlinearity"] = module.nonlinearity
    with warnings.catch_warnings():  # of dropout with one layer, as nn.LSTM has warned before
        warnings.simplefilter("ignore")
        after = target(
            module.input_size,
            module.hidden_size,
            module.num_layers,
            bias=module.bias,
            batch_first=module.batch_first,
            dropout=module.dropout,
            bidirectional=module.bidirectional,
            **arguments,
        )
    like = own["weight_ih_l0"]
    wanted = dict(after.named_parameters())
    for name, parameter in wanted.items():
        hidden = name.replace("bias_ih", "bias_hh")
        if name in own and (hidden == name or hidden in wanted):
            _put(after, **{name: own[name]})
        elif name in own:  # one bias in the place of two
            both = (own[name] + own[hidden]).detach()
            _put(after, **{name: nn.Parameter(both, own[name].requires_grad)})
        else:
            fill = 1.0 if "_weight" in name else 0.0
            new = torch.full(parameter.shape, fill, dtype=like.dtype, device=like.device)
            _put(after, **{name: nn.Parameter(new)})
    return after


def _leave_fast_path(model: nn.Module, swapped: set[nn.Module]) -> list[str]:
    """Keeps torch.nn's encoder layers from computing norms themselves, as they do in evaluation."""
    layers = {
        layer
        for layer in model.modules()
        if isinstance(layer, nn.TransformerEncoderLayer)
        and not swapped.isdisjoint((layer.norm1, layer.norm2))
    }
    if not any(layer.activation_relu_or_gelu for layer in layers):
        return []
    for layer in layers:
        layer.activation_relu_or_gelu = 0  # one of the conditions of the path; else read by nobody
    for encoder in model.modules():
        if isinstance(encoder, nn.TransformerEncoder) and not layers.isdisjoint(encoder.layers):
            encoder.use_nested_tensor = False  # the slow path takes no nested tensors
    return [
        f"the fast path of {len(layers)} TransformerEncoderLayer is off: it bypasses their norms"
    ]
