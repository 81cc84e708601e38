"""planish.convert replaces an unknown class only if it equals RMSNorm in every respect."""

import abc
import copy
import functools
import importlib.util
import inspect
import math
import random
import warnings

import planish
import planish.nn as pnn
import pytest
import torch
from planish._convert import formula, trial
from torch import nn

SCALE = 1.0


def normal(*shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


class Norm(nn.Module):
    """An RMSNorm with float32 statistics, as most models write it."""

    def __init__(self, cols=6, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(cols))
        self.eps = eps

    def forward(self, x):
        xhat = x.float() * torch.rsqrt(x.float().square().mean(-1, True) + self.eps)
        return self.weight * xhat.to(x.dtype)


def rms(x, eps=1e-6):
    return x * torch.rsqrt(x.square().mean(-1, True) + eps)


# RMSNorms written in other ways. All must be replaced.


class Native(Norm):
    def forward(self, x):
        return x / (x.pow(2).mean(dim=-1, keepdim=True) + self.eps).sqrt() * self.weight


class Steps(Norm):
    def _norm(self, x):
        return rms(x, self.eps)

    def forward(self, x):
        return (self._norm(x.float()) * self.weight.float()).type_as(x)


class Named(Norm):
    """Has descriptive attributes, and a helper that is a static method."""

    def __init__(self, cols=6):
        super().__init__(cols)
        self.hidden_size = cols
        self.normalized_shape = (cols,)
        self.with_scale = True
        self.mode = "rms"
        self.dtype_of_statistics = torch.float32
        del self.eps
        self.norm_eps = 1e-5

    @staticmethod
    def _root(x, eps):
        return torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)

    @property
    def _scale(self):
        return self.weight if self.with_scale else None

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        kind = hidden_states.dtype
        hidden_states = hidden_states.to(self.dtype_of_statistics)
        return self._scale * (hidden_states * self._root(hidden_states, self.norm_eps)).to(kind)


class Functional(Norm):
    def forward(self, x):
        return nn.functional.rms_norm(x, (x.shape[-1],), self.weight, self.eps)


class Sum(Norm):
    def forward(self, x):
        square = torch.pow(x, 2).sum(dim=-1, keepdim=True) / x.size(-1)
        return torch.mul(1 / torch.sqrt(torch.add(square, self.eps)), x) * self.weight


class Conditions(Norm):
    """Has conditions that depend only on the types of x and the weight."""

    def __init__(self):
        super().__init__()
        self.with_scale = True
        self.bias = None

    def forward(self, x):
        """Returns the norm."""
        kind: torch.dtype = x.dtype
        if self.weight is None or not self.with_scale or self.bias is not None:
            raise ValueError
        if kind != torch.float32 and kind not in (torch.float64,):
            x = x.float()
        elif kind == torch.float64:
            pass
        y = super().forward(x)
        return y if y.dtype is kind else y.to(dtype=kind)


def passing_on(forward):
    @functools.wraps(forward)
    def call(self, x):
        return forward(self, x)

    return call


class Decorated(Norm):
    forward = passing_on(Norm.forward)


