"""Norms as PyTorch's users write them and in Planish, each with the same values."""

import functools

import torch
from torch import nn

import planish

# Norms with two inputs of one shape.
GATED = ("norm_then_gate", "gate_then_norm")
OF_TWO = ("add_layer_norm", *GATED)


class AddLayerNorm(nn.LayerNorm):
    """The sum and its norm, as in a residual network."""

    def forward(self, x, residual):
        total = x + residual
        return super().forward(total), total


class OurAddLayerNorm(nn.LayerNorm):
    def forward(self, x, residual):
        return planish.functional.add_layer_norm(x, residual, self.normalized_shape, self.weight, self.bias, self.eps)


class NormThenGate(nn.RMSNorm):
    """The norm of gated DeltaNet and Qwen3-Next."""

    def forward(self, x, z):
        return super().forward(x) * nn.functional.silu(z)


class GateThenNorm(nn.RMSNorm):
    """The norm of Mamba-2."""

    def forward(self, x, z):
        return super().forward(x * nn.functional.silu(z))


class ChannelLayerNorm(nn.LayerNorm):
    """LayerNorm over the channels of images, as in ConvNeXt: permuted, and permuted back."""

    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Pointwise(nn.LayerNorm):
    """A function of single elements in place of a norm, as in the papers' code."""

    def forward(self, x):
        return type(self).function(0.5 * x) * self.weight + self.bias


class DyT(Pointwise):
    function = torch.tanh


class Derf(Pointwise):
    function = torch.erf


def ours(kind):
    """Returns Planish's module with alpha constant, as in Pointwise."""

    def make(size, dtype):
        module = kind(size, dtype=dtype)
        module.alpha.requires_grad_(False)
        if hasattr(module, "shift"):
            module.shift.requires_grad_(False)
        return module

    return make


def groups(kind):
    return lambda channels, dtype: kind(8, channels, dtype=dtype)


def instances(kind):
    return lambda channels, dtype: kind(channels, affine=True, dtype=dtype)


# Name: (PyTorch's, Planish's), by the size of the last or the channel dimension.
MODULES = {
    "layer_norm": (nn.LayerNorm, planish.nn.LayerNorm),
    "layer_norm_bfloat16": (nn.LayerNorm, planish.nn.LayerNorm),
    "rms_norm": (nn.RMSNorm, planish.nn.RMSNorm),
    "add_layer_norm": (AddLayerNorm, OurAddLayerNorm),
    "norm_then_gate": (NormThenGate, planish.nn.RMSNorm),
    "gate_then_norm": (GateThenNorm, functools.partial(planish.nn.RMSNorm, norm_before_gate=False)),
    "channel_layer_norm": (ChannelLayerNorm, planish.nn.LayerNorm2d),
    "batch_norm_2d": (nn.BatchNorm2d, planish.nn.BatchNorm2d),
    "group_norm_2d": (groups(nn.GroupNorm), groups(planish.nn.GroupNorm)),
    "instance_norm_2d": (instances(nn.InstanceNorm2d), instances(planish.nn.InstanceNorm2d)),
    "dyt": (DyT, ours(planish.nn.DyT)),
    "derf": (Derf, ours(planish.nn.Derf)),
}


