"""The brokers of this machine by their inspection sockets.

Many viewers look at the same pages. Equal questions of one user at one time share an answer. The sum
of all lags, the dearest answer, is shared for some seconds.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from barnabas.client.core.steps import ClusterUnreachable
from barnabas.core.clock import Clock, SystemClock
from barnabas.core.errors import KafkaError
from barnabas.inspection.client import BrokerAway, InspectionClient
from barnabas.inspection.wire import SOCKET_NAME

BROKER_DIRECTORIES: Final = "broker-*"
"""Directories of the brokers of a local cluster, in its data directory."""

SHARED_MS: Final = {"lag_total": 5_000.0}
"""Time for which an answer serves others after it has come. All others serve those that wait for it: a user
who has changed something wants to see it."""
SHARED_MAX: Final = 64

Answer = dict[str, Any]


class _Shared(NamedTuple):
    task: asyncio.Task[list[Answer]]
    until_ms: float


def find_sockets(directory: Path) -> list[Path]:
    """Sockets of the broker in this directory, or of all brokers of a local cluster."""
    own = directory / SOCKET_NAME
    if own.is_socket():
        return [own]
    return sorted(
        path / SOCKET_NAME for path in directory.glob(BROKER_DIRECTORIES) if (path / SOCKET_NAME).is_socket()
    )


class LocalBrokers:
    """Asks all brokers at once. One that is down is left out; its partitions are not known then."""

    def __init__(self, sockets: Sequence[Path], clock: Clock | None = None) -> None:
        self._clients = [InspectionClient(path) for path in sockets]
        self._now_ms = (clock or SystemClock()).monotonic_ms
        self._shared: dict[str, _Shared] = {}

    def __len__(self) -> int:
        return len(self._clients)

    async def ask(self, name: str, principal: str | None, **parameters: Any) -> list[Answer]:
        """Answers of the brokers that have one. The first refusal is raised if none has."""
        key = json.dumps([name, principal, parameters])
        now_ms = self._now_ms()
        known = self._shared.get(key)
        if known is None or (known.task.done() and known.until_ms <= now_ms):
            task = asyncio.create_task(self._ask(name, principal, **parameters))
            known = _Shared(task, now_ms + SHARED_MS.get(name, 0.0))
            self._shared[key] = known
            task.add_done_callback(lambda _: self._forget(key, known))
        return await asyncio.shield(known.task)

    def _forget(self, key: str, shared: _Shared) -> None:
        """Drop an answer that serves no later question, such as a failure."""
        failed = shared.task.cancelled() or shared.task.exception() is not None
        is_over = failed or shared.until_ms <= self._now_ms() or len(self._shared) > SHARED_MAX
        if is_over and self._shared.get(key) is shared:
            del self._shared[key]

    async def _ask(self, name: str, principal: str | None, **parameters: Any) -> list[Answer]:
        outcomes = await asyncio.gather(
            *(client.ask(name, principal, **parameters) for client in self._clients),
            return_exceptions=True,
        )
        answers: list[Answer] = []
        refusals: list[BaseException] = []
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                refusals.append(outcome)
            else:
                answers.append(outcome)
        unforeseen = [each for each in refusals if not isinstance(each, KafkaError | BrokerAway)]
        if unforeseen:
            raise unforeseen[0]
        if answers:
            return answers
        for each in refusals:
            if isinstance(each, KafkaError):
                raise each
        raise ClusterUnreachable(["no broker of this machine answers at its socket"])

    async def close(self) -> None:
        for each in self._shared.values():
            each.task.cancel()
        self._shared.clear()
        for client in self._clients:
            await client.close()