class Lit(Norm):
    """An RMSNorm like LitGPT's, with more constants and a reset."""

    def __init__(self, add_unit_offset=False):
        super().__init__()
        self.add_unit_offset = add_unit_offset
        self.dim = -1
        self.shapes = ((6,), None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        dtype = x.dtype
        x = x.float()
        norm_x = torch.mean(x * x, dim=self.dim, keepdim=True)
        x_normed = x * torch.rsqrt(norm_x + self.eps)
        weight = (1 + self.weight) if self.add_unit_offset else self.weight
        return (x_normed * weight.float()).to(dtype=dtype)

    def reset_parameters(self) -> None:
        """Does the same as that of torch.nn.RMSNorm."""
        torch.nn.init.ones_(self.weight)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("cols", [2, 7, 64, 1500])
@pytest.mark.parametrize("kind", [Norm, Named, Functional])
def test_an_rmsnorm_of_any_width_and_type_is_replaced(kind, cols, dtype):
    model = nn.Sequential(kind(cols).to(dtype))
    eps = getattr(model[0], "norm_eps", 1e-6)
    report = planish.convert(model, "planish")
    assert report.left == []
    assert type(model[0]) is pnn.RMSNorm
    assert model[0].eps == eps


class OnePlusWeight(Norm):
    """An RMSNorm like Gemma's."""

    def forward(self, x):
        out = rms(x.float(), self.eps)
        return (out * (1.0 + self.weight.float())).type_as(x)

    def reset_parameters(self):
        torch.nn.init.zeros_(self.weight)


class RoundedOnePlusWeight(Norm):
    """Rounds 1 + weight to the type of the weight."""

    def forward(self, x):
        return rms(x.float(), self.eps).to(x.dtype) * (1 + self.weight)


@pytest.mark.parametrize(
    "kind",
    [Native, Steps, Sum, Conditions, Decorated, Lit, OnePlusWeight, RoundedOnePlusWeight],
)
def test_rmsnorms_written_in_other_ways_are_replaced(kind):
    model = nn.Sequential(kind())
    assert planish.convert(model, "planish").left == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_one_that_adds_1_to_the_weight_becomes_one_with_weight_offset(dtype):
    before = OnePlusWeight().to(dtype)
    with torch.no_grad():
        before.weight.copy_(torch.linspace(-1.5, 1.5, before.weight.numel()))
    after = nn.Sequential(copy.deepcopy(before))
    assert planish.convert(after, "planish").left == []
    assert (type(after[0]), after[0].weight_offset) == (pnn.RMSNorm, 1.0)
    assert torch.equal(after[0].weight, before.weight)
    x = torch.randn(5, before.weight.numel(), generator=torch.Generator().manual_seed(1)).to(dtype)
    # Gemma's computes in float32, also for float64; both round once to 16 bits.
    rounding = max(2e-6, torch.finfo(dtype).eps)
    torch.testing.assert_close(after(x), before(x), rtol=rounding, atol=rounding)
    assert planish.convert(after, "torch").left[0].reason == "torch.nn's RMSNorm has no weight_offset"
    assert planish.convert(after, "layer").left == []
    assert (type(after[0]), after[0].weight_offset) == (pnn.LayerNorm, 1.0)


def test_a_module_on_the_meta_device_is_judged_on_the_cpu():
    model = nn.Sequential(Norm().to("meta"))
    assert planish.convert(model, "planish").left == []
    assert type(model[0]) is pnn.RMSNorm
    assert model[0].weight.is_meta


# Classes that equal RMSNorm only with default arguments, for a few small rows, in one mode, or for
# one number of dimensions or one type. convert() must replace none of them.


class Residual(Norm):
    def forward(self, x, residual=None):
        return super().forward(x if residual is None else x + residual)


class Gate(Norm):
    def forward(self, x, gate=None):
        y = super().forward(x)
        return y if gate is None else y * nn.functional.silu(gate)


class KeywordOnly(Norm):
    def forward(self, x, *, scale=1.0):
        return super().forward(x) * scale


class AnyArguments(Norm):
    def forward(self, *arguments, **options):
        return super().forward(*arguments)


class Default(Norm):
    def forward(self, x=None):
        return super().forward(x)


class SecondDimension(Norm):
    """Normalizes dim 1, which is the last of 2-D inputs."""

    def forward(self, x):
        if x.dim() < 2:
            return super().forward(x)
        xhat = x * torch.rsqrt(x.square().mean(1, True) + self.eps)
        return xhat * self.weight.reshape(-1, *[1] * (x.dim() - 2)) if x.shape[1] == 6 else xhat


class AllButFirst(Norm):
    def forward(self, x):
        over = tuple(range(1, x.dim())) or (0,)
        return x * torch.rsqrt(x.square().mean(over, True) + self.eps) * self.weight


class FindsItsDimension(Norm):
    """Normalizes the first dimension that has the weight's size."""

    def forward(self, x):
        at = list(x.shape).index(self.weight.numel())
        shape = [1] * x.dim()
        shape[at] = -1
        xhat = x * torch.rsqrt(x.square().mean(at, True) + self.eps)
        return xhat * self.weight.reshape(shape)


class OnlyThreeDimensions(Norm):
    def forward(self, x):
        batch, time, cols = x.shape
        return super().forward(x.reshape(batch * time, cols)).reshape(x.shape)


class Training(Norm):
    def forward(self, x):
        y = super().forward(x)
        return y * 1.001 if self.training else y


class Dropout(Norm):
    def forward(self, x):
        return nn.functional.dropout(super().forward(x), 0.1, self.training)


class Noise(Norm):
    def forward(self, x):
        return super().forward(x) + torch.empty_like(x).exponential_() * 1e-3


class GradMode(Norm):
    def forward(self, x):
        y = super().forward(x)
        return y if torch.is_grad_enabled() else y.clamp(-1, 1)


class ClampsInput(Norm):
    def forward(self, x):
        return super().forward(x.clamp(-1e3, 1e3))


class ClampsHugeInput(Norm):
    def forward(self, x):
        return super().forward(x.clamp(-1e16, 1e16))


class ClampsOutput(Norm):
    def forward(self, x):
        return super().forward(x).clamp(-100, 100)


class ClampsRoot(Norm):
    def forward(self, x):
        root = (x.square().mean(-1, True) + self.eps).sqrt()
        return x / root.clamp(max=1e6) * self.weight


class ReplacesNaN(Norm):
    def forward(self, x):
        return super().forward(torch.nan_to_num(x, 0.0, 1e4, -1e4))


class ReplacesNaNAfterwards(Norm):
    def forward(self, x):
        return torch.nan_to_num(super().forward(x))


class TwoPlusWeight(Norm):
    def forward(self, x):
        return rms(x, self.eps) * (2 + self.weight)


class WeightMinusOne(Norm):
    def forward(self, x):
        return rms(x, self.eps) * (self.weight - 1)


class OnePlusSomeWeights(Norm):
    def forward(self, x):
        weight = self.weight if self.weight.dtype == torch.float64 else self.weight + 1
        return rms(x, self.eps) * weight


class PositiveWeight(Norm):
    def forward(self, x):
        return rms(x, self.eps) * self.weight.abs()


class CappedWeight(Norm):
    def forward(self, x):
        return rms(x, self.eps) * self.weight.clamp(max=50)


class EpsAfterRoot(Norm):
    def forward(self, x):
        return x / (x.square().mean(-1, True).sqrt() + self.eps) * self.weight


class EpsAsMinimum(Norm):
    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, True).clamp(min=self.eps)) * self.weight


class NoEps(Norm):
    def forward(self, x):
        return rms(x, 0.0) * self.weight


class SumOfSquares(Norm):
    def forward(self, x):
        return x * torch.rsqrt(x.square().sum(-1, True) + self.eps) * self.weight


class Centred(Norm):
    def forward(self, x):
        return rms(x - x.mean(-1, True), self.eps) * self.weight


class Groups(Norm):
    def __init__(self):
        super().__init__()
        self.group_size = 3

    def forward(self, x):
        groups = x.unflatten(-1, (-1, self.group_size))
        return rms(groups, self.eps).flatten(-2) * self.weight


class ScaledByNumber(Norm):
    def __init__(self):
        super().__init__()
        self.gain = 1.0


