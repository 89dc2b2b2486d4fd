"""Places that the navigation links to: one for each section, and one for each of several clusters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

CLUSTERS: Final = "/clusters"


@dataclass(frozen=True, slots=True)
class Place:
    title: str
    path: str
    is_shown: bool = True
    within: str = ""
    """Path of the place that is marked instead, for one that is not shown."""


class ClusterLink(NamedTuple):
    """Link to the pages of another cluster of the same console."""

    name: str
    path: str


def base_of(cluster: str) -> str:
    return f"{CLUSTERS}/{cluster}"


def is_current(place: Place, path: str, places: Sequence[Place]) -> bool:
    """Whether the page at `path` belongs to the place."""
    own = [place.path, *(each.path for each in places if each.within == place.path)]
    return any(path == each or (each != "/" and path.startswith(f"{each}/")) for each in own)
