"""Judges whether an unknown class is an RMSNorm.

Models bring their own classes. Some compute RMSNorm; others look the same but also add a residual,
or do something else for some shapes or values. Calls cannot show that a class is an RMSNorm for
every x, so its code is read as well. A module is replaced if

1. it holds one ``weight`` vector, one float, which is eps, and no state beyond these,
2. its class has ``forward(self, x)`` and no further method, except private ones that forward uses,
3. the source of forward is the formula ``weight * x / sqrt(mean(x^2) + eps)``, or that with ``1 +
   weight``, and its conditions depend only on constants of the module or on types
   (``formula.py``),
4. calls with many inputs give the values, types and gradients of RMSNorm (``trial.py``).

Everything else is left, with the reason: what is not understood could be a difference.
"""

import inspect
import types
from dataclasses import dataclass
from typing import Any

from torch import nn

from planish._convert import formula, trial
from planish._convert.checks import MARKS, bases_of, check_parameters, is_constant
from planish._convert.report import Unfit

__all__ = ["Found", "Verdicts"]

# Members of a class that change nothing of what a model sees of its modules.
_HARMLESS = {
    "__annotate__", "__annotate_func__", "__annotations__", "__annotations_cache__",
    "__conditional_annotations__", "__constants__", "__dict__", "__doc__", "__firstlineno__",
    "__init__", "__module__", "__qualname__", "__repr__", "__static_attributes__", "__weakref__",
    "extra_repr", "forward",
} | MARKS  # fmt: skip


class Verdicts:
    """Judges modules, each class once per width, type and settings."""

    def __init__(self) -> None:
        self._sources = formula.Sources()
        self._classes: dict[type[nn.Module], str | None] = {}
        # The result of _judge_calls, or the reason.
        self._calls: dict[Any, tuple[float, bool, bool] | str] = {}

    def rms(self, module: nn.Module) -> "Found":
        """Returns the RMSNorm that module is. Raises Unfit if it is none."""
        try:
            return self._judge(module)
        except Unfit as unfit:
            raise Unfit(f"unknown class, not judged to be an RMSNorm: {unfit}") from None

    def _judge(self, module: nn.Module) -> "Found":
        kind = type(module)
        weight = _weight_of(module)
        if kind not in self._classes:
            self._classes[kind] = _reason(_check_class, kind, self._sources)
        reason = self._classes[kind]
        if reason is not None:
            raise Unfit(reason)
        settings, eps = _settings_of(module)
        # Settings are hashable. Their types tell True from 1.
        by_name = tuple((name, type(value), value) for name, value in sorted(settings.items()))
        key = (kind, by_name, weight.numel(), weight.dtype, weight.device)
        if key not in self._calls:
            try:
                self._calls[key] = _judge_calls(kind, settings, eps, weight, self._sources)
            except Exception as error:
                self._calls[key] = _text(error)
        result = self._calls[key]
        if isinstance(result, str):
            raise Unfit(result)
        return Found(weight, eps, *result)


@dataclass(frozen=True)
class Found:
    """An RMSNorm."""

    weight: nn.Parameter
    eps: float
    offset: float  #: added to the weight
    is_weight_typed: bool  #: results have the type of a 16-bit weight
    casts: bool  #: rounds before the product with the weight


def _reason(check: Any, *arguments: Any) -> str | None:
    """Returns the reason why check fails, or None. An unknown class can raise anything."""
    try:
        check(*arguments)
    except Exception as error:
        return _text(error)
    return None


def _text(error: Exception) -> str:
    if isinstance(error, Unfit):
        return str(error)
    return f"it raises {type(error).__name__}, {error}".splitlines()[0]


# Members of the class.