class HoldsList(Norm):
    def __init__(self):
        super().__init__()
        self.calls = []

    def forward(self, x):
        self.calls.append(x.shape)
        return super().forward(x)


class HoldsTensor(Norm):
    def __init__(self):
        super().__init__()
        self.mask = torch.ones(6)

    def forward(self, x):
        return super().forward(x) * self.mask


class HoldsBuffer(Norm):
    def __init__(self):
        super().__init__()
        self.register_buffer("mask", torch.ones(6))


class HoldsModule(Norm):
    def __init__(self):
        super().__init__()
        self.gate = nn.Identity()


class Counts(Norm):
    count = 0

    def forward(self, x):
        Counts.count += 1
        return super().forward(x)


class Remembers(Norm):
    def forward(self, x):
        self.last = x.shape
        return super().forward(x)


class ReadsGlobal(Norm):
    def forward(self, x):
        return super().forward(x) * SCALE


class ReadsGlobalInHelper(Norm):
    def _scale(self):
        return SCALE

    def forward(self, x):
        return super().forward(x) * self._scale()


class ReadsClass(Norm):
    factor = 1.0

    def forward(self, x):
        return super().forward(x) * self.factor


def closure():
    settings = {"scale": 1.0}

    class Closure(Norm):
        def forward(self, x):
            return super().forward(x) * settings["scale"]

    return Closure


Closure = closure()


class ReadsDefault(Norm):
    def _scale(self, table={"scale": 1.0}):
        return table["scale"]

    def forward(self, x):
        return super().forward(x) * self._scale()


class ReadsDefaultType(Norm):
    def forward(self, x):
        return super().forward(x).to(torch.get_default_dtype())


class ReadsAutocast(Norm):
    def forward(self, x):
        y = super().forward(x)
        return y.bfloat16() if torch.is_autocast_enabled("cpu") else y


class RandomModule(Norm):
    def forward(self, x):
        return super().forward(x) * (1 if random.random() < 2 else 0)


class Prints(Norm):
    def forward(self, x):
        print("forward")
        return super().forward(x)


class Imports(Norm):
    def forward(self, x):
        import os

        return super().forward(x) * float(os.environ.get("SCALE", "1"))


class InPlace(Norm):
    def forward(self, x):
        return x.mul_(torch.rsqrt(x.square().mean(-1, True) + self.eps)).mul_(self.weight)


class NormalizesItsWeight(Norm):
    def forward(self, x):
        self.weight.data.clamp_(-10, 10)
        return super().forward(x)


class NoGradient(Norm):
    @torch.no_grad()
    def forward(self, x):
        return super().forward(x)


class DetachedRoot(Norm):
    def forward(self, x):
        root = (x.square().mean(-1, True) + self.eps).sqrt().detach()
        return x / root * self.weight


class DetachedWeight(Norm):
    def forward(self, x):
        return rms(x, self.eps) * self.weight.detach()


class LowPrecision(Norm):
    def forward(self, x):
        return super().forward(x.bfloat16()).to(x.dtype)


class AlwaysFloat(Norm):
    def forward(self, x):
        return super().forward(x.float())


class TypeOfBfloat16Weight(Norm):
    """Like T5's for one of the 16-bit types only."""

    def forward(self, x):
        xhat = rms(x.float(), self.eps)
        if self.weight.dtype in [torch.bfloat16]:
            xhat = xhat.to(self.weight.dtype)
        return self.weight * xhat


class RefusesHalf(Norm):
    def forward(self, x):
        if x.dtype == torch.float16:
            raise TypeError("no half")
        return super().forward(x)


class ClampsHalf(Norm):
    def forward(self, x):
        return super().forward(x.clamp(-1, 1) if x.dtype == torch.float16 else x)


class Pair(Norm):
    def forward(self, x):
        return super().forward(x), x


class Flat(Norm):
    def forward(self, x):
        return super().forward(x).flatten(0, -2) if x.dim() > 2 else super().forward(x)


class Raises(Norm):
    def forward(self, x):
        raise RuntimeError("no")


class RaisesEmpty(Norm):
    def forward(self, x):
        raise RuntimeError("\n")


class OwnCall(Norm):
    def __call__(self, x):
        return super().__call__(x) * 2


class OwnGetattr(Norm):
    def __getattr__(self, name):
        value = super().__getattr__(name)
        return value * 2 if name == "weight" else value


class OwnStateDict(Norm):
    def _save_to_state_dict(self, destination, prefix, keep_vars):
        destination[prefix + "scale"] = self.weight


class FromLinear(nn.Linear):
    def __init__(self):
        nn.Module.__init__(self)
        self.weight = nn.Parameter(torch.ones(6))
        self.eps = 1e-6

    def forward(self, x):
        return rms(x, self.eps) * self.weight


class Scripted(Norm):
    pass


Scripted.forward = torch.compile(Norm.forward)


class Wrapped(Norm):
    pass


def doubling(forward):
    factor = [1.0]

    @functools.wraps(forward)
    def doubled(self, x):
        return forward(self, x) * factor[0]

    return doubled


Wrapped.forward = doubling(Norm.forward)


class MatrixWeight(Norm):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1, 6))


class TwoEps(Norm):
    def __init__(self):
        super().__init__()
        self.other_eps = 1e-6


class EpsIsTensor(Norm):
    def __init__(self):
        super().__init__()
        self.eps = torch.tensor(1e-6)


class EpsIsNegative(Norm):
    def __init__(self):
        super().__init__()
        self.eps = -1e-6


class EpsIsNaN(Norm):
    def __init__(self):
        super().__init__()
        self.eps = math.nan


class NoWeight(Norm):
    def forward(self, x):
        return rms(x, self.eps)


