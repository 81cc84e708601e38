"""Finds and loads the library with the operators, ``libplanish_torch.so``."""

import json
import os
import pathlib
from collections.abc import Iterable

import torch

_NAME = "libplanish_torch.so"


def _find(folders: Iterable[str]) -> pathlib.Path:
    """``$PLANISH_LIBRARY``, else the library in ``lib`` of one of the package's folders."""
    named = os.environ.get("PLANISH_LIBRARY")
    if named:
        candidates = [pathlib.Path(named)]
    else:  # an editable installation has two folders: the sources, and the one with the library
        candidates = [pathlib.Path(folder) / "lib" / _NAME for folder in folders]
    for candidate in candidates:
        if candidate.is_file():
            return candidate.resolve()
    places = ", ".join(str(candidate) for candidate in candidates)
    advice = "install Planish again, or let PLANISH_LIBRARY name one"
    if named:
        advice = "PLANISH_LIBRARY names it"
    raise ImportError(f"[planish] {_NAME} must be a file but there is none at {places}: {advice}")


def _minor(version: str) -> str:
    """``"2.13.0+cpu"`` is of ``"2.13"``: what an interface is the same within."""
    return ".".join(version.split(".")[:2])


def load(folders: Iterable[str]) -> str:
    """Loads the library once; its operators are then in ``torch.ops.planish``.

    The library uses PyTorch's C++ interface, which differs from one minor version to the next, so
    that the version is compared before anything of it runs.

    Args:
        folders: where the package is, its ``__path__``.

    Returns:
        The version of Planish that the library is of.

    Raises:
        ImportError: there is no library, it was built with another PyTorch, or it cannot be loaded.
    """
    library = _find(folders)
    try:
        build = json.loads(library.with_suffix(".json").read_text(encoding="utf-8"))
        version, built_with = str(build["planish"]), str(build["torch"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ImportError(
            f"[planish] {library.with_suffix('.json').name} must be beside {library} and say which "
            f"PyTorch it was built with, but could not be read ({error}): build Planish again"
        ) from error
    if _minor(built_with) != _minor(torch.__version__):
        raise ImportError(
            f"[planish] PyTorch must be {_minor(built_with)}, with which Planish {version} was "
            f"built, but has version {torch.__version__}: install torch=={_minor(built_with)}.*, "
            f"or build Planish with the PyTorch that is here, in its repository: "
            f"pip install --no-build-isolation ."
        )
    if not hasattr(torch.ops.planish, "rnn_forward"):  # a program may have loaded it before
        try:
            torch.ops.load_library(str(library))  # type: ignore[no-untyped-call]
        except OSError as error:
            raise ImportError(f"[planish] {library} could not be loaded: {error}") from error
    return version
