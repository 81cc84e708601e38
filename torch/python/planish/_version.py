"""Facts about the installed Planish."""

import torch

import planish
from planish import _library


class VersionInfo(dict[str, str]):
    """Facts by name. As text, a line for each."""

    def __str__(self) -> str:
        return "\n".join(f"{name:<12} {value}" for name, value in self.items())


def version_info() -> VersionInfo:
    """Returns facts about this Planish and its use of this machine, for logs and reports of errors.

    >>> info = planish.version_info()
    >>> info["version"] == planish.__version__
    True
    >>> list(info)
    ['version', 'compiler', 'targets', 'target', 'cuda', 'tuning', 'torch', 'torch_served']

    ``print(planish.version_info())`` prints them:

    - ``version``: the version of Planish
    - ``compiler``: the compiler that built the library
    - ``targets``: the SIMD targets that its kernels are compiled for, best first
    - ``target``: the SIMD target in use
    - ``cuda``: the version of CUDA that its GPU kernels are compiled with, or ``none``
    - ``tuning``: the machine's caches, and what ``PLANISH_TUNING`` overrides, in its form
    - ``torch``: the version of PyTorch in use
    - ``torch_served``: the minor versions of PyTorch that this Planish works with

    Raises:
        ValueError: ``PLANISH_TARGET`` or ``PLANISH_TUNING`` is invalid.
    """
    info = VersionInfo(torch.ops.planish.version_info())
    info["torch"] = torch.__version__
    info["torch_served"] = " ".join(_library.libraries(planish.__path__))
    return info
