"""Judges whether a class that is not known is an RMSNorm.

Models bring their own classes. Some compute RMSNorm; others look the same but also add a residual,
multiply with a gate or with 1 + weight, normalize groups, clamp, or round elsewhere. A class is
accepted only if reading its code and calling it with many inputs shows no difference to RMSNorm.
"""

import builtins
import dis
import inspect
import math
import types
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from planish._convert.checks import check_parameters
from planish._convert.report import Unfit

__all__ = ["Verdicts"]

# Wider rows are not tried: the trial would need too much memory.
_MAX_COLS = 1 << 17
# Wider rows are not tried with a second dimension of the same size.
_MAX_SQUARE = 1 << 10

# Methods of nn.Module that a class can define without a change of what callers see.
_HARMLESS = {"__annotate__", "__annotate_func__", "__init__", "__repr__", "extra_repr", "forward"}
_METHODS = (classmethod, property, staticmethod)
_BUILTINS = {
    "AssertionError", "IndexError", "NotImplementedError", "RuntimeError", "TypeError",
    "ValueError", "abs", "all", "any", "bool", "enumerate", "float", "getattr", "hasattr", "int",
    "isinstance", "len", "list", "max", "min", "pow", "range", "reversed", "round", "slice", "str",
    "sum", "super", "tuple", "type", "zip",
}  # fmt: skip
_CONSTANTS = (bool, int, float, str, torch.dtype, torch.device)
_MODULES = ("torch", "math", "typing")
# State that is not the module's, of which a trial sees one value, and random numbers.
_STATE = {
    "are_deterministic_algorithms_enabled", "backends", "bernoulli", "bernoulli_", "cuda",
    "device_count", "dropout", "environ", "get_default_device", "get_default_dtype",
    "get_num_threads", "is_autocast_enabled", "is_available", "is_compiling", "is_cuda",
    "is_dynamo_compiling", "is_scripting", "is_tracing", "manual_seed", "multinomial", "normal",
    "normal_", "rand", "rand_like", "randint", "randn", "randn_like", "randperm",
    "set_default_dtype", "set_grad_enabled", "uniform_",
}  # fmt: skip
_STORES = {"DELETE_ATTR", "DELETE_GLOBAL", "STORE_ATTR", "STORE_GLOBAL"}

# float32 rounds at 6e-8; sums of 1e5 squares and a few operations are well within 2e-5.
_FLOAT = 2e-5
# Of gradients, relative to the largest, at least 1: their sums cancel.
_GRADIENT = 1e-4


class Verdicts:
    """Judges modules, each class once per width, type and settings."""

    def __init__(self) -> None:
        self._code: dict[type[nn.Module], str | None] = {}
        self._trials: dict[Any, str | None] = {}

    def rms(self, module: nn.Module) -> tuple[nn.Parameter, float]:
        """Returns the weight and eps of the RMSNorm that module is. Raises Unfit if it is none."""
        try:
            return self._judge(module)
        except Unfit as unfit:
            raise Unfit(f"unknown class, not judged to be an RMSNorm: {unfit}") from None

    def _judge(self, module: nn.Module) -> tuple[nn.Parameter, float]:
        kind = type(module)
        weight = _weight_of(module)
        if kind not in self._code:
            self._code[kind] = _reason(_check_code, kind)
        reason = self._code[kind]
        if reason is None:
            settings, eps = _settings_of(module, weight.numel())
            # Settings are hashable. Their types tell True from 1.
            by_name = tuple((name, type(value), value) for name, value in sorted(settings.items()))
            key = (kind, by_name, weight.numel(), weight.dtype, weight.device)
            if key not in self._trials:
                self._trials[key] = _reason(_check_outputs, kind, settings, eps, weight)
            reason = self._trials[key]
        if reason is not None:
            raise Unfit(reason)
        return weight, eps


def _reason(check: Any, *arguments: Any) -> str | None:
    """Returns why check fails, or None. A class that is not known can raise anything."""
    try:
        check(*arguments)
    except Unfit as unfit:
        return str(unfit)
    except Exception as error:
        return f"it raises {type(error).__name__}, {error}".splitlines()[0]
    return None


# What the class says.


def _bases(kind: type) -> list[type]:
    return [base for base in kind.__mro__ if base not in (nn.Module, object)]


def _check_code(kind: type[nn.Module]) -> None:
    """Raises Unfit if the code of a class shows that calls can depend on more than x."""
    for base in _bases(kind):
        if base.__module__.split(".")[0] in ("torch", "planish"):
            raise Unfit(f"it is derived from {base.__name__}")
        for name, value in vars(base).items():
            own = callable(value) or isinstance(value, _METHODS)
            if own and name not in _HARMLESS and (hasattr(nn.Module, name) or name == "__del__"):
                raise Unfit(f"it has its own {name}")
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
    seen: set[types.CodeType] = set()
    for base in _bases(kind):
        _check_member(kind, vars(base).get("forward"), seen)


