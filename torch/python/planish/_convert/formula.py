"""Reads the forward of a class as a formula.

The source of ``forward``, and of the functions of the model that it calls, is evaluated with
symbols in place of x and the weight. The reader understands assignments to names, ``return``,
``if``, products, quotients, and the operations in _OPERATIONS. It understands a condition only if
nothing in it can change: constants of the module, ``is None``, and the types of x and the weight.
All pairs of types are evaluated, so the formula holds for every x.

Nothing of the class is called. Raises Unfit with the first expression that is not understood.
"""

import ast
import inspect
import itertools
import linecache
import operator
import types
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from planish._convert.checks import DTYPES, bases_of, is_constant
from planish._convert.report import Unfit

__all__ = ["Sources", "check_formula", "initial_weight"]

# Nested calls of functions. Deeper ones count as infinite recursion.
_MAX_DEPTH = 20

_SUM, _MEAN, _SQUARE = "sum(x^2)", "mean(x^2)", "(mean(x^2) + eps)"
_ONE_MORE = "(1 + weight)"
# Formulas of RMSNorm, each with the offset that it adds to the weight.
_RMS_NORMS = (
    ({"x": 1, "weight": 1, _SQUARE: -0.5}, 0.0),
    ({"x": 1, _ONE_MORE: 1, _SQUARE: -0.5}, 1.0),
)