def _check_class(kind: type[nn.Module], sources: formula.Sources) -> None:
    """Raises Unfit if the class has members that RMSNorm does not have, or another forward."""
    if type(kind) is not type:
        raise Unfit(f"its class is a {type(kind).__name__}")
    for base in bases_of(kind):
        if base.__module__.split(".")[0] in ("torch", "planish"):
            raise Unfit(f"it is derived from {base.__name__}")
        for name, value in vars(base).items():
            if name not in _HARMLESS:
                _check_member(name, value, sources)
    forward = inspect.getattr_static(kind, "forward")
    if not isinstance(forward, types.FunctionType):
        raise Unfit("its forward is not a Python function")
    parameters = list(inspect.signature(forward, follow_wrapped=False).parameters.values())[1:]
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if not parameters or parameters[0].kind not in positional:
        raise Unfit("its forward does not take one argument")
    further = [parameter.name for parameter in parameters[1:]]
    if further or parameters[0].default is not inspect.Parameter.empty:
        raise Unfit(f"its forward also takes {', '.join(further) or 'no argument'}")


def _check_member(name: str, value: Any, sources: formula.Sources) -> None:
    if hasattr(nn.Module, name) or name.startswith("__"):
        raise Unfit(f"it has its own {name}")
    if name == "reset_parameters" and isinstance(value, types.FunctionType):
        if formula.initial_weight(value, sources) is None:
            raise Unfit("its reset_parameters does more than set the weight to 0 or 1")
    elif isinstance(value, property):
        if not name.startswith("_"):
            raise Unfit(f"it also has the property {name}")
    elif isinstance(value, (types.FunctionType, staticmethod)):
        if not name.startswith("_"):
            raise Unfit(f"it also has the method {name}")
    elif not is_constant(value):
        raise Unfit(f"its class also has {name}, a {type(value).__name__}")


def _judge_calls(
    kind: type[nn.Module],
    settings: dict[str, Any],
    eps: float,
    weight: nn.Parameter,
    sources: formula.Sources,
) -> tuple[float, bool, bool]:
    """Returns what forward adds to the weight, if results have the type of a 16-bit weight, and if
    it rounds before the product with the weight.

    Raises Unfit if forward is not RMSNorm, or if the class has methods beside it.
    """
    used, offset = formula.check_formula(kind, settings, eps, weight.numel(), sources)
    reset = inspect.getattr_static(kind, "reset_parameters", None)
    if isinstance(reset, types.FunctionType):
        initial = formula.initial_weight(reset, sources)
        if initial != 1 - offset:
            raise Unfit(f"its reset_parameters sets the weight to {initial:g}")
    for base in bases_of(kind):
        for name, value in vars(base).items():
            is_method = isinstance(value, (types.FunctionType, property, staticmethod))
            if is_method and name not in _HARMLESS | used | {"reset_parameters"}:
                raise Unfit(f"it also has {name}, which its forward does not use")
    return offset, *trial.check_outputs(kind, settings, eps, offset, weight)


# Contents of the module.


def _weight_of(module: nn.Module) -> nn.Parameter:
    held = [*module._parameters, *module._buffers, *module._modules]
    if held != [*module._parameters] or held != ["weight"]:
        what = ", ".join(held) if module._parameters else "no parameter"
        raise Unfit(f"it holds {what}, an RMSNorm one weight")
    check_parameters(module, held)
    weight = module._parameters["weight"]
    if weight is None or weight.dim() != 1 or weight.numel() == 0:
        raise Unfit("its weight is not a vector")
    if weight.numel() == 1:
        raise Unfit("its weight has one element, which can scale rows of any width")
    assert isinstance(weight, nn.Parameter)
    return weight


def _settings_of(module: nn.Module) -> tuple[dict[str, Any], float]:
    """Returns the attributes of module, and its eps, the only float among them."""
    plain = vars(nn.Module())
    settings = {name: value for name, value in vars(module).items() if name not in plain}
    floats = []
    for name, value in settings.items():
        kind = type(value)
        if kind is float:
            floats.append(name)
        elif not is_constant(value):
            raise Unfit(f"its attribute {name} is of type {kind.__name__}")
    if len(floats) != 1:
        raise Unfit(f"its eps can be any of {', '.join(floats)}" if floats else "it has no eps")
    eps = settings[floats[0]]
    if not 0 <= eps < 1:
        raise Unfit(f"its {floats[0]} is {eps}")
    return settings, eps