class LitWithOffset(Lit):
    def __init__(self):
        super().__init__(True)


class ScalarWeight(Norm):
    def __init__(self):
        super().__init__(1)


# Classes that equal RMSNorm unless a condition holds, which trials rarely meet.


class Float64(Norm):
    def forward(self, x):
        y = super().forward(x)
        if x.dtype == torch.float64:
            return y * 2
        return y


class BatchOfSeven(Norm):
    def forward(self, x):
        y = super().forward(x)
        return y * 2 if x.shape[0] == 7 else y


class ManyRows(Norm):
    def forward(self, x):
        y = super().forward(x)
        if x.shape[-2] > 512:
            return y * 2
        return y


class FiveDimensions(Norm):
    def forward(self, x):
        if x.ndim == 6:
            return x
        return super().forward(x)


class Elements(Norm):
    def forward(self, x):
        return super().forward(x if x.numel() != 6006 else x.exp())


class ValueOfX(Norm):
    def forward(self, x):
        if (x == 12.5).any():
            return x
        return super().forward(x)


class ValueOfXWithoutBranch(Norm):
    def forward(self, x):
        return torch.where(x == 12.5, x, super().forward(x))


class ValueOfXAsFactor(Norm):
    def forward(self, x):
        return super().forward(x) * (2 - (x == 12.5).to(x.dtype))


class ValueOfWeight(Norm):
    def forward(self, x):
        return super().forward(x if self.weight[0] != 12.5 else x.exp())


class Multiplied(Norm):
    def forward(self, x):
        return super().forward(x) * self.weight


class SmallTerm(Norm):
    def forward(self, x):
        return super().forward(x) + 1e-60 * x**9


class RequiresGrad(Norm):
    def forward(self, x):
        return super().forward(x) if not x.requires_grad or x.is_leaf else x


class TrainedWeight(Norm):
    def forward(self, x):
        return super().forward(x) if self.weight.requires_grad else x


class InferenceMode(Norm):
    def forward(self, x):
        return x if x.is_inference() else super().forward(x)


class OnCuda(Norm):
    def forward(self, x):
        return x if x.is_cuda else super().forward(x)


class Device(Norm):
    def forward(self, x):
        return super().forward(x) if x.device.type == "cpu" else x


class Contiguous(Norm):
    def forward(self, x):
        return super().forward(x) if x.is_contiguous() or x.dim() != 4 else x


class Strides(Norm):
    def forward(self, x):
        return super().forward(x) if x.stride(-1) != 12 else x


class TensorClass(Norm):
    def forward(self, x):
        return super().forward(x) if type(x) is torch.Tensor else x


class ModuleVariable(Norm):
    def forward(self, x):
        return super().forward(x) if SCALE == 1 else x


STATISTICS = torch.float32


class ModuleVariableOfType(Norm):
    def forward(self, x):
        return super().forward(x.to(STATISTICS)).to(x.dtype)


class Deterministic(Norm):
    def forward(self, x):
        return x if torch.are_deterministic_algorithms_enabled() else super().forward(x)


class Backends(Norm):
    def forward(self, x):
        return x if torch.backends.cudnn.benchmark else super().forward(x)


class Tries(Norm):
    def forward(self, x):
        try:
            return super().forward(x)
        except RuntimeError:
            return x


class Loops(Norm):
    def forward(self, x):
        y = super().forward(x)
        for _ in range(x.shape[0]):
            y = y * 1
        return y


class Loops2(Norm):
    def forward(self, x):
        while self.eps > 1:
            x = x.exp()
        return super().forward(x)


class WithBlock(Norm):
    def forward(self, x):
        with torch.autocast("cpu", enabled=False):
            return super().forward(x)


class Recursive(Norm):
    def forward(self, x):
        return self.forward(x)


class Generator(Norm):
    def _parts(self, x):
        yield super().forward(x)

    def forward(self, x):
        return self._parts(x)


class Patched(Norm):
    pass


Patched.forward = lambda self, x: rms(x, self.eps) * self.weight


class Cached(Norm):
    @functools.lru_cache  # noqa: B019
    def forward(self, x):
        return super().forward(x)


class OtherSignature(Norm):
    def forward(self, *arguments):
        return super().forward(*arguments)


OtherSignature.forward.__signature__ = inspect.signature(Norm.forward)

names = {}
exec(
    """
def forward(self, x):
    return x * torch.rsqrt(x.square().mean(-1, True) + self.eps) * self.weight
""",
    {"torch": torch},
    names,
)


class FromString(Norm):
    forward = names["forward"]


# Classes with methods and attributes that RMSNorm does not have.


class PublicMethod(Norm):
    def scaled(self, x, scale):
        return self(x) * scale


class PublicProperty(Norm):
    @property
    def root_of_eps(self):
        return math.sqrt(self.eps)


class PublicStaticMethod(Norm):
    @staticmethod
    def new(x, eps):
        return rms(x, eps)

    def forward(self, x):
        return self.new(x, self.eps) * self.weight


class ClassMethod(Norm):
    @classmethod
    def new(cls, x):
        return cls(len(x))


class UnusedMethod(Norm):
    def _scaled(self, x, scale):
        return self(x) * scale


class NestedClass(Norm):
    class Settings:
        eps = 1e-6


class Descriptor(Norm):
    @functools.cached_property
    def root(self):
        return math.sqrt(self.eps)


class MutableClassAttribute(Norm):
    instances = []


class Length(Norm):
    def __len__(self):
        return self.weight.numel()


class Abstract(Norm, metaclass=abc.ABCMeta):
    pass


class Setter(Norm):
    def __setattr__(self, name, value):
        super().__setattr__(name, value)


class AttributeWeight(Norm):
    def __init__(self):
        super().__init__()
        self.__dict__["weight"] = 1


