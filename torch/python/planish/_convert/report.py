"""The report that ``convert`` returns."""

import re
import textwrap
from dataclasses import dataclass, field

__all__ = ["Change", "Conversion", "Left", "Unfit"]


class Unfit(Exception):
    """The reason why a module is left."""


@dataclass(frozen=True)
class Change:
    """A module that was replaced."""

    names: tuple[str, ...]  #: its places in the model: more than one if it is shared
    before: str  #: its class
    after: str  #: the class of its replacement
    dropped: tuple[str, ...]  #: its parameters and buffers that the replacement does not have
    added: tuple[str, ...]  #: parameters that only the replacement has, with initial values


@dataclass(frozen=True)
class Left:
    """A norm or recurrent layer that was not replaced."""

    names: tuple[str, ...]  #: its places in the model
    kind: str  #: its class
    reason: str  #: why it was not replaced


@dataclass
class Conversion:
    """The result of ``convert``. Prints as a list of changes, grouped by class."""

    to: str
    changed: list[Change] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        counts = f"{len(self.changed)} changed, {len(self.left)} left"
        lines = [f'convert to "{self.to}": {counts}']
        groups: dict[str, list[str]] = {}
        for change in self.changed:
            text = f"{change.before} -> {change.after}"
            for verb, tensors in (("drops", change.dropped), ("adds", change.added)):
                kinds = dict.fromkeys(re.sub(r"_l\d+(_reverse)?$", "", name) for name in tensors)
                text += f", {verb} {' and '.join(kinds)}" if tensors else ""
            groups.setdefault(text, []).append(" = ".join(change.names))
        for left in self.left:
            text = f"{left.kind} left: {left.reason}"
            groups.setdefault(text, []).append(" = ".join(left.names))
        for text, names in groups.items():
            lines.extend(_wrap(f"{len(names)} x {text}", "  ", "    "))
            lines.extend(_wrap(", ".join(names), " " * 6, " " * 6))
        lines.extend(f"  note: {note}" for note in self.notes)
        return "\n".join(lines)

    __repr__ = __str__


def _wrap(words: str, first: str, rest: str) -> list[str]:
    return textwrap.wrap(
        words, 100, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False
    )
