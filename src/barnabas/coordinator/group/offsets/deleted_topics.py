"""Offsets of topics that were deleted while no coordinator could remove them.

When a topic is deleted, the coordinator removes its offsets. But a coordinator may end before it has, and the
next one may have missed the deletion. So each coordinator searches its groups, after loading and
periodically, for topics that the metadata do not have. Such a topic may be deleted, or may not have arrived
yet. Only the store can tell, so it is asked until it answers. Offsets of topics that the store does not have
are removed.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Collection, Iterator
from typing import Any

from barnabas.coordinator.group.offsets.expiry import OffsetRemoval, StoredIds
from barnabas.coordinator.group.offsets.store import OffsetStore
from barnabas.coordinator.group.state.registry import GroupRegistry
from barnabas.coordinator.runtime.decision import Decision
from barnabas.coordinator.runtime.peers import Start

FindTopics = Callable[[Collection[str]], Awaitable[StoredIds]]
"""Asks the coordination store for topics by name."""

LOOK_KEY = ("look for lost topics",)
GO_ON_KEY = ("go on looking for lost topics",)
ASK_AGAIN_KEY = ("ask again for lost topics",)
REMOVE_KEY = "offsets of lost topics"
ASK_AGAIN_MS = 5_000.0
"""First pause before the store is asked again; it doubles each time."""
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
        self._is_asking = False

    def start(self) -> None:
        """Search now that everything is replayed, and periodically."""
        interval_ms = self._registry.settings.offsets_retention_check_interval_ms
        self._registry.timers.every(LOOK_KEY, interval_ms, lambda: self._look(ASK_AGAIN_MS), delay_ms=0)

    def _look(self, again_ms: float) -> Decision[Any]:
        return self._look_through(iter(self._offsets.groups()), set(), again_ms)

    def _look_through(self, groups: Iterator[str], doubtful: set[str], again_ms: float) -> Decision[Any]:
        """Search some of the remaining groups, in this turn."""
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
        elif doubtful and not self._is_asking:
            self._is_asking = True
            self._start(self._ask(doubtful, again_ms))
        return Decision()

    async def _ask(self, asked: Collection[str], again_ms: float) -> None:
        """Ask one question at a time: a slow store gets no second one meanwhile."""
        try:
            stored = await self._find(asked)
        finally:
            self._is_asking = False
        timers = self._registry.timers
        if stored:
            key = (REMOVE_KEY, frozenset(stored))
            timers.schedule(key, 0, lambda: self._remove(key, stored), is_retried=True)
        if len(stored) < len(asked):
            next_ms = min(2 * again_ms, self._registry.settings.offsets_retention_check_interval_ms)
            timers.schedule(ASK_AGAIN_KEY, again_ms, lambda: self._look(next_ms))

    def _remove(self, key: tuple[str, frozenset[str]], stored: StoredIds) -> Decision[Any]:
        """Remove offsets for one turn; the next one follows until nothing is left."""
        decision = self._removal.topics_lost(stored)
        if not decision.response:
            self._registry.timers.schedule(key, PAUSE_MS, lambda: self._remove(key, stored), is_retried=True)
        return decision
