"""Common parts of the converters: their result, and checked access to the arrays of a source."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

Source = Mapping[str, Any] | str | os.PathLike[str]
"""Arrays or tensors by key, or the path of an `.npz` file."""

_LISTED = 12  # keys named in an error


@dataclass(frozen=True, eq=False)
class Converted:
    """Weights of a recurrent layer in the layout of a module of `planish.nn`.

    Attributes:
        module: the name of the module's class, such as `"LayerNormLSTM"`.
        options: the constructor's arguments: `input_size`, `hidden_size`, `variant` and `eps`, and
            `bias`, `num_layers` or `bidirectional` if they are not the defaults.
        state_dict: copies of the tensors by the module's keys, with their types unchanged.
    """

    module: str
    options: dict[str, Any]
    state_dict: dict[str, Tensor]

    def build(self) -> torch.nn.Module:
        """Returns the module with these weights, in their type."""
        from planish import nn

        module: torch.nn.Module = getattr(nn, self.module)(**self.options)
        module.to(dtype=next(iter(self.state_dict.values())).dtype)
        module.load_state_dict(self.state_dict)
        return module


class Weights:
    """Arrays of a source whose keys begin with `prefix`, each checked when it is taken.

    Errors are ValueError, begin with `[converters.layout]` and name the whole key.
    """

    def __init__(
        self, layout: str, source: Source, prefix: str = "", other_prefix: str = "", end: str = ""
    ) -> None:
        """Selects the keys that begin with `prefix`, except those that begin with `other_prefix`.

        Names are the keys without `prefix`, and without `end` if a key has it.
        """
        self.layout = layout
        self._arrays = source if isinstance(source, Mapping) else open_npz(layout, source)
        self._prefix = prefix
        self._keys = {
            key[len(prefix) :].removesuffix(end): key
            for key in self._arrays
            if key.startswith(prefix) and not (other_prefix and key.startswith(other_prefix))
        }
        self._taken: set[str] = set()
        self._dtype: torch.dtype | None = None
        self._first = ""

    def __contains__(self, name: str) -> bool:
        return name in self._keys

    def error(self, text: str) -> ValueError:
        return ValueError(f"[converters.{self.layout}] {text}")

    def names(self) -> list[str]:
        return list(self._keys)

    def key(self, name: str) -> str:
        """Returns the whole key of `name`, for an error."""
        return self._keys.get(name, self._prefix + name)

    def matrix(self, name: str) -> tuple[int, int]:
        """Returns the sizes of the matrix `name`. Raises if one is 0."""
        sizes = list(self._read(name).shape)
        if len(sizes) != 2 or 0 in sizes:
            raise self.error(f"{self.key(name)} must have two sizes of 1 or more, got {sizes}")
        return sizes[0], sizes[1]

    def take(self, name: str, *sizes: int) -> Tensor:
        """Returns a copy of the array `name`; checks its sizes, and its type against the others."""
        tensor = self._read(name)
        key = self.key(name)
        if list(tensor.shape) != list(sizes):
            raise self.error(f"{key} must have {list(sizes)}, got {list(tensor.shape)}")
        if self._dtype is None:
            self._dtype, self._first = tensor.dtype, key
        if tensor.dtype != self._dtype:
            raise self.error(
                f"{key} must have the type of {self._first}, {_name(self._dtype)}, got "
                f"{_name(tensor.dtype)}"
            )
        self._taken.add(name)
        return tensor.detach().clone(memory_format=torch.contiguous_format)

    def finish(self, layer: str) -> None:
        """Raises if a key of the source was never taken, because `layer` has no such key."""
        left = [key for name, key in self._keys.items() if name not in self._taken]
        if left:
            raise self.error(f"the keys must be those of {layer}, got {_listed(left)}")

    def _read(self, name: str) -> Tensor:
        key = self.key(name)
        if name not in self._keys:
            found = sorted(self._keys.values())
            there = _listed(found) if found else f"none that begins with {self._prefix!r}"
            raise self.error(f"the keys must include {key}, got {there}")
        try:
            array = self._arrays[key]
        except ValueError as error:
            if "allow_pickle" not in str(error):
                raise
            raise self.error(
                f"{key} must be an array of floating-point elements, got pickled Python objects, "
                "which are not read"
            ) from None
        if not isinstance(array, Tensor):
            array = np.asarray(array)
            if array.dtype.kind != "f" or array.dtype.itemsize > 8:
                raise self.error(
                    f"{key} must have floating-point elements of 16 to 64 bits, got "
                    f"{array.dtype}"
                )
            # torch.from_numpy rejects other byte orders and negative strides, and warns about
            # read-only memory.
            native = array.dtype.newbyteorder("=")
            array = torch.from_numpy(np.array(array, dtype=native, order="C"))
        if not array.is_floating_point():
            raise self.error(
                f"{key} must have floating-point elements of 16 to 64 bits, got "
                f"{_name(array.dtype)}"
            )
        tensor: Tensor = array
        return tensor


def open_npz(layout: str, path: str | os.PathLike[str]) -> Mapping[str, Any]:
    """Returns the arrays of an `.npz` file, read on access. Pickled arrays are rejected."""
    with open(path, "rb") as file:
        if not zipfile.is_zipfile(file):
            raise ValueError(
                f"[converters.{layout}] {os.fspath(path)} must be an .npz file, got another format"
            )
    arrays: Mapping[str, Any] = np.load(path, allow_pickle=False)
    return arrays


def reorder(tensor: Tensor, have: str, want: str, dim: int = 0) -> Tensor:
    """Returns the blocks of `tensor` along `dim`, one a gate, moved from order `have` to `want`."""
    blocks = dict(zip(have, tensor.chunk(len(have), dim), strict=True))
    return torch.cat([blocks[gate] for gate in want], dim)


def options(inputs: int, hidden: int, variant: str, eps: float) -> dict[str, Any]:
    return {"input_size": inputs, "hidden_size": hidden, "variant": variant, "eps": eps}


def lstm_sizes(key: str, columns: int, hidden: int) -> tuple[int, ...]:
    """Returns the sizes of an LSTM's parameter `key`, without `_l0`; `columns` are its inputs."""
    if key == "weight_ih":
        return 4 * hidden, columns
    if key == "weight_hh":
        return 4 * hidden, hidden
    return (hidden,) if key.startswith("ln_c") else (4 * hidden,)


def to_numpy(layout: str, tensors: Mapping[str, Tensor]) -> dict[str, np.ndarray[Any, Any]]:
    """Returns copies of the tensors as arrays, for `numpy.savez(path, **arrays)`."""
    arrays = {}
    for key, tensor in tensors.items():
        if tensor.dtype == torch.bfloat16:
            raise ValueError(
                f"[converters.{layout}] {key} must have a type that NumPy supports, got bfloat16"
            )
        arrays[key] = np.array(tensor.detach().cpu().numpy(), order="C")
    return arrays


def contiguous(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns contiguous copies of the tensors."""
    return {
        key: tensor.clone(memory_format=torch.contiguous_format)
        for key, tensor in tensors.items()
    }


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _listed(keys: list[str]) -> str:
    more = f" and {len(keys) - _LISTED} more" if len(keys) > _LISTED else ""
    return ", ".join(keys[:_LISTED]) + more
