"""Initialization of recurrent layers with the functions of ``torch.nn.init``."""

import re
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from planish.nn.recurrent import _Recurrent

__all__ = ["reset_recurrent_parameters"]

_RECURRENT = (_Recurrent, nn.RNNBase, nn.RNNCellBase)
_PLACE = r"(_l\d+(_reverse)?)?"
_MATRIX = re.compile(rf"weight_(ih|hh|hr){_PLACE}")
_GAIN = re.compile(rf"ln_((ih|hh|c)_)?weight{_PLACE}")
_BIAS = re.compile(rf"(bias_(ih|hh)|ln_((ih|hh|c)_)?bias){_PLACE}")


@torch.no_grad()
def reset_recurrent_parameters(
    module: nn.Module,
    fn: Callable[[Tensor], object],
    *,
    fn_hh: Callable[[Tensor], object] | None = None,
    per_gate: bool = False,
) -> None:
    """Initializes the recurrent layers and cells in ``module``, Planish's and ``torch.nn``'s.

    Weight matrices are initialized by ``fn``. Biases become 0, also those of norms, and the gains
    of norms become 1. Other parts of ``module`` stay as they are.

    The names of gains contain "weight", like those of matrices. A loop over ``named_parameters()``
    that initializes every "weight" therefore fails at a gain, which has one dimension, or makes all
    gains small.

    Args:
        module: a recurrent layer or cell, or a model that contains some.
        fn: changes a matrix in place, such as ``torch.nn.init.orthogonal_``.
        fn_hh: used instead of ``fn`` for the matrices ``weight_hh``.
        per_gate: calls the functions for the block [H, ...] of each gate, and in ``weight_hh`` of each
            head, not for all gates at once.
            An orthogonal matrix [4H, H], for example, differs from four orthogonal [H, H].

    Raises:
        ValueError: there is no recurrent layer, or a parameter is computed from others, as by
            ``torch.nn.utils.parametrize``.

    >>> import planish
    >>> lstm = planish.nn.LayerNormLSTM(8, 16)
    >>> planish.nn.reset_recurrent_parameters(lstm, torch.nn.init.orthogonal_)
    >>> torch.allclose(lstm.weight_hh_l0.T @ lstm.weight_hh_l0, torch.eye(16), atol=1e-5)
    True
    >>> bool((lstm.ln_c_weight_l0 == 1).all() and (lstm.bias_ih_l0 == 0).all())
    True
    """
    recurrent = [part for part in module.modules() if isinstance(part, _RECURRENT)]
    if not recurrent:
        raise _error("module must be or contain a recurrent layer", type(module).__name__)
    for part in recurrent:
        if parametrize.is_parametrized(part):
            raise _error("module must not be parametrized", type(part).__name__)
        for name, _ in part.named_parameters(recurse=False):
            for kind in (_MATRIX, _GAIN, _BIAS):
                if kind.match(name) and not kind.fullmatch(name):  # as in weight_hh_l0_orig
                    raise _error("module must not compute its parameters from others", name)
    for part in recurrent:
        for name, parameter in part.named_parameters(recurse=False):
            if matrix := _MATRIX.fullmatch(name):
                change = fn if fn_hh is None or matrix[1] != "hh" else fn_hh
                rows = part.hidden_size
                if matrix[1] == "hh":  # the block of each head
                    rows //= getattr(part, "num_heads", 1)
                for block in _blocks(parameter, rows) if per_gate else [parameter]:
                    change(block)
            elif _GAIN.fullmatch(name):
                nn.init.ones_(parameter)
            elif _BIAS.fullmatch(name):
                nn.init.zeros_(parameter)


def _error(what: str, value: object) -> ValueError:
    return ValueError(f"[reset_recurrent_parameters] {what}, got {value}")


def _blocks(matrix: Tensor, rows: int) -> Iterator[Tensor]:
    """Yields a view of the rows of each gate."""
    for begin in range(0, matrix.shape[0], rows):
        block = matrix[begin : begin + rows]
        if hasattr(matrix, "_is_hf_initialized"):
            # transformers marks loaded parameters so that initialization leaves them as they are.
            block._is_hf_initialized = matrix._is_hf_initialized  # type: ignore[attr-defined]
        yield block