def _check_member(kind: type, member: Any, seen: set[types.CodeType]) -> None:
    """Checks a method or property of the class that forward uses."""
    if isinstance(member, (staticmethod, classmethod)):
        member = member.__func__
    if isinstance(member, property):
        member = member.fget
    if isinstance(member, types.FunctionType):
        _check_function(kind, member, seen)
    elif member is not None:
        raise Unfit("its forward reads an attribute of the class")


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _check_function(kind: type, function: types.FunctionType, seen: set[types.CodeType]) -> None:
    if function.__code__ in seen:
        return
    seen.add(function.__code__)
    for value in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
        if value is not None and not isinstance(value, _CONSTANTS):
            raise Unfit("its forward reads a default argument that can change")
    # Values that a decorator or an enclosing function holds. __class__ serves super().
    cells = zip(function.__code__.co_freevars, function.__closure__ or ())
    for name, cell in cells:
        if name != "__class__":
            _check_name(kind, name, cell.cell_contents, seen)
    for code in _codes(function.__code__):
        for instruction in dis.get_instructions(code):
            operation, name = instruction.opname, instruction.argval
            if operation in _STORES or (
                operation == "STORE_DEREF" and name in function.__code__.co_freevars
            ):
                raise Unfit("its forward stores into an attribute or a global")
            if operation == "IMPORT_NAME":
                raise Unfit(f"its forward imports {name}")
            if operation in ("LOAD_GLOBAL", "LOAD_NAME"):
                _check_global(kind, function, name, seen)
            elif operation in ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"):
                if name in _STATE:
                    raise Unfit(f"its forward uses {name}")
                for base in _bases(kind):
                    _check_member(kind, vars(base).get(name), seen)


def _check_global(
    kind: type, function: types.FunctionType, name: str, seen: set[types.CodeType]
) -> None:
    if name in function.__globals__:
        _check_name(kind, name, function.__globals__[name], seen)
    elif hasattr(builtins, name) and name not in _BUILTINS:
        raise Unfit(f"its forward calls {name}")


def _check_name(kind: type, name: str, value: Any, seen: set[types.CodeType]) -> None:
    """Checks a global, or a variable of an enclosing function, that forward reads."""
    if isinstance(value, types.ModuleType):
        home = value.__name__
    elif isinstance(value, (torch.dtype, types.BuiltinFunctionType)):
        home = getattr(value, "__module__", None) or "torch"
    elif isinstance(value, (type, types.FunctionType)):
        home = value.__module__ or ""
    else:
        raise Unfit(f"its forward reads the variable {name}")
    if home.split(".")[0] in _MODULES or name in _STATE:
        if name in _STATE:
            raise Unfit(f"its forward uses {name}")
    elif isinstance(value, types.FunctionType):
        _check_function(kind, value, seen)
    elif home != "builtins" or name not in _BUILTINS:
        raise Unfit(f"its forward uses {name}")


# What the module holds.


def _weight_of(module: nn.Module) -> nn.Parameter:
    held = [*module._parameters, *module._buffers, *module._modules]
    if held != [*module._parameters] or held != ["weight"]:
        what = ", ".join(held) if module._parameters else "no parameter"
        raise Unfit(f"it holds {what}, an RMSNorm one weight")
    check_parameters(module, held)
    weight = module._parameters["weight"]
    if weight is None or weight.dim() != 1 or weight.numel() == 0:
        raise Unfit("its weight is not a vector")
    assert isinstance(weight, nn.Parameter)
    return weight


def _settings_of(module: nn.Module, cols: int) -> tuple[dict[str, Any], float]:
    """Returns the attributes of module, and its eps, the only float among them."""
    plain = vars(nn.Module())
    settings = {name: value for name, value in vars(module).items() if name not in plain}
    numbers = []
    for name, value in settings.items():
        kind = type(value)
        if kind is float:
            numbers.append(name)
        elif kind in (int, tuple, torch.Size):
            if value not in (cols, (cols,), ()):
                raise Unfit(f"its attribute {name} is {value}")
        elif value is not None and kind not in _CONSTANTS:
            raise Unfit(f"its attribute {name} is of type {kind.__name__}")
    if len(numbers) != 1:
        raise Unfit(f"its eps can be any of {', '.join(numbers)}" if numbers else "it has no eps")
    eps = settings[numbers[0]]
    if not 0 <= eps < 1:
        raise Unfit(f"its {numbers[0]} is {eps}")
    return settings, eps


# What the class does.


