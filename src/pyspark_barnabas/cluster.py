"""A cluster as a blocking client sees it: who leads what, which offsets there are, who coordinates.

Who is asked what, and when again, is said by `barnabas.client.cluster_state`; here it is done, on connections
that are opened when they are first needed, and kept. That a broker cannot be reached is said in the log
when it is first noticed.

Who begins something (a batch, a query) asks with `reach` whether there is a broker at all: an address
that is wrong does not become right by waiting. Who is in the middle of something does not.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import numpy as np

from barnabas.client.blocking import Connection
from barnabas.client.cluster_state import ClusterState
from barnabas.client.retries import UNKNOWN_TOPIC_TIMEOUT_MS, Retries
from barnabas.client.security_settings import Secured
from barnabas.client.steps import ANY_BROKER, Pause, Step, Steps, raise_for, run_blocking
from barnabas.core.clock import Clock, SystemClock
from barnabas.core.endpoints import Endpoint
from barnabas.core.errors import KafkaError, LeaderNotAvailable, NetworkException, UnknownTopicOrPartition
from barnabas.core.ids import TopicPartition
from barnabas.protocol.offset_numbers import READ_UNCOMMITTED
from pyspark_barnabas.cluster_config import ClusterConfig

T = TypeVar("T")

FIRST_CONTACT_MS: Final = 1_000.0
"""How long a broker that is just being started is waited for."""
CONNECT_TIMEOUT_MS: Final = 4_000.0
"""For an address that does not even refuse."""

_log = logging.getLogger(__name__)


class NoBrokerAnswers(ConnectionError):
    """Nobody is at the addresses that were given."""


class Cluster:
    def __init__(self, config: ClusterConfig, clock: Clock | None = None) -> None:
        self.config = config
        self.clock: Clock = clock or SystemClock()
        self.state = ClusterState(self.clock, random.Random(), config.retry_timeout_ms)  # noqa: S311 - spreads the retries
        self._connections: dict[Endpoint, Connection] = {}
        self._secured: Secured | None = None
        self._is_out_of_reach = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def reach(self) -> None:
        """Raises NoBrokerAnswers, which says where nobody is, in about a second."""
        retries = self.state.retries(FIRST_CONTACT_MS)
        while True:
            try:
                self._any()
            except NetworkException as error:
                try:
                    wait(retries, error)
                except NetworkException:
                    raise NoBrokerAnswers(
                        f"no broker answers at {self.config.servers} ({error}). "
                        "Is one running there, and is kafka.bootstrap.servers right?"
                    ) from error
            else:
                return

    def topics(self) -> list[str]:
        """All that are not internal, by name."""
        self.run_with_retries(lambda: self.state.refresh(None))
        return sorted(each.name for each in self.state.topics.values() if not each.is_internal)

    def partitions(self, topics: Iterable[str]) -> dict[str, int]:
        """How many partitions each topic has; topics that do not exist are left out."""
        wanted = sorted(set(topics))
        return self.run_with_retries(lambda: self._partitions(wanted)) if wanted else {}

    def _partitions(self, topics: list[str]) -> Steps[dict[str, int]]:
        found = {}
        for row in (yield from self.state.refresh(topics)).topics:
            if row.error_code != UnknownTopicOrPartition.code:
                raise_for(row.error_code, None, f"topic {row.name}")
                found[row.name or ""] = len(row.partitions)
        return found

    def writable_partitions(self, topic: str) -> int:
        """How many partitions a topic has that is to be written to; it is created where the broker may."""

        def attempt() -> Steps[int]:
            (row,) = (yield from self.state.refresh((topic,), auto_create=True)).topics
            raise_for(row.error_code, None, f"topic {topic}")
            return len(row.partitions)

        try:
            return self.run_with_retries(attempt, unknown_topic_timeout_ms=UNKNOWN_TOPIC_TIMEOUT_MS)
        except UnknownTopicOrPartition as error:
            raise ValueError(
                f"topic {topic} does not exist, and the broker does not create topics by itself: "
                f"barnabas topic create {topic} --bootstrap {self.config.servers}"
            ) from error

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *, isolation: int = READ_UNCOMMITTED
    ) -> dict[TopicPartition, int]:
        """The offset for each partition's timestamp (or LATEST, EARLIEST); -1 where there is none.

        Partitions that no longer exist are left out.
        """

        def attempt() -> Steps[dict[TopicPartition, int]]:
            existing = yield from self._partitions(sorted({place.topic for place in wanted}))
            there = {
                place: timestamp
                for place, timestamp in wanted.items()
                if place.partition < existing.get(place.topic, 0)
            }
            return (yield from self.state.list_offsets(there, isolation=isolation))

        return self.run_with_retries(attempt) if wanted else {}

    def leader(self, place: TopicPartition) -> Connection:
        """A connection to the broker that leads a partition."""
        leader_id = self.state.leader_id(place)
        return self._to(self.run(self.state.leader(place)) if leader_id is None else leader_id)

    def run(self, steps: Steps[T]) -> T:
        """The outcome of a conversation."""
        return run_blocking(steps, self._do)

    def run_with_retries(
        self, attempt: Callable[[], Steps[T]], *, unknown_topic_timeout_ms: float | None = None
    ) -> T:
        """The outcome of a conversation, once nothing that may pass stands in its way."""
        return self.run(self.state.retrying(attempt, unknown_topic_timeout_ms=unknown_topic_timeout_ms))

    def _do(self, step: Step) -> Any:
        if isinstance(step, Pause):
            self._say(step)
            return time.sleep(step.ms / 1_000)
        connection = self._any() if step.broker_id == ANY_BROKER else self._to(step.broker_id)
        answer = connection.ask(step.request, step.response_class, version_max=step.version_max)
        self._is_out_of_reach = False
        return answer

    def _say(self, pause: Pause) -> None:
        if isinstance(pause.because, NetworkException) and not self._is_out_of_reach:
            self._is_out_of_reach = True
            _log.warning("%s; trying for another %.0f s", pause.because, pause.left_ms / 1_000)

    def _any(self) -> Connection:
        """A connection to some broker: one that is open, else the first that answers."""
        for connection in self._connections.values():
            if not connection.is_closed:
                return connection
        failures = []
        for endpoint in (*self.config.bootstrap, *self.state.brokers.values()):
            try:
                return self._connection(endpoint)
            except NetworkException as error:
                failures.append(str(error))
        raise NetworkException("; ".join(failures) or "there are no bootstrap servers")

    def _to(self, broker_id: int) -> Connection:
        endpoint = self.state.brokers.get(broker_id)
        if endpoint is None:
            raise LeaderNotAvailable(f"broker {broker_id} is not in the cluster now")
        return self._connection(endpoint)

    def _connection(self, endpoint: Endpoint) -> Connection:
        connection = self._connections.get(endpoint)
        if connection is None or connection.is_closed:
            if self._secured is None:
                self._secured = self.config.security.secured()
            connection = Connection.connect(
                endpoint,
                client_id=self.config.client_id,
                software="pyspark-barnabas",
                connect_timeout_ms=min(self.config.request_timeout_ms, CONNECT_TIMEOUT_MS),
                request_timeout_ms=self.config.request_timeout_ms,
                security=self._secured,
                allocate=_unzeroed,
                clock=self.clock,
            )
            self._connections[endpoint] = connection
        return connection


def wait(retries: Retries, error: KafkaError) -> None:
    """Until it is time to try again after `error`; raises it when that is of no use."""
    time.sleep(retries.next_pause_ms(error) / 1_000)


def _unzeroed(size: int) -> memoryview:
    """Memory for an answer; unlike a bytearray's, it is not cleared first."""
    return np.empty(size, np.uint8).data
