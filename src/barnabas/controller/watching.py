"""The watches of the controller: one per path and kind, put back by whoever reads the path again.

A watch of the store fires once and cannot be taken back. So what is watched is remembered for as
long as the session lives: reading a path twice leaves one watch, and a watch that fires after the
controller lost interest (it resigned, the topic is gone) does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from barnabas.cluster.coordination import Stat, Watch, WatchEvent
from barnabas.controller.store import ControllerStore

Handler = Callable[[], None]


class Watching:
    """What the store's watches lead to; lives as long as the session."""

    def __init__(self) -> None:
        self._armed: set[tuple[str, str]] = set()
        self._handlers: dict[tuple[str, str], Handler] = {}
        self._session = 0

    async def children(self, store: ControllerStore, path: str, handler: Handler) -> list[str]:
        """The children of a node that exists; `handler` hears of the next change."""
        with self._watch("children", path, handler) as watch:
            return await store.children(path, watch)

    async def data(self, store: ControllerStore, path: str, handler: Handler) -> tuple[bytes, Stat] | None:
        """The node; if it does not exist `handler` hears of its creation."""
        while True:
            if not await self.existence(store, path, handler):
                return None
            found = await store.get(path)
            if found is not None:
                return found

    async def existence(self, store: ControllerStore, path: str, handler: Handler) -> bool:
        """Whether the node is there; `handler` hears of its creation, change or end."""
        with self._watch("data", path, handler) as watch:
            return await store.exists(path, watch) is not None

    async def existences(self, store: ControllerStore, handlers: Mapping[str, Handler]) -> None:
        """Watch many nodes, asked for all at once."""
        armed = {path: self._arm(("data", path), handler) for path, handler in handlers.items()}
        watches = {path: watch for path, watch in armed.items() if watch is not None}
        try:
            await store.watch_many(watches)
        except BaseException:
            self._armed.difference_update(("data", path) for path in watches)
            raise

    def forget(self, path: str) -> None:
        """What happens to this node is of no interest any more."""
        for kind in ("children", "data"):
            self._handlers.pop((kind, path), None)

    def session_lost(self) -> None:
        """The store has forgotten all watches."""
        self._session += 1
        self._armed.clear()
        self._handlers.clear()

    @contextmanager
    def _watch(self, kind: str, path: str, handler: Handler) -> Iterator[Watch | None]:
        """The watch to leave with a reading, if none waits already; a reading that fails leaves none."""
        watch = self._arm((kind, path), handler)
        try:
            yield watch
        except BaseException:
            if watch is not None:
                self._armed.discard((kind, path))
            raise

    def _arm(self, key: tuple[str, str], handler: Handler) -> Watch | None:
        self._handlers[key] = handler
        if key in self._armed:
            return None
        self._armed.add(key)
        return self._fired(key)

    def _fired(self, key: tuple[str, str]) -> Watch:
        session = self._session

        def fired(event: WatchEvent) -> None:  # noqa: ARG001 - who hears of it looks for himself
            if session == self._session:
                self._armed.discard(key)
                interested = self._handlers.get(key)
                if interested is not None:
                    interested()

        return fired
