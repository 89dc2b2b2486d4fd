"""Watches of the controller: one per path and kind, set again by the next read of the path.

A watch of the store fires once and cannot be removed. So active watches are remembered as long as the session
lives. Reading a path twice leaves one watch. A watch that fires after the controller resigned, or after its
topic was deleted, does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from barnabas.cluster.coordination.contract import Stat, Watch, WatchEvent
from barnabas.controller.state.store import ControllerStore

Handler = Callable[[], None]


class Watching:
    """Handlers of the store's watches; lives as long as the session."""

    def __init__(self) -> None:
        self._armed: set[tuple[str, str]] = set()
        self._handlers: dict[tuple[str, str], Handler] = {}
        self._session = 0

    async def children(self, store: ControllerStore, path: str, handler: Handler) -> list[str]:
        """Children of an existing node; `handler` is called on the next change."""
        with self._watch("children", path, handler) as watch:
            return await store.children(path, watch)

    async def data(self, store: ControllerStore, path: str, handler: Handler) -> tuple[bytes, Stat] | None:
        """Data of the node; None if it does not exist, and `handler` is then called on its creation."""
        while True:
            if not await self.existence(store, path, handler):
                return None
            found = await store.get(path)
            if found is not None:
                return found

    async def existence(self, store: ControllerStore, path: str, handler: Handler) -> bool:
        """Whether the node exists; `handler` is called on its creation, change or deletion."""
        with self._watch("data", path, handler) as watch:
            return await store.exists(path, watch) is not None

    async def existences(self, store: ControllerStore, handlers: Mapping[str, Handler]) -> None:
        """Watch many nodes in pipelined requests."""
        armed = {path: self._arm(("data", path), handler) for path, handler in handlers.items()}
        watches = {path: watch for path, watch in armed.items() if watch is not None}
        try:
            await store.watch_many(watches)
        except BaseException:
            self._armed.difference_update(("data", path) for path in watches)
            raise

    def forget(self, path: str) -> None:
        """Remove the handlers of this node."""
        for kind in ("children", "data"):
            self._handlers.pop((kind, path), None)

    def session_lost(self) -> None:
        """Drop all watches, as the store has."""
        self._session += 1
        self._armed.clear()
        self._handlers.clear()

    @contextmanager
    def _watch(self, kind: str, path: str, handler: Handler) -> Iterator[Watch | None]:
        """Watch to leave with a read, unless one is active. A read that fails leaves none."""
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

        def fired(event: WatchEvent) -> None:  # noqa: ARG001 - the handler reads the node
            if session == self._session:
                self._armed.discard(key)
                handler = self._handlers.get(key)
                if handler is not None:
                    handler()

        return fired
