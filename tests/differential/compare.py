"""Differences of two trees, and those of them that are accepted.

`accepted.toml` is the one list of differences that stay. Each says where (API, versions, case,
path; `*` stands for anything), if need be between which values, and why. One that a whole run did
not need fails that run, so the list cannot grow stale.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from barnabas.protocol.schema.declarations import Versions
from tests.differential.case import Triple
from tests.differential.normalise import Tree

ACCEPTED = Path(__file__).with_name("accepted.toml")
MISSING = "<absent>"


@dataclass(frozen=True)
class Difference:
    path: str
    ours: Tree
    kafka: Tree

    def __str__(self) -> str:
        return f"{self.path}: ours {_short(self.ours)}, Kafka {_short(self.kafka)}"


def differences(ours: Tree, kafka: Tree, path: str = "") -> Iterator[Difference]:
    if isinstance(ours, dict) and isinstance(kafka, dict):
        for key in [*kafka, *(key for key in ours if key not in kafka)]:
            at = f"{path}.{key}".lstrip(".")
            yield from differences(ours.get(key, MISSING), kafka.get(key, MISSING), at)
    elif isinstance(ours, list) and isinstance(kafka, list) and len(ours) == len(kafka):
        for number, (mine, theirs) in enumerate(zip(ours, kafka, strict=True)):
            yield from differences(mine, theirs, f"{path}.{number}")
    elif ours != kafka or type(ours) is not type(kafka):
        yield Difference(path, ours, kafka)


@dataclass(frozen=True)
class Accepted:
    """One line of the list."""

    api: str
    versions: Versions
    case: re.Pattern[str]
    path: re.Pattern[str]
    ours: str | None
    kafka: str | None
    """Expected values of the two sides, as they are printed; None: anything."""
    reason: str
    label: str

    def covers(self, triple: Triple, difference: Difference) -> bool:
        return (
            self.api in (triple.case.api.camel_name, "*")
            and self.ours in (None, str(difference.ours))
            and self.kafka in (None, str(difference.kafka))
            and triple.version in self.versions
            and self.case.fullmatch(triple.case.name) is not None
            and self.path.fullmatch(difference.path) is not None
        )


def sorted_out(
    triple: Triple, found: Iterable[Difference], accepted: Sequence[Accepted]
) -> tuple[list[Difference], list[Accepted]]:
    """The differences that nothing accepts, and what accepts the others."""
    kept: list[Difference] = []
    used: list[Accepted] = []
    for difference in found:
        row = next((each for each in accepted if each.covers(triple, difference)), None)
        if row is None:
            kept.append(difference)
        else:
            used.append(row)
    return kept, used


def read_accepted(path: Path = ACCEPTED) -> list[Accepted]:
    rows: list[dict[str, Any]] = tomllib.loads(path.read_text()).get("accepted", [])
    return [
        Accepted(
            api=row["api"],
            versions=Versions.parse(row.get("versions", "0+")),
            case=_pattern(row.get("case", "*")),
            path=_pattern(each),
            ours=row.get("ours"),
            kafka=row.get("kafka"),
            reason=row["reason"],
            label=f"{row['api']} {row.get('versions', '')} {row.get('case', '*')}: {each}",
        )
        for row in rows
        for each in row["paths"]
    ]


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(".*".join(re.escape(part) for part in text.split("*")), re.DOTALL)


def _short(tree: Tree) -> str:
    text = repr(tree)
    return text if len(text) <= 200 else f"{text[:200]}…"
