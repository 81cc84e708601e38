"""RMSNorm with the type of T5's results."""

import torch
from torch import Tensor

from planish.nn import norms

__all__ = ["WeightTypedRMSNorm"]


_HALVES = (torch.bfloat16, torch.float16)


class WeightTypedRMSNorm(norms.RMSNorm):
    """RMSNorm whose result has the type of the weight if that is bfloat16 or float16.

    The norm of T5 rounds so: its models keep some layers in float32, whose results enter the norm
    and leave it in 16 bits.
    """

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]  # no gate
        dtype = self.weight.dtype
        if x.dtype == dtype or dtype not in _HALVES:
            return super().forward(x)
        # The other 16-bit type would round the result first.
        return super().forward(x.float() if x.dtype in _HALVES else x).to(dtype)
