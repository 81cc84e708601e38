"""Fences the examples of docstrings (``>>>``), which Markdown would read as text."""

import re

import griffe


def fenced(text: str) -> str:
    lines, inside = [], False
    for line in text.split("\n"):
        if not inside and line.lstrip().startswith(">>>"):
            indent = re.match(" *", line).group()
            lines += ["", f"{indent}```pycon"]
            inside = True
        elif inside and not line.strip():
            lines.append(f"{indent}```")
            inside = False
        lines.append(line)
    return "\n".join([*lines, f"{indent}```"] if inside else lines)


class Doctests(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **kwargs: object) -> None:
        if obj.docstring:
            obj.docstring.value = fenced(obj.docstring.value)
