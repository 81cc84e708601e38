"""Checks that a module is nothing but an instance of its class.

A module that somebody patched, wrapped, compiled or sharded is left as it is: its replacement would
not have the patch. Each check raises Unfit with the reason.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from planish._convert.report import Unfit

__all__ = [
    "DTYPES",
    "MARKS",
    "bases_of",
    "check_class",
    "check_devices",
    "check_instance",
    "check_parameters",
    "further_attributes",
    "is_constant",
    "is_compiling",
    "is_sharding",
]

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)

# Attributes that the package `kernels` sets on classes that it replaces. Only it reads them.
MARKS = {"kernel_condition", "kernel_layer_name"}

_STATE_DICT_HOOKS = (
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)
_SHARDING = ("FullyShardedDataParallel", "FSDPModule")


def is_sharding(module: nn.Module) -> bool:
    """Returns True for FSDP, which keeps its own list of the modules that hold its parameters."""
    return any(base.__name__ in _SHARDING for base in type(module).__mro__)


def is_compiling(module: nn.Module) -> bool:
    """Returns True for torch.compile's wrapper, which calls the module that it was given."""
    return type(module).__module__.startswith("torch._dynamo.")


def check_instance(module: nn.Module) -> None:
    """Raises Unfit if module is parametrized, compiled, patched or not initialized."""
    if isinstance(module, torch.jit.ScriptModule):
        raise Unfit("it is compiled by torch.jit")
    if parametrize.is_parametrized(module):
        raise Unfit("it is parametrized")
    if module.__dict__.get("_compiled_call_impl") is not None:
        raise Unfit("it is compiled by torch.compile")
    for name in module.__dict__:
        if callable(getattr(type(module), name, None)):
            raise Unfit(f"its {name} is replaced")
    if any(p is not None and nn.parameter.is_lazy(p) for p in module._parameters.values()):
        raise Unfit("it is not initialized yet")


def check_class(kind: type[nn.Module]) -> None:
    """Raises Unfit if the forward of a class of torch.nn or of this library was replaced."""
    # The module of the code. Unlike __module__, functools.wraps does not copy it.
    home = getattr(kind.forward, "__globals__", {}).get("__name__", "")
    if not home.startswith(("torch.nn.modules.", "planish.")):
        raise Unfit(f"the forward of {kind.__name__} is replaced")


def check_devices(module: nn.Module) -> None:
    """Raises Unfit if a parameter is on a device that this library has no kernels for."""
    for parameter in module.parameters():
        if parameter.device.type not in ("cpu", "cuda", "meta"):
            raise Unfit(f"this library has no kernels for {parameter.device.type}")


def check_parameters(
    module: nn.Module, parameters: Iterable[str], buffers: Iterable[str] = ()
) -> None:
    """Raises Unfit unless module holds these parameters and buffers, and no state beyond them.

    Each can be None, else it must be a plain tensor of a floating-point type, a parameter where a
    parameter is expected. All parameters must have one type.
    """
    wanted, wanted_buffers = list(parameters), list(buffers)
    for name in wanted:
        if name not in module._parameters:
            raise Unfit(f"its {name} is not a parameter: a hook or a wrapper computes it")
        if name in module.__dict__ or hasattr(type(module), name):
            raise Unfit(f"its {name} is hidden by another attribute")
    held = (*module._parameters, *module._buffers, *module._modules)
    further = [name for name in held if name not in (*wanted, *wanted_buffers)]
    if further:
        raise Unfit(f"it also holds {', '.join(further)}")
    for name in wanted:
        _check_parameter(name, module._parameters[name])
    for name in wanted_buffers:
        buffer = module._buffers.get(name)
        if buffer is not None and type(buffer) is not Tensor:
            raise Unfit(f"its {name} is a {type(buffer).__name__}")
    types = {p.dtype for name in wanted if (p := module._parameters[name]) is not None}
    if len(types) > 1:
        raise Unfit(f"its parameters have {len(types)} types")
    if any(module.__dict__.get(hooks) for hooks in _STATE_DICT_HOOKS):
        raise Unfit("it has state-dict hooks")


def _check_parameter(name: str, parameter: Tensor | None) -> None:
    if parameter is None:
        return
    if type(parameter) is not nn.Parameter:
        raise Unfit(f"its {name} is a {type(parameter).__name__}, not a plain parameter")
    if getattr(parameter, "_fsdp_flattened", False):
        raise Unfit(f"its {name} is sharded")
    if parameter.dtype not in DTYPES or parameter.layout != torch.strided:
        layout = "" if parameter.layout == torch.strided else f", {parameter.layout}"
        raise Unfit(f"its {name} has type {parameter.dtype}{layout}")


def _attributes_of(kind: Callable[..., nn.Module]) -> frozenset[str]:
    """Returns the names of the attributes that instances of a known class have by themselves."""
    for arguments in ({"device": "meta"}, {}):
        for sizes in ((1,), (1, 1)):
            try:
                return frozenset(vars(kind(*sizes, **arguments)))
            except TypeError:
                continue
    return frozenset(vars(nn.Module()))


def bases_of(kind: type) -> list[type]:
    """Returns the class of a model and its bases, in the order in which members are looked up."""
    return [base for base in kind.__mro__ if base not in (nn.Module, object)]


def is_constant(value: Any) -> bool:
    """Returns True for a value that nobody can change."""
    if type(value) in (tuple, torch.Size):
        return all(map(is_constant, value))
    return value is None or type(value) in (bool, int, float, str, torch.dtype, torch.device)


def _constants_of(kind: type) -> dict[str, Any]:
    """Returns the constants of the class of a model."""
    return {
        name: value
        for base in reversed(bases_of(kind))
        for name, value in vars(base).items()
        if not name.startswith("__") and name not in MARKS and is_constant(value)
    }


def _is_none_in(name: str, *modules: nn.Module) -> bool:
    """Returns True if all modules have None of that name, an attribute or a parameter."""
    return all(getattr(module, name, 0) is None for module in modules)


def further_attributes(module: nn.Module, after: nn.Module, known: bool) -> dict[str, Any]:
    """Returns the attributes of module that the replacement takes over.

    If the class is known (torch.nn's or this library's), these are the attributes that its instances
    do not have by themselves. Otherwise these are all attributes, and the constants of the class.
    Raises Unfit if one of them has a name that means something else in the replacement.
    """
    own = _attributes_of(type(module)) if known else frozenset(vars(nn.Module()))
    # The replacement has the parameters and buffers, and its own value of a setting such as eps.
    further = {name: value for name, value in vars(module).items() if name not in own}
    if not known:
        eps = vars(after).get("eps")
        for name, value in further.items():
            if type(value) is float and eps is not None:
                further[name] = eps  # under its own name: eps is the only float of such a module
        further = _constants_of(type(module)) | further
    for name in list(further):
        if not known and (name in vars(after) or _is_none_in(name, module, after)):
            del further[name]
        elif isinstance(getattr(type(after), name, None), property):
            del further[name]  # such as _is_hf_initialized, which transformers sets on every module
        elif hasattr(after, name):
            raise Unfit(f"it has an attribute {name}, which {type(after).__name__} has too")
    return further