class Sources:
    """The syntax trees of functions."""

    def __init__(self) -> None:
        self._files: dict[str, list[tuple[types.CodeType, ast.FunctionDef]]] = {}

    def of(self, function: types.FunctionType) -> ast.FunctionDef:
        """Raises Unfit if there is no source, or if it is not that of the function's code."""
        file = function.__code__.co_filename
        if file not in self._files:
            self._files[file] = self._read(file, function.__globals__)
        for code, node in self._files[file]:
            # Compares the bytecode: a file can have changed since it was imported.
            if code == function.__code__:
                return node
        raise Unfit(f"there is no source for the code of {function.__qualname__}")

    @staticmethod
    def _read(file: str, names: dict[str, Any]) -> list[tuple[types.CodeType, ast.FunctionDef]]:
        linecache.checkcache(file)
        text = "".join(linecache.getlines(file, names))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(text)
                code = compile(text, file, "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            return []
        nodes: dict[tuple[str, int], ast.FunctionDef] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
                nodes[node.name, first] = node
        codes = [code]
        for code in codes:  # grows while it is read
            codes.extend(one for one in code.co_consts if isinstance(one, types.CodeType))
        places = [(code, (code.co_name, code.co_firstlineno)) for code in codes]
        return [(code, nodes[place]) for code, place in places if place in nodes]


def check_formula(
    kind: type[nn.Module], settings: dict[str, Any], eps: float, cols: int, sources: Sources
) -> tuple[set[str], float]:
    """Raises Unfit unless forward computes RMSNorm.

    Returns the members of kind that it uses, and what it adds to the weight: 0 or 1.

    settings: the attributes of the module, which are constants.
    """
    used: set[str] = set()
    offsets: set[float] = set()
    for types_of in itertools.product(DTYPES, DTYPES):
        reader = _Reader(kind, settings, eps, cols, sources, *types_of)
        formula = reader.read()
        if not isinstance(formula, _Term):
            raise Unfit("its forward does not return one tensor")
        found = [offset for powers, offset in _RMS_NORMS if formula.powers == powers]
        if not found:
            raise Unfit(f"its forward computes {formula}, not RMSNorm")
        offsets.add(found[0])
        used |= reader.used
    if len(offsets) != 1:
        raise Unfit("its forward adds 1 to weights of some types only")
    return used, offsets.pop()


def initial_weight(function: types.FunctionType, sources: Sources) -> float | None:
    """Returns c if the function is a method that only sets self.weight to c, by a function of
    torch.nn.init; else None."""
    node = sources.of(function)
    body = [one for one in node.body if not _is_comment(one)]
    if len(body) != 1 or not isinstance(body[0], ast.Expr):
        return None
    name, _, rest = ast.unparse(body[0]).partition("(")
    first, *attributes = name.split(".")
    value = function.__globals__.get(first)
    for attribute in attributes:
        value = getattr(value, attribute, None)
    if rest != f"{ast.unparse(node.args)}.weight)":
        return None
    return 1.0 if value is nn.init.ones_ else 0.0 if value is nn.init.zeros_ else None


def _is_comment(statement: ast.stmt) -> bool:
    is_expression = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return is_expression or isinstance(statement, ast.Pass)


# The values of an evaluation: Python's constants, and these.


@dataclass(frozen=True)
class _Term:
    """A tensor: a product of powers of x, the weight, and sums of squares over the last dim."""

    powers: dict[str, float]
    dtype: torch.dtype

    def __str__(self) -> str:
        factors = (f"{name}^{p:g}" if p != 1 else name for name, p in self.powers.items())
        return " * ".join(factors)


@dataclass(frozen=True)
class _Call:
    """A callable with its first arguments."""

    target: str | types.FunctionType  # a name in _OPERATIONS, or a function of the model
    first: tuple[Any, ...] = ()


@dataclass(frozen=True)
class _Super:
    """The result of super() in a method of ``owner``."""

    owner: type


class _Self:
    """The module."""


class _Shape:
    """The shape of x, of which only the last size is known."""


class _SuperFunction:
    """The builtin super."""


_SELF, _SHAPE, _SUPER = _Self(), _Shape(), _SuperFunction()


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _is_fixed(value: Any) -> bool:
    return all(map(_is_fixed, value)) if type(value) is list else is_constant(value)


# Operations. Each returns None if it is not understood for its arguments.


def _power(x: Any, exponent: Any) -> _Term | None:
    if not isinstance(x, _Term) or not _is_number(exponent):
        return None
    # The root of x^2 is |x|, and x or the weight as divisors can be 0.
    if exponent != 2 and (exponent not in (-1, 0.5, -0.5) or x.powers.keys() != {_SQUARE}):
        return None
    return _Term({name: power * exponent for name, power in x.powers.items()}, x.dtype)


def _product(a: Any, b: Any) -> _Term | None:
    if not isinstance(a, _Term) or not isinstance(b, _Term):
        return None
    powers = {name: a.powers.get(name, 0) + b.powers.get(name, 0) for name in a.powers | b.powers}
    return _Term(powers, torch.promote_types(a.dtype, b.dtype))


class _Reader:
    """Evaluates the forward of a class for one type of x and one of the weight."""

    def __init__(
        self,
        kind: type[nn.Module],
        settings: dict[str, Any],
        eps: float,
        cols: int,
        sources: Sources,
        of_x: torch.dtype,
        of_weight: torch.dtype,
    ) -> None:
        self.kind, self.settings, self.eps, self.cols = kind, settings, eps, cols
        self.sources = sources
        self.x, self.weight = _Term({"x": 1}, of_x), _Term({"weight": 1}, of_weight)
        self.used: set[str] = set()
        self.depth = 0

    def read(self) -> Any:
        forward = inspect.getattr_static(self.kind, "forward")
        assert isinstance(forward, types.FunctionType)
        return self.run(forward, (_SELF, self.x), {})

    # Operations on tensors.

    def divide(self, a: Any, b: Any) -> _Term | None:
        if isinstance(a, _Term) and a.powers == {_SUM: 1} and _is_number(b) and b == self.cols:
            return _Term({_MEAN: 1}, a.dtype)
        inverse = _power(b, -1)
        return inverse if _is_number(a) and a == 1 else _product(a, inverse)

    def add(self, a: Any, b: Any) -> _Term | None:
        if _is_number(a):
            a, b = b, a
        if not isinstance(a, _Term) or not _is_number(b):
            return None
        if a.powers == {"weight": 1} and b == 1:
            return _Term({_ONE_MORE: 1}, a.dtype)
        return _Term({_SQUARE: 1}, a.dtype) if a.powers == {_MEAN: 1} and b == self.eps else None

    def reduce(
        self, name: str, x: Any, dim: Any = None, keepdim: Any = False, *, axis: Any = None
    ) -> _Term | None:
        over = dim if axis is None else axis
        if not isinstance(x, _Term) or x.powers != {"x": 2} or keepdim is not True:
            return None
        return _Term({name: 1}, x.dtype) if over in (-1, (-1,), [-1]) else None

    def mean(self, *arguments: Any, **keywords: Any) -> _Term | None:
        return self.reduce(_MEAN, *arguments, **keywords)

    def sum(self, *arguments: Any, **keywords: Any) -> _Term | None:
        return self.reduce(_SUM, *arguments, **keywords)

    def cast(self, x: Any, dtype: Any) -> _Term | None:
        if isinstance(dtype, _Term):
            dtype = dtype.dtype
        if not isinstance(x, _Term) or type(dtype) is not torch.dtype or dtype not in DTYPES:
            return None
        return _Term(x.powers, dtype)

    def size(self, x: Any, dim: Any) -> int | None:
        return self.cols if isinstance(x, _Term) and "x" in x.powers and dim == -1 else None

    def rms_norm(self, x: Any, shape: Any, weight: Any = None, eps: Any = None) -> _Term | None:
        if not isinstance(x, _Term) or x.powers != {"x": 1} or eps != self.eps:
            return None
        if not isinstance(shape, (tuple, list)) or tuple(shape) != (self.cols,):
            return None
        normalized = _Term({"x": 1, _SQUARE: -0.5}, x.dtype)
        product = normalized if weight is None else _product(normalized, weight)
        return None if product is None else _Term(product.powers, x.dtype)

    # Functions and statements.

    def run(
        self, function: types.FunctionType, arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> Any:
        names = _bind(function, arguments, keywords)
        node = self.sources.of(function)
        if self.depth == _MAX_DEPTH:
            raise Unfit("its forward calls itself")
        self.depth += 1
        result = self.block(node.body, _Scope(function, names))
        self.depth -= 1
        return None if result is None else result[0]

    def block(self, statements: list[ast.stmt], scope: "_Scope") -> tuple[Any] | None:
        """Returns the value of a return statement, in a tuple, or None if there is no return."""
        for statement in statements:
            result = self.statement(statement, scope)
            if result is not None:
                return result
        return None

    def statement(self, statement: ast.stmt, scope: "_Scope") -> tuple[Any] | None:
        match statement:
            case ast.Return(value=ast.expr() as value):
                return (self.value(value, scope),)
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ):
                scope.names[name] = self.value(value, scope)
            case ast.If(test=test, body=body, orelse=otherwise):
                return self.block(body if self.truth(test, scope) else otherwise, scope)
            case _ if not _is_comment(statement):
                raise _not_understood(statement)
        return None

    # Expressions.

    def value(self, node: ast.expr, scope: "_Scope") -> Any:
        result = _UNKNOWN
        match node:
            case ast.Constant(value=constant) if _is_fixed(constant):
                return constant
            case ast.Tuple(elts=elements):
                return tuple(self.value(one, scope) for one in elements)
            case ast.List(elts=elements):
                return [self.value(one, scope) for one in elements]
            case ast.Name():
                return self.name(node, scope)
            case ast.Attribute(value=of, attr=name):
                result = self.attribute(self.value(of, scope), name)
            case ast.Subscript(value=of, slice=at):
                result = self.item(self.value(of, scope), ast.unparse(at))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return not self.truth(operand, scope)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                number = self.value(operand, scope)
                result = -number if _is_number(number) else _UNKNOWN
            case ast.BinOp(left=left, op=op, right=right):
                result = self.binary(op, self.value(left, scope), self.value(right, scope))
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                result = self.compare(op, self.value(left, scope), self.value(right, scope))
            case ast.BoolOp(op=op, values=[*values, last]):
                for one in values:
                    if self.truth(one, scope) is isinstance(op, ast.Or):
                        return self.value(one, scope)
                return self.value(last, scope)
            case ast.IfExp(test=test, body=body, orelse=otherwise):
                return self.value(body if self.truth(test, scope) else otherwise, scope)
            case ast.Call(func=function, args=arguments, keywords=keywords):
                callee = self.value(function, scope)
                positional = tuple(self.value(one, scope) for one in arguments)
                named = {one.arg: self.value(one.value, scope) for one in keywords}
                result = self.call(callee, positional, named, scope)
        if result is _UNKNOWN:
            raise _not_understood(node)
        return result

    def truth(self, node: ast.expr, scope: "_Scope") -> bool:
        value = self.value(node, scope)
        if not _is_fixed(value):
            raise _not_understood(node)
        return bool(value)

    def binary(self, op: ast.operator, a: Any, b: Any) -> Any:
        if _is_number(a) and _is_number(b):
            for kind, function in _ARITHMETIC.items():
                if isinstance(op, kind):
                    return function(a, b)
        result = None
        match op:
            case ast.Mult():
                result = _product(a, b)
            case ast.Div():
                result = self.divide(a, b)
            case ast.Pow():
                result = _power(a, b)
            case ast.Add():
                result = self.add(a, b)
        return _UNKNOWN if result is None else result

    def compare(self, op: ast.cmpop, a: Any, b: Any) -> Any:
        if isinstance(op, (ast.Is, ast.IsNot)) and (a is None or b is None):
            return (a is b) == isinstance(op, ast.Is)  # a tensor is not None
        if _is_fixed(a) and _is_fixed(b):
            for kind, function in _COMPARISONS.items():
                if isinstance(op, kind):
                    return function(a, b)
        return _UNKNOWN

    def item(self, value: Any, at: str) -> Any:
        if value is _SHAPE:
            return {"-1": self.cols, "-1:": (self.cols,)}.get(at, _UNKNOWN)
        # The shape of the weight, which has one dimension.
        if value == (self.cols,) and at in ("0", "-1"):
            return self.cols
        return _UNKNOWN

    def name(self, node: ast.Name, scope: "_Scope") -> Any:
        name, function = node.id, scope.function
        code = function.__code__
        if name in scope.names:
            return scope.names[name]
        if name in code.co_freevars:
            cells = dict(zip(code.co_freevars, function.__closure__ or ()))
            value = cells[name].cell_contents
        elif name in code.co_varnames or name in code.co_cellvars:
            raise _not_understood(node)
        elif name in function.__globals__:
            value = function.__globals__[name]
        elif name == "super":
            return _SUPER
        else:
            raise _not_understood(node)
        # Only globals and variables of an enclosing function that are not meant to change.
        if isinstance(value, torch.dtype) and str(value) == f"torch.{name}":
            return value
        result = _outer(value)
        if result is _UNKNOWN:
            raise Unfit(f"its forward reads the variable {name}")
        return result

    def attribute(self, value: Any, name: str) -> Any:
        if value is _SELF:
            return self.member(name)
        if isinstance(value, _Super):
            later = self.kind.__mro__[self.kind.__mro__.index(value.owner) + 1 :]
            found = next((vars(base)[name] for base in later if name in vars(base)), None)
            return _Call(found, (_SELF,)) if isinstance(found, types.FunctionType) else _UNKNOWN
        if isinstance(value, types.ModuleType):
            attribute = getattr(value, name, None)
            return attribute if type(attribute) is torch.dtype else _outer(attribute)
        if isinstance(value, _Term):
            if name == "dtype":
                return value.dtype
            if name == "shape" and "x" in value.powers:
                return _SHAPE
            if name == "shape" and value.powers.keys() == {"weight"}:
                return (self.cols,)
            if name in _METHODS:
                return _Call(name, (value,))
        return _UNKNOWN

    def member(self, name: str) -> Any:
        if name == "weight":
            return self.weight
        found = next((vars(base)[name] for base in bases_of(self.kind) if name in vars(base)), None)
        self.used.add(name)
        if isinstance(found, property) and isinstance(found.fget, types.FunctionType):
            return self.run(found.fget, (_SELF,), {})
        if name in self.settings:
            return self.settings[name]
        if isinstance(found, types.FunctionType):
            return _Call(found, (_SELF,))
        if isinstance(found, staticmethod) and isinstance(found.__func__, types.FunctionType):
            return _Call(found.__func__)
        return _UNKNOWN

    def call(
        self, callee: Any, arguments: tuple[Any, ...], keywords: dict[Any, Any], scope: "_Scope"
    ) -> Any:
        if callee is _SUPER:
            owner = scope.owner()
            return _UNKNOWN if owner is None or arguments or keywords else _Super(owner)
        if not isinstance(callee, _Call) or None in keywords:
            return _UNKNOWN
        if isinstance(callee.target, types.FunctionType):
            return self.run(callee.target, (*callee.first, *arguments), keywords)
        try:
            result = _OPERATIONS[callee.target](self, *callee.first, *arguments, **keywords)
        except TypeError:  # other arguments than the operation has here
            result = None
        return _UNKNOWN if result is None else result


@dataclass
class _Scope:
    """The variables of a function during a call."""

    function: types.FunctionType
    names: dict[str, Any]

    def owner(self) -> type | None:
        """Returns the class in which the function is written."""
        code = self.function.__code__
        cells = dict(zip(code.co_freevars, self.function.__closure__ or ()))
        return cells["__class__"].cell_contents if "__class__" in cells else None


def _bind(
    function: types.FunctionType, arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> dict[str, Any]:
    """Returns the value of each argument. Not inspect.signature, which a function can replace."""
    code = function.__code__
    others = (
        inspect.CO_VARARGS | inspect.CO_VARKEYWORDS | inspect.CO_GENERATOR | inspect.CO_COROUTINE
    )
    positional = code.co_varnames[: code.co_argcount]
    every = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    given = dict(zip(positional, arguments))
    if code.co_flags & others or len(arguments) > len(positional) or given.keys() & keywords.keys():
        raise Unfit(f"the arguments of {function.__qualname__} are not understood")
    defaults = function.__defaults__ or ()
    names = dict(zip(positional[len(positional) - len(defaults) :], defaults))
    names |= function.__kwdefaults__ or {}
    for name, value in names.items():
        if not is_constant(value):
            raise Unfit(f"the default of {name} can change")
    names |= given | keywords
    if names.keys() != set(every):
        raise Unfit(f"the arguments of {function.__qualname__} are not understood")
    return names


def _outer(value: Any) -> Any:
    """Returns a module or function from outside of a class as a value, or _UNKNOWN."""
    if isinstance(value, types.ModuleType):
        return value if value in _PACKAGES else _UNKNOWN
    if isinstance(value, (types.FunctionType, types.BuiltinFunctionType)):
        for known, operation in _FUNCTIONS:
            if value is known:
                return _Call(operation)
    if isinstance(value, types.FunctionType):
        home = str(value.__globals__.get("__name__", "")).split(".")[0]
        return _UNKNOWN if home in ("torch", "planish") else _Call(value)
    return _UNKNOWN


def _not_understood(node: ast.AST) -> Unfit:
    text = ast.unparse(node).splitlines()[0]
    return Unfit(f"its forward is not understood: {text if len(text) < 80 else text[:76] + '...'}")


class _Unknown:
    """The result of an expression that is not understood."""


_UNKNOWN: Any = _Unknown()

_PACKAGES = (torch, nn, nn.functional)
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}

# Operations by their names in PyTorch. The first argument is the reader.
_OPERATIONS: dict[str, Callable[..., Any]] = {
    "add": _Reader.add,
    "bfloat16": lambda reader, x: reader.cast(x, torch.bfloat16),
    "div": _Reader.divide,
    "double": lambda reader, x: reader.cast(x, torch.float64),
    "float": lambda reader, x: reader.cast(x, torch.float32),
    "half": lambda reader, x: reader.cast(x, torch.float16),
    "mean": _Reader.mean,
    "mul": lambda reader, a, b: _product(a, b),
    "pow": lambda reader, x, exponent: _power(x, exponent),
    "rms_norm": _Reader.rms_norm,
    "rsqrt": lambda reader, x: _power(x, -0.5),
    "size": _Reader.size,
    "sqrt": lambda reader, x: _power(x, 0.5),
    "square": lambda reader, x: _power(x, 2),
    "sum": _Reader.sum,
    "to": _Reader.cast,
    "type": _Reader.cast,
    "type_as": _Reader.cast,
}
_METHODS = _OPERATIONS.keys() - {"rms_norm"}
_FUNCTIONS = [
    (getattr(torch, name), name)
    for name in ("add", "div", "mean", "mul", "pow", "rms_norm", "rsqrt", "sqrt", "square", "sum")
] + [(nn.functional.rms_norm, "rms_norm")]
