"""Calls the forward of a class with many inputs and compares the results with RMSNorm's.

Checks properties that the code does not show: rounding and types of results, and squares that
overflow or underflow.
"""

import itertools
import math
import warnings
from typing import Any

import torch
from torch import Tensor, nn

import planish.functional as ours
from planish._convert.checks import DTYPES
from planish._convert.report import Unfit

__all__ = ["check_outputs"]

# Wider rows are not tried: the trial would need too much memory.
_MAX_COLS = 1 << 17
# Wider rows are not tried with a second dimension of the same size.
_MAX_SQUARE = 1 << 10

# float32 rounds at 6e-8; sums of 1e5 squares and a few operations are well within 2e-5.
_FLOAT = 2e-5
# Tolerance of gradients relative to the largest, or to 1 if that is larger: their sums cancel.
_GRADIENT = 1e-4


class _Trial:
    """Calls of forward on a module that shares no state with the judged one."""

    def __init__(
        self,
        kind: type[nn.Module],
        settings: dict[str, Any],
        eps: float,
        offset: float,
        cols: int,
        device: Any,
    ) -> None:
        self.kind, self.settings, self.cols = kind, settings, cols
        self.eps, self.offset = eps, offset
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
        x, weight = x.double(), weight.double() + self.offset
        return weight * x / (x.square().mean(-1, True) + self.eps).sqrt()

    def call(self, x: Tensor, weight: Tensor, training: bool, grad: bool) -> Tensor:
        """Returns forward(x), after checks that the call has no effect and gives one result."""
        x_before, weight_before = x.clone(), weight.clone()
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
        same_x = torch.equal(x_before.nan_to_num(), x.nan_to_num())
        if not (same_x and torch.equal(weight_before, weight)) or y.data_ptr() == x.data_ptr() != 0:
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
        # Rounding is absolute for results below tiny. Results near max can overflow.
        tolerance = max(_FLOAT, 3 * coarse.eps)
        bound = tolerance * expected.abs() + coarse.tiny * (1 + weight.double().abs())
        wrong = ~((y.double() - expected).abs() <= bound) & (expected.abs() < coarse.max / 2)
        if bool(wrong.any()):
            raise Unfit(f"its result differs for {where}")
        if x.dtype == weight.dtype != y.dtype:
            raise Unfit(f"it gives {y.dtype} for x and weight of {x.dtype}")
        return y


def check_outputs(
    kind: type[nn.Module],
    settings: dict[str, Any],
    eps: float,
    offset: float,
    weight: nn.Parameter,
) -> tuple[bool, bool]:
    """Raises Unfit if forward differs from RMSNorm with weight + offset in a trial.

    Returns whether its results have the type of a 16-bit weight, not that of x, and whether it
    rounds 16-bit types before the product with the weight.
    """
    if weight.numel() > _MAX_COLS:
        raise Unfit(f"its rows are too wide for a trial, {weight.numel()}")
    device = torch.device("cpu") if weight.is_meta else weight.device
    trial = _Trial(kind, settings, eps, offset, weight.numel(), device)
    of_gpu = [device] if device.type == "cuda" else []
    with (
        torch.inference_mode(False),
        torch.random.fork_rng(of_gpu),
        torch.autocast(device.type, enabled=False),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        # The code depends on neither, as reading it shows: two of four combinations suffice.
        typed = []
        for mode in (False, True):
            _try_values(trial, weight.dtype, mode, mode)
            _try_shapes(trial, weight.dtype, mode, mode)
            typed.append(_try_types(trial, mode, mode))
            _try_gradients(trial, mode)
            _try_not_finite(trial, mode)
        if typed[0] != typed[1]:
            raise Unfit("the type of its result is another in training")
        return typed[0], _casts_before_weight(trial)


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
    """Returns rows for which similar norms have different results."""
    plain = trial.normal(2, trial.cols).double()
    signs = torch.tensor([[1.0], [-1.0]], dtype=torch.float64, device=trial.device)
    spike = torch.zeros_like(plain)
    spike[:, trial.cols // 2 :][:, :1] = 1e4 * signs
    rows = {
        "values around 1": plain,
        "values around 1e4": 1e4 * plain,
        "values around 1e-4": 1e-4 * plain,
        "constant rows": (3 * signs).expand_as(plain),
        "a single large element": spike,
        "a mean far from 0": plain + 30,
    }
    if trial.eps > 0:
        rows["rows as small as eps"] = math.sqrt(trial.eps) * plain
        rows["zeros"] = torch.zeros_like(plain)
    if dtype != torch.float16:
        rows["values that float32 can just square"] = 1e18 / math.sqrt(trial.cols) * plain
        rows["values around 1e-18"] = 1e-18 * plain
    highest = torch.finfo(dtype).max
    return {name: x.clamp(-highest, highest).to(dtype) for name, x in rows.items()}


def _try_values(trial: _Trial, dtype: torch.dtype, training: bool, grad: bool) -> None:
    rows = _rows(trial, dtype)
    mixed = {"rows of different sizes": torch.cat(list(rows.values()))}
    for name, weight in _weights(trial, dtype).items():
        # Also each separately, once: a class can depend on the largest element of all rows.
        for what, x in (mixed if grad else rows | mixed).items():
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


def _try_types(trial: _Trial, training: bool, grad: bool) -> bool:
    """Tries all pairs of types: some models have x or the weight in another type.

    Returns True if results have the type of a 16-bit weight.
    """
    is_typed = True
    reason = ""
    for of_x, of_weight in itertools.product(DTYPES, DTYPES):
        x = trial.normal(2, 3, trial.cols, dtype=of_x)
        weight = trial.normal(trial.cols, dtype=of_weight)
        where = f"{of_x} x with a {of_weight} weight"
        y = trial.compare(x, weight, training, grad, where)
        # RMSNorm returns the type of x. Some classes return the weight's type if it is wider, and
        # some if it has 16 bits.
        if y.dtype not in (of_x, torch.promote_types(of_x, of_weight)):
            reason = reason or f"it gives {y.dtype} for {where}"
        if of_weight in (torch.bfloat16, torch.float16):
            is_typed &= y.dtype == of_weight
        elif y.dtype not in (of_x, torch.promote_types(of_x, of_weight)):
            is_typed = False
    if reason and not is_typed:
        raise Unfit(reason)
    return bool(reason)


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


def _casts_before_weight(trial: _Trial) -> bool:
    """Returns which rounding of bfloat16 gives more of forward's results, to the bit."""
    x = trial.normal(max(8, 4096 // trial.cols), trial.cols, dtype=torch.bfloat16)
    weight = trial.normal(trial.cols, dtype=torch.bfloat16)
    y = trial.call(x, weight, False, False)

    def equal(cast: bool) -> int:
        other = ours.rms_norm(
            x, weight.shape, weight, trial.eps,
            weight_offset=trial.offset, cast_before_weight=cast,
        )  # fmt: skip
        return int((y == other).sum())

    return equal(True) > equal(False)


def _try_not_finite(trial: _Trial, training: bool) -> None:
    """Checks that NaN and infinity are not replaced, and stay in their row."""
    x = trial.normal(3, trial.cols)
    weight = trial.normal(trial.cols)
    whole = trial.call(x, weight, training, False)
    x[0, 0], x[2, 0] = math.nan, math.inf
    y = trial.call(x, weight, training, False)
    if not (y[0].isnan().all() and torch.equal(y[1], whole[1]) and not y[2].isfinite().all()):
        raise Unfit("it replaces values that are not finite")
