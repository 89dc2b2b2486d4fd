"""One face for four clients: what a behaviour needs of a producer, of a consumer and of their packages.

A driver raises `Absent` where its client has no such thing. Settings have Kafka's names.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")
TIMEOUT_S = 60.0
POLL_S = 0.2

At = tuple[str, int]
"""Topic and partition."""


class Absent(Exception):
    """The client has no such thing."""


class Placed(NamedTuple):
    partition: int
    offset: int


class Got(NamedTuple):
    topic: str
    partition: int
    offset: int
    key: Any
    value: Any
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int = -1


class Sender(ABC):
    @abstractmethod
    def send(
        self,
        topic: str,
        value: Any,
        *,
        key: Any = None,
        headers: Sequence[tuple[str, bytes]] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Callable[[], Placed]:
        """Take a record; the result waits for its acknowledgement."""

    @abstractmethod
    def begin(self) -> None: ...
    @abstractmethod
    def commit(self) -> None: ...
    @abstractmethod
    def abort(self) -> None: ...
    @abstractmethod
    def send_offsets(self, offsets: Mapping[At, int], member: Any) -> None: ...
    @abstractmethod
    def close(self) -> None: ...


class Member(ABC):
    """A consumer, in a group or with assigned partitions."""

    def __init__(self) -> None:
        self.assigned: list[set[At]] = []
        self.revoked: list[set[At]] = []

    @abstractmethod
    def poll(self) -> list[Got]: ...
    @abstractmethod
    def assignment(self) -> set[At]: ...
    @abstractmethod
    def seek(self, at: At, offset: int) -> None: ...
    @abstractmethod
    def offset_for_time(self, at: At, timestamp_ms: int) -> int | None: ...
    @abstractmethod
    def pause(self, at: At) -> None: ...
    @abstractmethod
    def resume(self, at: At) -> None: ...
    @abstractmethod
    def commit(self) -> None: ...
    @abstractmethod
    def close(self) -> None: ...


class Driver(ABC):
    name: str
    package: str

    @abstractmethod
    def sender(self, bootstrap: str, **settings: Any) -> Sender: ...

    @abstractmethod
    def member(
        self,
        bootstrap: str,
        *,
        topics: Collection[str] = (),
        pattern: str | None = None,
        assigned: Collection[At] = (),
        **settings: Any,
    ) -> Member:
        """Consumer from the beginning, without automatic commits."""

    def on_the_loop(self, bootstrap: str, topic: str) -> None:
        """Produce with headers and read back in one coroutine, without a thread for it."""
        raise Absent("no asyncio")

    def iterate(self, bootstrap: str, topic: str, count: int) -> list[bytes]:
        """Read by `async for`."""
        raise Absent("no async iteration")

    def partition_by(self) -> dict[str, Any]:
        """Setting that puts every record into partition 2."""
        raise Absent("no partitioner of one's own")

    def json_settings(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Settings of a producer and a consumer for JSON values."""
        raise Absent("no serializers")

    def numbers(self, bootstrap: str, topic: str) -> float:
        """Records that a producer says it has sent, by its metrics."""
        raise Absent("no metrics")


class LoopThread:
    """Event loop in a thread, for clients that live on one."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(TIMEOUT_S)

    def start(self, coroutine: Coroutine[Any, Any, T]) -> Callable[[], T]:
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        return lambda: future.result(TIMEOUT_S)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(TIMEOUT_S)
        self._loop.close()


def underscored(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name.replace(".", "_"): value for name, value in settings.items()}
