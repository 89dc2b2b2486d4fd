"""The offsets of topics that were deleted while nobody was there to hear of it.

Whoever coordinates a group when a topic of its offsets is deleted removes them. But a coordinator may be gone
before it has, and the next one may not have been told: it looks through what it has replayed, and then from
time to time, for topics that the metadata do not know. They may be gone, or not heard of yet; only the store
can tell, so it is asked, and asked again if it does not answer. What it says is gone is removed.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from typing import Any

from barnabas.coordinator.asking import Start
from barnabas.coordinator.decision import Decision
from barnabas.coordinator.group.offset_removal import OffsetRemoval
from barnabas.coordinator.group.offset_store import OffsetStore
from barnabas.coordinator.group.registry import GroupRegistry
from barnabas.coordinator.group.stored_topics import FindTopics, StoredIds

LOOK_KEY = ("look for lost topics",)
GO_ON_KEY = ("go on looking for lost topics",)
ASK_AGAIN_KEY = ("ask again for lost topics",)
REMOVE_KEY = "offsets of lost topics"
ASK_AGAIN_MS = 5_000.0
"""The pause before a store that did not answer is asked again, doubled each time."""
GROUPS_PER_TURN = 5_000
PAUSE_MS = 20


class LostTopics:
    def __init__(
        self,
        registry: GroupRegistry,
        offsets: OffsetStore,
        removal: OffsetRemoval,
        find: FindTopics,
        start: Start,
    ) -> None:
        self._registry = registry
        self._offsets = offsets
        self._removal = removal
        self._find = find
        self._start = start

    def start(self) -> None:
        """Everything is replayed: look now, and from time to time."""
        interval_ms = self._registry.settings.offsets_retention_check_interval_ms
        self._registry.timers.every(LOOK_KEY, interval_ms, lambda: self._look(ASK_AGAIN_MS), delay_ms=0)

    def _look(self, again_ms: float) -> Decision[Any]:
        return self._look_through(iter(self._offsets.groups()), set(), again_ms)

    def _look_through(self, groups: Iterator[str], doubtful: set[str], again_ms: float) -> Decision[Any]:
        """Look at some of the groups that are left, in this turn."""
        topics = self._registry.topics
        for group in itertools.islice(groups, GROUPS_PER_TURN):
            names = self._offsets.topic_names(group)
            doubtful.update(name for name in names if topics.topic(name) is None)
        following = next(groups, None)
        if following is not None:
            rest = itertools.chain((following,), groups)
            self._registry.timers.schedule(
                GO_ON_KEY, PAUSE_MS, lambda: self._look_through(rest, doubtful, again_ms)
            )
        elif doubtful:
            self._start(self._ask(doubtful, again_ms))
        return Decision()

    async def _ask(self, asked: Collection[str], again_ms: float) -> None:
        stored = await self._find(asked)
        timers = self._registry.timers
        if stored:
            key = (REMOVE_KEY, frozenset(stored))
            timers.schedule(key, 0, lambda: self._remove(key, stored), is_retried=True)
        if len(stored) < len(asked):
            next_ms = min(2 * again_ms, self._registry.settings.offsets_retention_check_interval_ms)
            timers.schedule(ASK_AGAIN_KEY, again_ms, lambda: self._look(next_ms))

    def _remove(self, key: tuple[str, frozenset[str]], stored: StoredIds) -> Decision[Any]:
        """One turn; the next one follows until nothing is left."""
        decision = self._removal.topics_lost(stored)
        if not decision.response:
            self._registry.timers.schedule(key, PAUSE_MS, lambda: self._remove(key, stored), is_retried=True)
        return decision
