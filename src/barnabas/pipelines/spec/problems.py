"""Problems of a spec: location, message, and the option that was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from barnabas.pipelines.spec.options.option import Value
from barnabas.pipelines.spec.yaml_source import Path


@dataclass(frozen=True, slots=True)
class Problem:
    path: Path
    file: str
    line: int | None
    message: str
    missing: str = ""
    """Option at `path` that is required and not given."""

    @property
    def option(self) -> str:
        return ".".join(map(str, self.path))

    def __str__(self) -> str:
        location = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{location}: {self.option + ': ' if self.path else ''}{self.message}"


class InvalidSpec(Exception):
    """Spec with problems; the message lists one per line."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)


def meant(word: str, known: Iterable[str]) -> str:
    names = list(known)
    # Between `filter` and Connect's `Filter`, prefer the one with the capitalisation of `word`.
    likeliest_last = sorted(names, key=lambda name: name[:1].isupper() == word[:1].isupper())
    folded = {name.lower(): name for name in likeliest_last}
    close = difflib.get_close_matches(word.lower(), folded, n=1, cutoff=0.5)
    return f"did you mean {folded[close[0]]!r}?" if close else "expected one of " + ", ".join(names)


def shown(value: Value) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    return repr(value)
