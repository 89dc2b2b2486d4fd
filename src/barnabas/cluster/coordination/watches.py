"""One-shot watches of one session."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from barnabas.cluster.coordination.contract import EventType, Watch, WatchEvent

logger = logging.getLogger(__name__)

_Table = dict[str, dict[Watch, None]]


class Watches:
    """Callbacks by path. The same callback set twice on a node fires once, as in ZooKeeper."""

    __slots__ = ("_child", "_data")

    def __init__(self) -> None:
        self._data: _Table = {}
        self._child: _Table = {}

    def on_data(self, path: str, watch: Watch) -> None:
        self._data.setdefault(path, {})[watch] = None

    def on_children(self, path: str, watch: Watch) -> None:
        self._child.setdefault(path, {})[watch] = None

    @property
    def data_paths(self) -> list[str]:
        return list(self._data)

    @property
    def child_paths(self) -> list[str]:
        return list(self._child)

    def clear(self) -> None:
        self._data.clear()
        self._child.clear()

    def __bool__(self) -> bool:
        return bool(self._data or self._child)

    def fire(self, events: Iterable[WatchEvent]) -> None:
        """Call the watches of these events, in order. A callback that fails does not stop the others."""
        for event in events:
            for watch in self._take(event):
                try:
                    watch(event)
                except Exception:
                    logger.exception("watch on %s failed", event.path)

    def _take(self, event: WatchEvent) -> dict[Watch, None]:
        path = event.path
        if event.type is EventType.CHILD:
            return self._child.pop(path, {})
        concerned = self._data.pop(path, {})
        if event.type is EventType.DELETED:
            concerned |= self._child.pop(path, {})
        return concerned
