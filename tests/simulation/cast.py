"""Optional parts of a run, next to the producers and readers that every run has.

The seed turns each part on or off (swarm testing: parts that hinder each other are also seen alone). A part
brings its topics, clients that work until the faults are over, a look at the result, and its own complaints.
It knows the cluster as clients do. Only its look at the end may read the machines.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tests.chaos.history import History
from tests.simulation.clients import World
from tests.simulation.embedded import EmbeddedView
from tests.simulation.machine import Machine
from tests.simulation.network import Network
from tests.simulation.shared import SharedView
from tests.simulation.store import Store

ALL_BROKERS = 0


class Topic(NamedTuple):
    partitions: int
    replicas: int = ALL_BROKERS
    configs: dict[str, str] = {}  # noqa: RUF012 - never changed


class Stage(NamedTuple):
    """World and tools of a part."""

    seed: int
    brokers: int
    machines: Sequence[Machine]
    network: Network
    store: Store | EmbeddedView | SharedView
    history: History
    """Of the producers and readers that are always there."""
    world: Callable[[str, History], World]
    """For a client of this name, that writes into this history."""
    in_sync: Callable[[], Coroutine[Any, Any, None]]
    """Waits until every broker serves and every replica is in sync."""
    settings: Mapping[str, str] = {}
    """Those of brokers that the seed has drawn."""


Client = tuple[str, Coroutine[Any, Any, None]]


class Part:
    """One part, created for each run."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    def topics(self) -> dict[str, Topic]:
        return {}

    def clients(self, stage: Stage) -> Iterator[Client]:
        """They end when the faults are over."""
        yield from ()

    async def look(self, stage: Stage) -> None:
        """All clients have stopped, and everything is repaired."""

    def complaints(self) -> list[str]:
        return []


class Cast:
    """The parts of one run, and what they need."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = parts

    @property
    def topics(self) -> dict[str, Topic]:
        return {name: topic for part in self._parts for name, topic in part.topics().items()}

    def clients(self, stage: Stage) -> Iterator[Client]:
        for part in self._parts:
            yield from part.clients(stage)

    async def look(self, stage: Stage) -> None:
        for part in self._parts:
            await part.look(stage)

    def complaints(self) -> list[str]:
        return [complaint for part in self._parts for complaint in part.complaints()]