class OtherReset(Norm):
    def reset_parameters(self):
        nn.init.normal_(self.weight)


LOOK_ALIKES = {
    kind.__name__: (kind, reason)
    for kind, reason in [
        (Residual, "its forward also takes residual"),
        (Gate, "its forward also takes gate"),
        (KeywordOnly, "its forward also takes scale"),
        (AnyArguments, "its forward does not take one argument"),
        (Default, "its forward also takes no argument"),
        (SecondDimension, "not understood: x.dim"),
        (AllButFirst, "not understood: tuple"),
        (FindsItsDimension, "not understood: list"),
        (OnlyThreeDimensions, "not understood: batch, time, cols = x.shape"),
        (Training, "not understood: self.training"),
        (Dropout, "not understood: nn.functional.dropout"),
        (Noise, "not understood: torch.empty_like"),
        (GradMode, "not understood: torch.is_grad_enabled"),
        (ClampsInput, "not understood: x.clamp"),
        (ClampsHugeInput, "not understood: x.clamp"),
        (ClampsOutput, "not understood: super().forward(x).clamp"),
        (ClampsRoot, "not understood: root.clamp"),
        (ReplacesNaN, "not understood: torch.nan_to_num"),
        (ReplacesNaNAfterwards, "not understood: torch.nan_to_num"),
        (TwoPlusWeight, "not understood: 2 + self.weight"),
        (WeightMinusOne, "not understood: self.weight - 1"),
        (OnePlusSomeWeights, "its forward adds 1 to weights of some types only"),
        (LitWithOffset, "its reset_parameters sets the weight to 1"),
        (PositiveWeight, "not understood: self.weight.abs"),
        (CappedWeight, "not understood: self.weight.clamp"),
        (EpsAfterRoot, "not understood: x.square().mean(-1, True).sqrt()"),
        (EpsAsMinimum, "not understood: x.square().mean(-1, True).clamp"),
        (NoEps, "not understood: x.square().mean(-1, True) + eps"),
        (SumOfSquares, "not understood: x.square().sum(-1, True) + self.eps"),
        (Centred, "not understood: x.mean(-1, True)"),
        (NoWeight, "its forward computes x * (mean(x^2) + eps)^-0.5, not RMSNorm"),
        (Groups, "not understood: x.unflatten"),
        (ScaledByNumber, "its eps can be any of eps, gain"),
        (HoldsList, "its attribute calls is of type list"),
        (HoldsTensor, "its attribute mask is of type Tensor"),
        (HoldsBuffer, "it holds weight, mask, an RMSNorm one weight"),
        (HoldsModule, "it holds weight, gate, an RMSNorm one weight"),
        (Counts, "not understood: Counts.count += 1"),
        (Remembers, "not understood: self.last = x.shape"),
        (ReadsGlobal, "its forward reads the variable SCALE"),
        (ReadsGlobalInHelper, "its forward reads the variable SCALE"),
        (ReadsClass, "not understood: self.factor"),
        (Closure, "its forward reads the variable settings"),
        (ReadsDefault, "the default of table can change"),
        (ReadsDefaultType, "not understood: torch.get_default_dtype"),
        (ReadsAutocast, "not understood: torch.is_autocast_enabled"),
        (RandomModule, "its forward reads the variable random"),
        (Prints, "not understood: print('forward')"),
        (Imports, "not understood: import os"),
        (InPlace, "not understood: x.mul_"),
        (NormalizesItsWeight, "not understood: self.weight.data.clamp_(-10, 10)"),
        (NoGradient, "its forward does not take one argument"),
        (DetachedRoot, "self.eps).sqrt().detach"),
        (DetachedWeight, "not understood: self.weight.detach"),
        (LowPrecision, "its result differs for values around 1"),
        (AlwaysFloat, "it gives torch.float32 for"),
        (TypeOfBfloat16Weight, "it gives torch.float32 for x and weight of torch.float16"),
        (RefusesHalf, "not understood: raise TypeError('no half')"),
        (ClampsHalf, "not understood: x.clamp"),
        (Pair, "its forward does not return one tensor"),
        (Flat, "not understood: x.dim"),
        (Raises, "not understood: raise RuntimeError('no')"),
        (RaisesEmpty, "not understood: raise RuntimeError"),
        (OwnCall, "it has its own __call__"),
        (OwnGetattr, "it has its own __getattr__"),
        (OwnStateDict, "it has its own _save_to_state_dict"),
        (FromLinear, "it is derived from Linear"),
        (Scripted, "its forward does not take one argument"),
        (Wrapped, "its forward reads the variable factor"),
        (MatrixWeight, "its weight is not a vector"),
        (ScalarWeight, "its weight has one element, which can scale rows of any width"),
        (TwoEps, "its eps can be any of eps, other_eps"),
        (EpsIsTensor, "its attribute eps is of type Tensor"),
        (EpsIsNegative, "its eps is -1e-06"),
        (EpsIsNaN, "its eps is nan"),
        # Conditions that almost no x meets.
        (Float64, "not understood: y * 2"),
        (BatchOfSeven, "not understood: x.shape[0]"),
        (ManyRows, "not understood: x.shape[-2]"),
        (FiveDimensions, "not understood: x.ndim"),
        (Elements, "not understood: x.numel"),
        (ValueOfX, "not understood: x == 12.5"),
        (ValueOfXWithoutBranch, "not understood: torch.where"),
        (ValueOfXAsFactor, "not understood: x == 12.5"),
        (ValueOfWeight, "not understood: self.weight[0]"),
        (Multiplied, "its forward computes weight^2 * x * (mean(x^2) + eps)^-0.5, not RMSNorm"),
        (SmallTerm, "not understood: x ** 9"),
        (RequiresGrad, "not understood: x.requires_grad"),
        (TrainedWeight, "not understood: self.weight.requires_grad"),
        (InferenceMode, "not understood: x.is_inference"),
        (OnCuda, "not understood: x.is_cuda"),
        (Device, "not understood: x.device"),
        (Contiguous, "not understood: x.is_contiguous"),
        (Strides, "not understood: x.stride"),
        (TensorClass, "not understood: type"),
        (ModuleVariable, "its forward reads the variable SCALE"),
        (ModuleVariableOfType, "its forward reads the variable STATISTICS"),
        (Deterministic, "not understood: torch.are_deterministic_algorithms_enabled"),
        (Backends, "not understood: torch.backends"),
        (Tries, "not understood: try:"),
        (Loops, "not understood: for _ in range(x.shape[0]):"),
        (Loops2, "not understood: while"),
        (WithBlock, "not understood: with torch.autocast"),
        (Recursive, "its forward calls itself"),
        (Generator, "the arguments of Generator._parts are not understood"),
        (Patched, "there is no source for the code of <lambda>"),
        (Cached, "its forward is not a Python function"),
        (OtherSignature, "the arguments of OtherSignature.forward are not understood"),
        (FromString, "there is no source for the code of forward"),
        # Members besides forward.
        (PublicMethod, "it also has the method scaled"),
        (PublicProperty, "it also has the property root_of_eps"),
        (PublicStaticMethod, "it also has the method new"),
        (ClassMethod, "its class also has new, a classmethod"),
        (UnusedMethod, "it also has _scaled, which its forward does not use"),
        (NestedClass, "its class also has Settings, a type"),
        (Descriptor, "its class also has root, a cached_property"),
        (MutableClassAttribute, "its class also has instances, a list"),
        (Length, "it has its own __len__"),
        (Abstract, "its class is a ABCMeta"),
        (Setter, "it has its own __setattr__"),
        (AttributeWeight, "its weight is hidden by another attribute"),
        (OtherReset, "its reset_parameters does more than set the weight to 0 or 1"),
    ]
}
for kind in (
    Native,
    OnePlusWeight,
    RoundedOnePlusWeight,
    Steps,
    Named,
    Functional,
    Sum,
    Conditions,
    Decorated,
    Lit,
    *(kind for kind, _ in LOOK_ALIKES.values()),
):
    kind.__name__ += "Norm"  # convert recognizes unknown norms by their names