class Problem:
    """Inputs of a norm for every contestant."""

    def __init__(self, norm, shape):
        self.norm, self.shape = norm, shape
        self.dtype = torch.bfloat16 if norm.endswith("bfloat16") else torch.float32
        generator = torch.Generator().manual_seed(1)
        make = lambda *sizes: torch.randn(sizes, generator=generator).to(self.dtype)  # noqa: E731
        self.features = shape[1]
        self.inputs = [make(*shape).requires_grad_() for _ in range(2 if norm in OF_TWO else 1)]
        self.gradients = [make(*shape) for _ in range(2 if norm == "add_layer_norm" else 1)]  # of the outputs
        self.parameters = [1 + make(self.features) / 4, make(self.features) / 4]

    def module(self, who):
        """Returns a contestant's module with the problem's weight and bias."""
        module = MODULES[self.norm][who == "planish"](self.features, dtype=self.dtype)
        with torch.no_grad():
            for parameter, values in zip(trained(module), self.parameters):
                parameter.copy_(values)
        return torch.compile(module, dynamic=False) if who == "compile" else module

    def call(self, who, mode):
        """Returns a function that computes outputs or, in training, gradients of inputs and
        parameters."""
        module = self.module(who)
        parameters = trained(module)
        if mode == "forward":
            inputs = [x.detach() for x in self.inputs]

            def forward():
                with torch.no_grad():
                    return outputs_of(module(*inputs))

            return forward
        wanted = [*self.inputs, *parameters]
        return lambda: torch.autograd.grad(outputs_of(module(*self.inputs)), wanted, self.gradients)

    def exact(self, mode):
        """Returns the results in double, from operators that neither contestant uses."""
        x = [t.detach().double().requires_grad_() for t in self.inputs]
        parameters = [t.double().requires_grad_() for t in self.parameters]
        outputs = composed(self.norm, x, *parameters)
        if mode == "forward":
            return outputs
        if self.norm in ("rms_norm", *GATED):
            parameters = parameters[:1]
        return torch.autograd.grad(outputs, [*x, *parameters], [g.double() for g in self.gradients])


def trained(module):
    """Returns the weight and bias of a module."""
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def outputs_of(y):
    return y if isinstance(y, tuple) else (y,)


def composed(norm, x, weight, bias):
    if norm in ("rms_norm", *GATED):
        silu = x[-1] * x[-1].sigmoid() if norm in GATED else 1
        u = x[0] * silu if norm == "gate_then_norm" else x[0]
        eps = torch.finfo(torch.float32).eps
        y = u * (u.square().mean(-1, keepdim=True) + eps).rsqrt() * weight
        return (y * silu if norm == "norm_then_gate" else y,)
    if norm in ("dyt", "derf"):
        # In double, from the exponential; erf has no other operator.
        y = 1 - 2 / (x[0].exp() + 1) if norm == "dyt" else (x[0] / 2).erf()
        return (y * weight + bias,)
    if norm in ("group_norm_2d", "instance_norm_2d"):
        groups = 8 if norm == "group_norm_2d" else x[0].shape[1]
        rows = x[0].reshape(len(x[0]), groups, -1)
        centred = rows - rows.mean(-1, keepdim=True)
        xhat = centred * (centred.square().mean(-1, keepdim=True) + 1e-5).rsqrt()
        return (xhat.reshape(x[0].shape) * weight.view(-1, 1, 1) + bias.view(-1, 1, 1),)
    total = sum(x)
    dims = {"channel_layer_norm": (1,), "batch_norm_2d": (0, 2, 3)}.get(norm, (-1,))
    centred = total - total.mean(dims, keepdim=True)
    xhat = centred * (centred.square().mean(dims, keepdim=True) + 1e-5).rsqrt()
    shape = (-1, 1, 1) if norm in ("channel_layer_norm", "batch_norm_2d") else (-1,)
    y = xhat * weight.view(shape) + bias.view(shape)
    return (y, total) if norm == "add_layer_norm" else (y,)


def wrong(problem, mode, results, exact):
    """Returns the error of the results, or None.

    The tolerance of an element is 1/2000 of its tensor's largest in float, and 2 units in
    bfloat16. PyTorch accumulates sums over rows in bfloat16, so gradients of parameters are not
    compared there."""
    tolerance = 5e-4 if problem.dtype == torch.float32 else 2 * torch.finfo(torch.bfloat16).eps
    compared = len(exact)
    if problem.dtype == torch.bfloat16 and mode == "training":
        compared = len(problem.inputs)
    for i in range(compared):
        error = (results[i].double() - exact[i]).abs().max() / exact[i].abs().max()
        if not error <= tolerance:
            return f"result {i} is off by {error:.1e}"
    return None
