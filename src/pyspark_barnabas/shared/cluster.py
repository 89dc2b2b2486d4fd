"""Blocking Kafka client of a cluster: metadata, offsets, leaders and coordinators.

`barnabas.client.core.cluster_state` decides which broker gets which request, and when a request is retried.
This module sends the requests on connections that it opens on first use and keeps. It logs the first failure
to reach a broker.

A batch or query that starts calls `reach` first: a wrong address does not become right by waiting. A batch or
query in progress retries instead.
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
from barnabas.client.core.cluster_state import ClusterState
from barnabas.client.core.retries import UNKNOWN_TOPIC_TIMEOUT_MS, Retries
from barnabas.client.core.steps import ANY_BROKER, Pause, Step, Steps, raise_for
from barnabas.client.security.settings import Secured
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.clock import Clock, SystemClock
from barnabas.core.errors import KafkaError, LeaderNotAvailable, NetworkException, UnknownTopicOrPartition
from barnabas.core.ids import TopicPartition
from barnabas.core.steps import drive
from barnabas.protocol.offset_numbers import READ_UNCOMMITTED
from pyspark_barnabas.shared.cluster_config import ClusterConfig

T = TypeVar("T")

FIRST_CONTACT_MS: Final = 1_000.0
"""Time to wait for a broker that is still starting."""
CONNECT_TIMEOUT_MS: Final = 4_000.0
"""Bound for an address that does not even refuse the connection."""

logger = logging.getLogger(__name__)


class NoBrokerAnswers(ConnectionError):
    """No broker answers at the bootstrap addresses."""


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
        """Check that some broker answers; raises NoBrokerAnswers with the addresses after about a second."""
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
        """Names of all topics that are not internal, sorted."""
        self.run_with_retries(lambda: self.state.refresh(None))
        return sorted(each.name for each in self.state.topics.values() if not each.is_internal)

    def partitions(self, topics: Iterable[str]) -> dict[str, int]:
        """Partition count of each topic; topics that do not exist are left out."""
        wanted = sorted(set(topics))
        return self.run_with_retries(lambda: self._partitions(wanted)) if wanted else {}

    def _partitions(self, topics: list[str]) -> Steps[dict[str, int]]:
        found = {}
        for row in (yield from self.state.refresh(topics)).topics:
            if row.error_code != UnknownTopicOrPartition.code:
                raise_for(row.error_code, None, f"topic {row.name}")
                found[row.name or ""] = len(row.partitions)
        return found

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """Topic ids in the latest metadata. Brokers before Kafka 2.8 send none."""
        known = ((name, self.state.topics.get(name)) for name in topics)
        return {
            name: str(topic.topic_id) for name, topic in known if topic is not None and any(topic.topic_id)
        }

    def writable_partitions(self, topic: str) -> int:
        """Partition count of a topic to write to. A broker that may create topics creates it."""

        def attempt() -> Steps[int]:
            (row,) = (yield from self.state.refresh((topic,), auto_create=True)).topics
            raise_for(row.error_code, None, f"topic {topic}")
            return len(row.partitions)

        try:
            return self.run_with_retries(attempt, unknown_topic_timeout_ms=UNKNOWN_TOPIC_TIMEOUT_MS)
        except UnknownTopicOrPartition as error:
            raise ValueError(
                f"topic {topic} does not exist, and auto.create.topics.enable is off on the broker: "
                f"barnabas topic create {topic} --bootstrap {self.config.servers}"
            ) from error

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *, isolation: int = READ_UNCOMMITTED
    ) -> dict[TopicPartition, int]:
        """Offset of each partition at its timestamp (or LATEST, EARLIEST); -1 where no record matches.

        Partitions that no longer exist are left out.
        """

        def attempt() -> Steps[dict[TopicPartition, int]]:
            existing = yield from self._partitions(
                sorted({topic_partition.topic for topic_partition in wanted})
            )
            there = {
                topic_partition: timestamp
                for topic_partition, timestamp in wanted.items()
                if topic_partition.partition < existing.get(topic_partition.topic, 0)
            }
            return (yield from self.state.list_offsets(there, isolation=isolation))

        return self.run_with_retries(attempt) if wanted else {}

    def leader(self, topic_partition: TopicPartition) -> Connection:
        """Connection to the leader of a partition."""
        leader_id = self.state.leader_id(topic_partition)
        return self._to(self.run(self.state.leader(topic_partition)) if leader_id is None else leader_id)

    def run(self, steps: Steps[T]) -> T:
        """Run a conversation with the brokers and return its outcome."""
        return drive(steps, self._do)

    def run_with_retries(
        self, attempt: Callable[[], Steps[T]], *, unknown_topic_timeout_ms: float | None = None
    ) -> T:
        """Run a conversation, and run it again after each retriable error until the retry timeout."""
        return self.run(self.state.retrying(attempt, unknown_topic_timeout_ms=unknown_topic_timeout_ms))

    def _do(self, step: Step) -> Any:
        if isinstance(step, Pause):
            self._log_pause(step)
            return time.sleep(step.ms / 1_000)
        connection = self._any() if step.broker_id == ANY_BROKER else self._to(step.broker_id)
        answer = connection.ask(step.request, step.response_class, version_max=step.version_max)
        self._is_out_of_reach = False
        return answer

    def _log_pause(self, pause: Pause) -> None:
        if isinstance(pause.because, NetworkException) and not self._is_out_of_reach:
            self._is_out_of_reach = True
            logger.warning("%s; trying for another %.0f s", pause.because, pause.left_ms / 1_000)

    def _any(self) -> Connection:
        """Connection to any broker: one that is open, else the first that answers."""
        for connection in self._connections.values():
            if not connection.is_closed:
                return connection
        failures = []
        for endpoint in (*self.config.bootstrap, *self.state.brokers.values()):
            try:
                return self._connection(endpoint)
            except NetworkException as error:
                failures.append(str(error))
        raise NetworkException("; ".join(failures) or "kafka.bootstrap.servers names no broker")

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
    """Sleep until the next retry after `error`; raises `error` when no retry may help."""
    time.sleep(retries.next_pause_ms(error) / 1_000)


def _unzeroed(size: int) -> memoryview:
    """Memory for a response. It is not cleared first, unlike the memory of a bytearray."""
    return np.empty(size, np.uint8).data