class _Trial:
    """Calls of forward on a module that shares nothing with the one that is judged."""

    def __init__(
        self, kind: type[nn.Module], settings: dict[str, Any], eps: float, cols: int, device: Any
    ) -> None:
        self.kind, self.settings, self.eps, self.cols = kind, settings, eps, cols
        self.device = device
        self.generator = torch.Generator().manual_seed(0)

    def normal(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        x = torch.randn(shape, generator=self.generator, dtype=torch.float32, device="cpu")
        return x.to(self.device, dtype)

    def module(self, weight: Tensor, training: bool) -> nn.Module:
        module = object.__new__(self.kind)
        module.__dict__.update(vars(nn.Module()))
        module.__dict__.update(self.settings)
        module.__dict__["training"] = training
        module.__dict__["_parameters"] = {"weight": nn.Parameter(weight)}
        return module

    def expected(self, x: Tensor, weight: Tensor) -> Tensor:
        x, weight = x.double(), weight.double()
        return weight * x / (x.square().mean(-1, True) + self.eps).sqrt()

    def call(self, x: Tensor, weight: Tensor, training: bool, grad: bool) -> Tensor:
        """Returns forward(x), after checks that the call has no effect and gives one result."""
        given, kept = x.clone(), weight.clone()
        x = x.detach().requires_grad_(grad)
        module = self.module(weight, training)
        attributes = dict(module.__dict__)
        with torch.set_grad_enabled(grad):
            y = self.kind.forward(module, x)
            again = self.kind.forward(module, x)
        if type(y) is not Tensor or type(again) is not Tensor:
            raise Unfit("it does not give a tensor")
        if y.shape != x.shape:
            raise Unfit(f"it gives shape {list(y.shape)} for {list(x.shape)}")
        if y.requires_grad != grad:
            raise Unfit("its result has no gradient")
        if not torch.equal(y.nan_to_num(), again.nan_to_num()):
            raise Unfit("it gives two results for one input")
        same = torch.equal(given.nan_to_num(), x.nan_to_num()) and torch.equal(kept, weight)
        if not same or y.data_ptr() == x.data_ptr() != 0:
            raise Unfit("it writes to its input or its weight")
        if attributes.keys() != module.__dict__.keys() or any(
            module.__dict__[name] is not value for name, value in attributes.items()
        ):
            raise Unfit("it changes its attributes")
        return y.detach()

    def compare(
        self, x: Tensor, weight: Tensor, training: bool, grad: bool, where: str
    ) -> Tensor:
        """Raises Unfit where forward(x) is not RMSNorm's result. Returns forward(x)."""
        y = self.call(x, weight, training, grad)
        expected = self.expected(x, weight)
        coarse = max((torch.finfo(t.dtype) for t in (x, weight)), key=lambda limits: limits.eps)
        # A class can round to 16 bits after each of its six operations: 6 unit roundoffs, 3 eps.
        # Below tiny rounding is absolute; near max the result can overflow.
        tolerance = max(_FLOAT, 3 * coarse.eps)
        bound = tolerance * expected.abs() + coarse.tiny * (1 + weight.double().abs())
        wrong = ~((y.double() - expected).abs() <= bound) & (expected.abs() < coarse.max / 2)
        if bool(wrong.any()):
            raise Unfit(f"its result differs for {where}")
        if x.dtype == weight.dtype != y.dtype:
            raise Unfit(f"it gives {y.dtype} for x and weight of {x.dtype}")
        return y


def _check_outputs(
    kind: type[nn.Module], settings: dict[str, Any], eps: float, weight: nn.Parameter
) -> None:
    """Raises Unfit if forward differs from RMSNorm in a trial."""
    if weight.numel() > _MAX_COLS:
        raise Unfit(f"its rows are too wide for a trial, {weight.numel()}")
    device = torch.device("cpu") if weight.is_meta else weight.device
    trial = _Trial(kind, settings, eps, weight.numel(), device)
    of_gpu = [device] if device.type == "cuda" else []
    with (
        torch.inference_mode(False),
        torch.random.fork_rng(of_gpu),
        torch.autocast(device.type, enabled=False),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        for training in (False, True):
            for grad in (False, True):
                _try_values(trial, weight.dtype, training, grad)
                _try_shapes(trial, weight.dtype, training, grad)
                _try_types(trial, training, grad)
            _try_gradients(trial, training)
            _try_not_finite(trial, training)


def _weights(trial: _Trial, dtype: torch.dtype) -> dict[str, Tensor]:
    mixed = trial.normal(trial.cols, dtype=dtype)
    mixed[0] = 0
    large = 100 if dtype == torch.float16 else 1e4
    return {
        "a weight of both signs": mixed,
        "a weight of zeros": torch.zeros_like(mixed),
        "a large weight": mixed * large,
    }


def _rows(trial: _Trial, dtype: torch.dtype) -> dict[str, Tensor]:
    """Rows on which norms that look the same differ."""
    few = trial.normal(2, trial.cols).double()
    signs = torch.tensor([[1.0], [-1.0]], dtype=torch.float64, device=trial.device)
    spike = torch.zeros_like(few)
    spike[:, trial.cols // 2 :][:, :1] = 1e4 * signs
    rows = {
        "values around 1": few,
        "values around 1e4": 1e4 * few,
        "values around 1e-4": 1e-4 * few,
        "constant rows": (3 * signs).expand_as(few),
        "a single large element": spike,
        "a mean far from 0": few + 30,
    }
    if trial.eps > 0:
        rows["rows as small as eps"] = math.sqrt(trial.eps) * few
        rows["zeros"] = torch.zeros_like(few)
    if dtype != torch.float16:
        rows["values that float32 can just square"] = 1e18 / math.sqrt(trial.cols) * few
        rows["values around 1e-18"] = 1e-18 * few
    highest = torch.finfo(dtype).max
    return {name: x.clamp(-highest, highest).to(dtype) for name, x in rows.items()}


def _try_values(trial: _Trial, dtype: torch.dtype, training: bool, grad: bool) -> None:
    rows = _rows(trial, dtype)
    together = {"rows of different sizes": torch.cat(list(rows.values()))}
    for name, weight in _weights(trial, dtype).items():
        # Each on its own as well, but once: a class can look at the largest element of all rows.
        for what, x in (together if grad else rows | together).items():
            where = f"{what}, {name}, in {'training' if training else 'evaluation'}"
            trial.compare(x, weight, training, grad, where)


def _try_shapes(trial: _Trial, dtype: torch.dtype, training: bool, grad: bool) -> None:
    cols = trial.cols
    shapes = [(), (1,), (5,), (0,), (2, 3), (1, 7), (3, 1), (2, 3, 2), (2, 1, 3), (1, 2, 1, 2)]
    if cols <= _MAX_SQUARE:
        shapes += [(cols,)]
    if cols * cols <= _MAX_SQUARE:
        shapes += [(2, cols), (cols, 2), (cols, cols), (2, cols, 3), (2, 3, cols)]
    weight = _weights(trial, dtype)["a weight of both signs"]
    for shape in shapes:
        x = trial.normal(*shape, cols, dtype=dtype)
        where = f"shape {list(x.shape)}"
        trial.compare(x, weight, training, grad, where)
    x = trial.normal(cols, 3, 2, dtype=dtype).transpose(0, 2)
    trial.compare(x, weight, training, grad, "x that is not contiguous")


def _try_types(trial: _Trial, training: bool, grad: bool) -> None:
    """Models are cast, and some keep x or the weight in float32."""
    sixteen = (torch.bfloat16, torch.float16)
    alike = [(dtype, dtype) for dtype in (torch.float32, *sixteen)]
    mixed = [(torch.float32, dtype) for dtype in sixteen]
    for of_x, of_weight in alike + mixed + [(dtype, torch.float32) for dtype in sixteen]:
        x = trial.normal(2, 3, trial.cols, dtype=of_x)
        weight = trial.normal(trial.cols, dtype=of_weight)
        where = f"{of_x} x with a {of_weight} weight"
        y = trial.compare(x, weight, training, grad, where)
        # For 16-bit x and a float32 weight some RMSNorms give float32, torch.nn's gives 16 bits.
        if y.dtype != of_x and (of_weight, y.dtype) != (torch.float32, torch.float32):
            raise Unfit(f"it gives {y.dtype} for {where}")


def _try_gradients(trial: _Trial, training: bool) -> None:
    x, dy = trial.normal(2, 3, trial.cols), trial.normal(2, 3, trial.cols)
    weight = trial.normal(trial.cols)
    x64, weight64 = (t.double().requires_grad_() for t in (x, weight))
    with torch.enable_grad():
        module = trial.module(weight, training)
        y = trial.kind.forward(module, x.requires_grad_())
        got = torch.autograd.grad(y, (x, *module.parameters()), dy, allow_unused=True)
        expected = torch.autograd.grad(trial.expected(x64, weight64), (x64, weight64), dy.double())
    for name, a, b in zip(("x", "weight"), got, expected):
        bound = _GRADIENT * b.abs().max().clamp(min=1)
        if a is None or not bool(((a.double() - b).abs() <= bound).all()):
            raise Unfit(f"its gradient of {name} differs")


def _try_not_finite(trial: _Trial, training: bool) -> None:
    """NaN and infinity are not replaced by numbers, and stay in their row."""
    x = trial.normal(3, trial.cols)
    weight = trial.normal(trial.cols)
    whole = trial.call(x, weight, training, False)
    x[0, 0], x[2, 0] = math.nan, math.inf
    y = trial.call(x, weight, training, False)
    if not (y[0].isnan().all() and torch.equal(y[1], whole[1]) and not y[2].isfinite().all()):
        raise Unfit("it replaces values that are not finite")
