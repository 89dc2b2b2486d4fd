"""Coordination session with metrics: latency of its operations, state, disconnects and expired sessions.

The names are those of Apache Kafka's ZooKeeper client. The embedded store has the same metrics, because every
implementation passes through here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeVar

from barnabas.cluster.coordination.contract import (
    ANY_VERSION,
    Coordination,
    Operation,
    Result,
    SessionState,
    Stat,
    StateListener,
    Watch,
)
from barnabas.core.clock import Clock
from barnabas.core.reporting.metrics import Labels, Metrics

T = TypeVar("T")


@asynccontextmanager
async def measured(
    opened: AbstractAsyncContextManager[Coordination], clock: Clock, metrics: Metrics
) -> AsyncIterator[Coordination]:
    async with opened as session:
        yield MeasuredCoordination(session, clock, metrics)


class MeasuredCoordination:
    def __init__(self, session: Coordination, clock: Clock, metrics: Metrics) -> None:
        self._session = session
        self._now_ms = clock.monotonic_ms
        self._latency = metrics.histogram(
            "kafka_zookeeper_request_latency_ms", "Time of an operation of the coordination store."
        )
        self._disconnects = metrics.counter(
            "kafka_zookeeper_disconnects_total", "Lost connections to the coordination store."
        )
        self._expires = metrics.counter(
            "kafka_zookeeper_expires_total", "Sessions that the coordination store ended."
        )
        metrics.samples(
            "kafka_zookeeper_session_state",
            "State of the session with the coordination store: 1 for the present one.",
            ("state",),
            self._states,
        )
        session.add_listener(self._changed)

    def _states(self) -> Iterator[tuple[Labels, float]]:
        for state in SessionState:
            yield (("state", state.value),), state is self._session.state

    def _changed(self, state: SessionState) -> None:
        if state is SessionState.SUSPENDED:
            self._disconnects.value += 1
        elif state is SessionState.LOST:
            self._expires.value += 1

    async def _timed(self, operation: Awaitable[T]) -> T:
        began_ms = self._now_ms()
        try:
            return await operation
        finally:
            self._latency.observe(self._now_ms() - began_ms)

    @property
    def session_id(self) -> int:
        return self._session.session_id

    @property
    def session_timeout_ms(self) -> int:
        return self._session.session_timeout_ms

    @property
    def state(self) -> SessionState:
        return self._session.state

    @property
    def lease_expires_ms(self) -> float:
        return self._session.lease_expires_ms

    @property
    def failure(self) -> BaseException | None:
        return self._session.failure

    def add_listener(self, listener: StateListener) -> None:
        self._session.add_listener(listener)

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> str:
        created = self._session.create(
            path, data, ephemeral=ephemeral, sequential=sequential, make_parents=make_parents
        )
        return await self._timed(created)

    async def make_paths(self, paths: Iterable[str]) -> None:
        await self._timed(self._session.make_paths(paths))

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        return await self._timed(self._session.get(path, watch))

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        return await self._timed(self._session.get_many(paths))

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        return await self._timed(self._session.set(path, data, version))

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._timed(self._session.delete(path, version))

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        return await self._timed(self._session.exists(path, watch))

    async def watch_many(self, watches: Mapping[str, Watch]) -> None:
        await self._timed(self._session.watch_many(watches))

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        return await self._timed(self._session.children(path, watch))

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        return await self._timed(self._session.multi(operations))

    async def close(self) -> None:
        await self._session.close()