@pytest.mark.parametrize("name", LOOK_ALIKES)
def test_classes_that_differ_from_rmsnorm_are_left(name, capsys):
    kind, reason = LOOK_ALIKES[name]
    module = kind()
    model = nn.Sequential(module)
    generator, python = torch.get_rng_state(), random.getstate()
    attributes = dict(vars(module))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = planish.convert(model, "planish")
    assert report.changed == []
    assert model[0] is module
    assert reason in report.left[0].reason
    assert report.left[0].reason.startswith("unknown class, not judged to be an RMSNorm: ")
    # The trials have no side effects.
    assert torch.equal(torch.get_rng_state(), generator)
    assert random.getstate() == python
    assert vars(module) == attributes
    weight = module._parameters["weight"]
    assert torch.equal(weight, torch.ones_like(weight))
    assert weight.grad is None
    assert capsys.readouterr().out == ""
    assert Counts.count == 0


# Reasons that the trials find without reading the code, which is the other judge.
TRIALS = [
    (SecondDimension, "its result differs for shape [2, 3, 6]"),
    (AllButFirst, "its result differs for shape [2, 3, 6]"),
    (FindsItsDimension, "its result differs for shape [6, 6]"),
    (OnlyThreeDimensions, "it raises ValueError, not enough values to unpack"),
    (Training, "in training"),
    (Noise, "it gives two results for one input"),
    (GradMode, "its result differs for values around 1,"),
    (ClampsInput, "its result differs for"),
    (ClampsHugeInput, "its result differs for"),
    (ClampsOutput, "a large weight"),
    (ClampsRoot, "its result differs for"),
    (ReplacesNaN, "it replaces values that are not finite"),
    (ReplacesNaNAfterwards, "it replaces values that are not finite"),
    (TwoPlusWeight, "a weight of both signs"),
    (PositiveWeight, "a weight of both signs"),
    (CappedWeight, "a large weight"),
    (EpsAfterRoot, "its result differs for"),
    (EpsAsMinimum, "its result differs for values around 1e-4"),
    (NoEps, "its result differs for"),
    (SumOfSquares, "its result differs for values around 1"),
    (Centred, "its result differs for values around 1"),
    (InPlace, "it writes to its input or its weight"),
    (NormalizesItsWeight, "it writes to its input or its weight"),
    (DetachedRoot, "its gradient of x differs"),
    (DetachedWeight, "its gradient of weight differs"),
    (RefusesHalf, "it raises TypeError, no half"),
    (ClampsHalf, "its result differs for torch.float16 x"),
    (Float64, "its result differs for torch.float64 x"),
    (Pair, "it does not give a tensor"),
    (Flat, "it gives shape [6, 6] for [2, 3, 6]"),
    (Raises, "it raises RuntimeError, no"),
    (RaisesEmpty, "it raises RuntimeError, "),
]


@pytest.mark.parametrize(("kind", "reason"), TRIALS)
def test_trials_find_differences_without_reading_the_code(kind, reason, monkeypatch):
    monkeypatch.setattr(formula, "check_formula", lambda *arguments: (set(dir(kind)), 0.0))
    model = nn.Sequential(kind())
    report = planish.convert(model, "planish")
    assert report.changed == []
    assert reason in report.left[0].reason


