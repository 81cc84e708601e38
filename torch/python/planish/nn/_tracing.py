"""Support for torch.fx."""

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

from torch import nn
from torch.fx import Proxy, Tracer

__all__ = ["leaf"]

P = ParamSpec("P")
R = TypeVar("R")


def leaf(forward: Callable[P, R]) -> Callable[P, R]:
    """Makes torch.fx record a call of the module instead of the operations inside.

    torch.fx does this for modules of ``torch.nn``, but has no way to request it for others. The
    recorded function calls ``forward``, so a traced model follows ``train()`` and ``eval()``.
    """

    @functools.wraps(forward)
    def traceable(*args: P.args, **kwargs: P.kwargs) -> R:
        proxy: Any = args[1] if len(args) > 1 else next(iter(kwargs.values()), None)
        if isinstance(proxy, Proxy):
            tracer = proxy.tracer
            if isinstance(tracer, Tracer) and tracer.root is not args[0]:
                # A proxy in place of a tensor.
                node: Any = tracer.create_proxy("call_function", call_forward, args, kwargs)
                return cast(R, node)
        return forward(*args, **kwargs)

    return traceable


def call_forward(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
    """Calls the module without its hooks, which torch.fx has already traced."""
    return module.forward(*args, **kwargs)
