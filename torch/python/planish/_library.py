"""Finds and loads the operator library, ``libplanish_torch.so`` (on macOS ``.dylib``)."""

import json
import os
import pathlib
import sys
from collections.abc import Iterable

import torch

_NAME = "libplanish_torch" + (".dylib" if sys.platform == "darwin" else ".so")


def _find(folders: Iterable[str]) -> pathlib.Path:
    """Returns ``$PLANISH_LIBRARY``, or the library in ``lib`` of one of the package's folders."""
    named = os.environ.get("PLANISH_LIBRARY")
    if named:
        candidates = [pathlib.Path(named)]
    else:  # an editable installation has two folders, one of them without the library
        candidates = [pathlib.Path(folder) / "lib" / _NAME for folder in folders]
    for candidate in candidates:
        if candidate.is_file():
            return candidate.resolve()
    places = ", ".join(str(candidate) for candidate in candidates)
    advice = "install Planish again, or set PLANISH_LIBRARY to the path of the library"
    if named:
        advice = "PLANISH_LIBRARY must be the path of the library"
    raise ImportError(f"[planish] cannot find {_NAME} at {places}: {advice}")


def _minor(version: str) -> str:
    """Returns ``"2.13"`` for ``"2.13.0+cpu"``: the part that determines the C++ interface."""
    return ".".join(version.split(".")[:2])


def load(folders: Iterable[str]) -> str:
    """Loads the library, which registers the operators as ``torch.ops.planish``.

    PyTorch's C++ interface differs between minor versions, so the version is compared before any of
    the library's code runs.

    Args:
        folders: the folders of the package, its ``__path__``.

    Returns:
        The version of Planish.

    Raises:
        ImportError: the library is missing, was built with another PyTorch, or cannot be loaded.
    """
    library = _find(folders)
    try:
        build = json.loads(library.with_suffix(".json").read_text(encoding="utf-8"))
        version, built_with = str(build["planish"]), str(build["torch"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ImportError(
            f"[planish] cannot read {library.with_suffix('.json')}, which contains the PyTorch "
            f"version that the library was built with ({error}): build Planish again"
        ) from error
    if _minor(built_with) != _minor(torch.__version__):
        raise ImportError(
            f"[planish] Planish {version} was built with PyTorch {_minor(built_with)}, but PyTorch "
            f"{torch.__version__} is installed: install torch=={_minor(built_with)}.*, or build "
            f"Planish with the installed PyTorch, in its repository: "
            f"pip install --no-build-isolation ."
        )
    if not hasattr(torch.ops.planish, "rnn_forward"):  # the program can have loaded it already
        try:
            torch.ops.load_library(str(library))  # type: ignore[no-untyped-call]
        except OSError as error:
            raise ImportError(f"[planish] {library} cannot be loaded: {error}") from error
    return version