def test_source_that_does_not_match_the_code_is_not_used(tmp_path):
    """A file can change after its import, so the code decides, not the text."""
    text = """
import torch

class FileNorm(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(6))
        self.eps = 1e-6

    def forward(self, x):
        assert FACTOR
        return x * torch.rsqrt(x.square().mean(-1, True) + self.eps) * self.weight FACTOR
"""

    def reason(text, later=None):
        path = tmp_path / f"file_{len(list(tmp_path.iterdir()))}.py"
        path.write_text(text)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        norm = module.FileNorm()
        for _ in range(100):  # Python specializes code that runs often
            norm(torch.ones(2, 6))
        if later is not None:
            path.write_text(later)
        report = planish.convert(nn.Sequential(norm), "planish")
        return report.left[0].reason.split("RMSNorm: ")[1] if report.left else ""

    plain = text.replace("assert FACTOR", "").replace("FACTOR", "")
    doubling = text.replace("assert FACTOR", "").replace("FACTOR", "* 2")
    asserting = text.replace("FACTOR", "x.dim() < 5", 1).replace("FACTOR", "")
    changed = "there is no source for the code of FileNorm.forward"
    assert reason(plain) == ""
    assert reason(plain, plain + "# a comment at the end") == ""
    assert reason(plain, "# a comment at the start\n" + plain) == changed
    assert reason(doubling, plain) == changed
    assert reason(plain, "not Python") == changed
    assert reason(plain, "") == changed
    assert reason(asserting) == "its forward is not understood: assert x.dim() < 5"


def test_trials_call_no_hooks():
    model = nn.Sequential(Norm())
    calls = []
    model[0].register_forward_pre_hook(lambda module, args: calls.append(args))
    model[0].register_forward_hook(lambda module, args, y: calls.append(y))
    model[0].weight.register_hook(calls.append)
    assert len(planish.convert(model, "planish").changed) == 1
    assert calls == []
    model(normal(2, 6))
    assert len(calls) == 2


def test_instances_that_differ_from_their_class_are_left():
    replaced, helper, called, compiled, extra, jit = (Steps() for _ in range(6))
    replaced.forward = lambda x: x
    helper._norm = lambda x: x
    called.__call__ = lambda x: x
    compiled.compile(backend="eager")
    extra.config = object()
    model = nn.ModuleList(
        [replaced, helper, called, compiled, torch.compile(Norm(), backend="eager"), extra]
    )
    model.append(torch.jit.trace(Norm(), normal(2, 6), check_trace=False))
    before = list(model)
    report = planish.convert(model, "planish")
    assert report.changed == []
    assert [left.reason for left in report.left] == [
        "its forward is replaced",
        "its _norm is replaced",
        "its __call__ is replaced",
        "it is compiled by torch.compile",
        "it is compiled by torch.compile",
        "unknown class, not judged to be an RMSNorm: its attribute config is of type object",
        "it is compiled by torch.jit",
    ]
    assert all(a is b for a, b in zip(before, model, strict=True))


def test_compiled_models_use_the_replacement():
    model = nn.Sequential(Norm(), nn.Linear(6, 6))
    compiled = torch.compile(model, backend="eager")
    x = normal(2, 6)
    expected = compiled(x)
    assert len(planish.convert(compiled, "planish").changed) == 1
    torch.testing.assert_close(compiled(x), expected)  # float32
    planish.convert(compiled, "none")
    assert torch.equal(compiled(x), model[1](x))


def test_a_weight_that_the_class_hides_is_left():
    class HidingNorm(Norm):
        pass

    model = nn.Sequential(HidingNorm())
    HidingNorm.weight = None  # PyTorch rejects this before the parameter exists
    reason = planish.convert(model, "planish").left[0].reason
    assert reason.endswith("its weight is hidden by another attribute")


def test_attributes_are_kept():
    """Keeps marks of transformers, and the eps that models read from their norms."""
    module = Named()
    module._is_hf_initialized = True
    model = nn.Sequential(module, nn.LayerNorm(4))
    model[1].tag = "last"
    planish.convert(model, "planish")
    assert model[0]._is_hf_initialized
    assert model[0].norm_eps == 1e-5
    assert model[1].tag == "last"
    planish.convert(model, "torch")
    assert type(model[0]) is nn.RMSNorm
    assert (model[0]._is_hf_initialized, model[1].tag) == (True, "last")
    model[1].k = 3  # AdaNorm also has a k
    report = planish.convert(model, "ada")
    assert report.left[0].reason == "it has an attribute k, which AdaNorm has too"


def test_each_class_is_tried_once(monkeypatch):
    calls = []
    check = trial.check_outputs
    monkeypatch.setattr(
        trial, "check_outputs", lambda *arguments: (calls.append(1), check(*arguments))
    )
    model = nn.Sequential(*(Norm() for _ in range(5)), Norm(eps=1e-5), Norm(8))
    assert len(planish.convert(model, "planish").changed) == 7
    assert len(calls) == 3


def test_wide_rows_are_left_without_a_trial():
    model = nn.Sequential(Norm(1).to("meta"))
    model[0].weight = nn.Parameter(torch.empty(10**10, device="meta"))
    reason = planish.convert(model, "planish").left[0].reason
    assert reason.endswith("its rows are too wide for a trial, 10000000000")


