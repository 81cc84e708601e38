"""GroupNorm and InstanceNorm: subclasses of the modules of ``torch.nn``."""

from typing import Any

from torch import Tensor, nn

from planish._checks import check_eps
from planish._operators import _group_norm, _instance_norm
from planish.nn._tracing import leaf
from planish.nn.norms import _check_count

__all__ = ["GroupNorm", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d"]


def _remove_bias(module: nn.Module, bias: bool) -> None:
    """Removes the bias unless ``bias``, an argument that older versions of ``torch.nn`` lack."""
    if not bias:
        module.register_parameter("bias", None)


class GroupNorm(nn.GroupNorm):
    """``torch.nn.GroupNorm`` on Planish's kernels (Wu & He 2018).

    The channels of a sample are divided into num_groups groups of adjacent ones. Each group is
    normalized by its mean and biased variance over its channels and all positions. Arguments,
    parameters and state dict are those of ``torch.nn.GroupNorm``, the base class. y is
    channels-last if x is.

    Shape: x [N, num_channels, ...], y the same.

    >>> GroupNorm(2, 4)
    GroupNorm(2, 4, eps=1e-05, affine=True, bias=True)
    """

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        name = type(self).__name__
        _check_count(name, "num_groups", num_groups, 1)
        _check_count(name, "num_channels", num_channels, 0)
        if num_channels % num_groups != 0:
            raise ValueError(
                f"[{name}] num_groups must divide num_channels, {num_channels}, got {num_groups}"
            )
        super().__init__(num_groups, num_channels, check_eps(name, eps), affine, device, dtype)
        _remove_bias(self, bias)

    @leaf
    def forward(self, input: Tensor) -> Tensor:
        if input.dim() < 2 or input.shape[1] != self.num_channels:
            raise ValueError(
                f"[{type(self).__name__}] x must be [N, C, ...] with C = {self.num_channels}, "
                f"got {list(input.shape)}"
            )
        return _group_norm(  # type: ignore[no-any-return]
            input, self.num_groups, self.weight, self.bias, self.eps
        )

    def extra_repr(self) -> str:
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
            f"bias={self.bias is not None}"
        )


class _InstanceNorm(nn.modules.instancenorm._InstanceNorm):
    shapes: str
    dims: tuple[int, int]  # without and with a batch

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        name = type(self).__name__
        if not 0 <= momentum <= 1:
            raise ValueError(f"[{name}] momentum must be from 0 to 1, got {momentum}")
        super().__init__(
            _check_count(name, "num_features", num_features, 0),
            check_eps(name, eps),
            momentum,
            affine,
            track_running_stats,
            device,
            dtype,
        )
        _remove_bias(self, bias)

    @leaf
    def forward(self, input: Tensor) -> Tensor:
        single, batched = self.dims
        channel = input.dim() - single
        if channel not in (0, 1) or input.shape[channel] != self.num_features:
            raise ValueError(
                f"[{type(self).__name__}] x must be {self.shapes} with C = {self.num_features}, "
                f"got {list(input.shape)}"
            )
        x = input if input.dim() == batched else input.unsqueeze(0)
        y: Tensor = _instance_norm(
            x,
            self.weight,
            self.bias,
            self.running_mean,
            self.running_var,
            self.training or not self.track_running_stats,
            self.momentum if self.track_running_stats else 0.0,
            self.eps,
        )
        return y if input.dim() == batched else y.squeeze(0)


class InstanceNorm1d(_InstanceNorm, nn.InstanceNorm1d):
    """``torch.nn.InstanceNorm1d`` on Planish's kernels (Ulyanov, Vedaldi & Lempitsky 2016).

    Each channel of a sample is normalized by its mean and biased variance over all positions, at
    least 2. Arguments, parameters, buffers and state dict are those of ``torch.nn.InstanceNorm1d``,
    the base class. With track_running_stats=True, training updates the running estimates, and
    evaluation normalizes by them.

    Shape: x [N, C, L] or [C, L], y the same.

    >>> InstanceNorm1d(4, affine=True).weight.shape
    torch.Size([4])
    """

    dims = (2, 3)
    shapes = "[N, C, L] or [C, L]"


class InstanceNorm2d(_InstanceNorm, nn.InstanceNorm2d):
    """``torch.nn.InstanceNorm2d`` on Planish's kernels; see InstanceNorm1d.

    Shape: x [N, C, H, W] or [C, H, W], y the same.
    """

    dims = (3, 4)
    shapes = "[N, C, H, W] or [C, H, W]"


class InstanceNorm3d(_InstanceNorm, nn.InstanceNorm3d):
    """``torch.nn.InstanceNorm3d`` on Planish's kernels; see InstanceNorm1d.

    Shape: x [N, C, D, H, W] or [C, D, H, W], y the same.
    """

    dims = (4, 5)
    shapes = "[N, C, D, H, W] or [C, D, H, W]"
