"""Finds and loads the operator library, ``libplanish_torch-2.13.so`` for PyTorch 2.13."""

import os
import pathlib
import re
import sys
from collections.abc import Iterable

import torch

_SUFFIX = ".dylib" if sys.platform == "darwin" else ".so"
_BUILD = "build Planish with the installed PyTorch, in its repository: pip install --no-build-isolation ."


def _minor(version: str) -> str:
    """Returns ``"2.13"`` for ``"2.13.0+cpu"``: the part that determines the C++ interface."""
    return ".".join(version.split(".")[:2])


def _name(minor: str) -> str:
    """Returns the file name of the library for a minor version of PyTorch."""
    return f"libplanish_torch-{minor}{_SUFFIX}"


def libraries(folders: Iterable[str]) -> dict[str, pathlib.Path]:
    """Returns the libraries by the minor version of PyTorch that each was built with.

    These are ``$PLANISH_LIBRARY``, or the libraries in ``lib`` of the package's folders.

    Args:
        folders: the folders of the package, its ``__path__``.
    """
    named = os.environ.get("PLANISH_LIBRARY")
    if named:
        candidates = [pathlib.Path(named)]
    else:  # an editable installation has two folders, one of them without libraries
        candidates = [
            path
            for folder in folders
            for path in (pathlib.Path(folder) / "lib").glob(f"*{_SUFFIX}")
        ]
    found = {}
    for path in candidates:
        match = re.fullmatch(_name(r"(\d+\.\d+)"), path.name)
        if match and path.is_file():
            found[match[1]] = path.resolve()
    by_version = sorted(found, key=lambda minor: [int(part) for part in minor.split(".")])
    return {minor: found[minor] for minor in by_version}


def _find(folders: Iterable[str]) -> pathlib.Path:
    """Returns the library for the PyTorch in use."""
    folders = list(folders)
    minor = _minor(torch.__version__)
    found = libraries(folders)
    if minor in found:
        return found[minor]
    named = os.environ.get("PLANISH_LIBRARY")
    if found:
        raise ImportError(
            f"[planish] this Planish was built for PyTorch {', '.join(found)}, but PyTorch "
            f"{torch.__version__} is installed: install torch=={list(found)[-1]}.*, or {_BUILD}"
        )
    if named:
        raise ImportError(
            f"[planish] PLANISH_LIBRARY must be the path of {_name(minor)}, got {named}"
        )
    places = ", ".join(f"{folder}/lib" for folder in folders)
    raise ImportError(
        f"[planish] cannot find {_name(minor)} in {places}: install Planish again, or set "
        f"PLANISH_LIBRARY to the path of the library"
    )


def load(folders: Iterable[str]) -> str:
    """Loads the library, which registers the operators as ``torch.ops.planish``.

    PyTorch's C++ interface differs between minor versions, so the library is chosen by its name,
    before any of its code runs.

    Args:
        folders: the folders of the package, its ``__path__``.

    Returns:
        The version of Planish.

    Raises:
        ImportError: there is no library for this PyTorch, or it cannot be loaded.
    """
    library = _find(folders)
    if not hasattr(torch.ops.planish, "rnn_forward"):  # the program can have loaded it already
        try:
            torch.ops.load_library(str(library))  # type: ignore[no-untyped-call]
        except OSError as error:
            raise ImportError(
                f"[planish] {library} cannot be loaded ({error}): install the Planish for this "
                f"processor and system, or {_BUILD}"
            ) from error
    return str(torch.ops.planish.version())