class WithConstants(Norm):
    """A class like those of transformers with the package kernels installed, and with constants."""

    family = "rms"
    _order = 2
    kernel_layer_name = "RMSNorm"
    kernel_condition = staticmethod(lambda module: True)

    def __init__(self):
        super().__init__()
        self.variance_epsilon = self.eps
        self.hidden_size = 6
        del self.eps

    def extra_repr(self):
        return f"{self.hidden_size}, eps={self.variance_epsilon}"

    def forward(self, hidden_states):
        root = torch.rsqrt(hidden_states.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return self.weight * hidden_states * root


class LaterConstants(WithConstants):
    family = "rms, again"


WithConstants.__name__ += "Norm"
LaterConstants.__name__ += "Norm"


@pytest.mark.parametrize(
    ("to", "eps", "expected"),
    [("planish", None, 1e-6), ("planish", 1e-3, 1e-3), ("ada", 1e-3, 1e-3), ("none", None, 1e-6)],
)
def test_constants_of_the_class_and_the_module_are_kept(to, eps, expected):
    model = nn.Sequential(WithConstants(), LaterConstants())
    report = planish.convert(model, to, eps=eps)
    assert report.left == []
    assert [module.family for module in model] == ["rms", "rms, again"]
    for module in model:
        assert (module._order, module.hidden_size) == (2, 6)
        # Models read the eps of the replacement under the old name.
        assert module.variance_epsilon == expected
        assert getattr(module, "eps", expected) == expected
    if to == "planish":
        x = normal(2, 6)
        torch.testing.assert_close(model[0](x), rms(x, expected))  # float32


def test_norms_stay_tied_frozen_and_shared():
    shared, tied = Norm(), Norm()
    tied.weight = shared.weight
    shared.weight.requires_grad_(False)
    model = nn.ModuleDict({"a": shared, "b": nn.ModuleList([shared, tied])})
    report = planish.convert(model, "planish")
    assert [change.names for change in report.changed] == [("a", "b.0"), ("b.1",)]
    assert model["a"] is model["b"][0]
    assert model["a"].weight is model["b"][1].weight is shared.weight
    assert not model["a"].weight.requires_grad


def test_hooks_of_a_converted_norm_can_be_added_and_removed_later():
    model = nn.Sequential(Norm())
    planish.convert(model, "planish")
    calls = []
    handles = [
        model[0].register_forward_pre_hook(lambda module, args: calls.append("before")),
        model[0].register_forward_hook(lambda module, args, y: calls.append("after")),
    ]
    model(normal(2, 6))
    assert calls == ["before", "after"]
    for handle in handles:
        handle.remove()
    model(normal(2, 6))
    assert calls == ["before", "after"]


def test_methods_are_those_of_the_judged_class(monkeypatch):
    class DoublingStepsNorm(Steps):
        def _norm(self, x):
            return super()._norm(x + x.mean())

    class SameStepsNorm(Steps):
        def _norm(self, x):
            return super()._norm(x)

    report = planish.convert(nn.Sequential(DoublingStepsNorm(), SameStepsNorm()), "planish")
    assert [change.names for change in report.changed] == [("1",)]
    monkeypatch.setattr(Steps, "_norm", DoublingStepsNorm._norm)
    report = planish.convert(nn.Sequential(SameStepsNorm()), "planish")
    assert report.changed == []


def test_replaced_functions_of_torch_are_not_understood(monkeypatch):
    original = torch.rsqrt
    monkeypatch.setattr(torch, "rsqrt", lambda x: original(x) * (2 if x.numel() == 77 else 1))
    report = planish.convert(nn.Sequential(Norm()), "planish")
    assert report.changed == []


@pytest.mark.parametrize("setting", ["no_grad", "inference", "autocast", "default_dtype", "meta"])
def test_the_verdict_does_not_depend_on_the_state_of_the_program(setting):
    scope = {
        "no_grad": torch.no_grad,
        "inference": torch.inference_mode,
        "autocast": functools.partial(torch.autocast, "cpu", torch.bfloat16),
        "default_dtype": torch.no_grad,
        "meta": functools.partial(torch.device, "meta"),
    }[setting]
    model = nn.Sequential(Norm(), type("OtherNorm", (TwoPlusWeight,), {})())
    try:
        if setting == "default_dtype":
            torch.set_default_dtype(torch.float64)
        with scope():
            report = planish.convert(model, "planish")
    finally:
        torch.set_default_dtype(torch.float32)
    assert [change.names for change in report.changed] == [("0",)]


def test_verdicts_follow_changes_of_a_class(monkeypatch):
    class LateNorm(Norm):
        pass

    assert len(planish.convert(nn.Sequential(LateNorm()), "planish").changed) == 1
    monkeypatch.setattr(LateNorm, "forward", lambda self, x: x, raising=False)
    assert len(planish.convert(nn.Sequential(LateNorm()), "planish").left) == 1


@pytest.mark.parametrize(
    ("of_x", "of_weight"),
    [
        (torch.float32, torch.float32),
        (torch.bfloat16, torch.bfloat16),
        (torch.float16, torch.float16),
        (torch.float32, torch.bfloat16),
        (torch.float32, torch.float16),
    ],
)
def test_the_replacement_has_the_types_and_values_of_the_class(of_x, of_weight):
    """Mamba has float32 hidden states and 16-bit weights."""
    before = Norm(32).to(of_weight)
    with torch.no_grad():
        before.weight.add_(normal(32, dtype=of_weight))
    model = nn.Sequential(before)
    assert len(planish.convert(model, "planish").changed) == 1
    x = normal(3, 4, 32, seed=1, dtype=of_x)
    expected, y = before(x), model(x)
    reference = nn.functional.rms_norm(x, (32,), before.weight, before.eps)
    assert y.dtype == expected.dtype == reference.dtype == of_x
    # The class rounds twice to the type of x, the replacement once: three unit roundoffs at most.
    tolerance = 2 * torch.finfo(of_x).eps
    torch.testing.assert_close(y, expected, rtol=tolerance, atol=1e-6)
    torch.testing.assert_close(y, reference, rtol=tolerance, atol=1e-6)
