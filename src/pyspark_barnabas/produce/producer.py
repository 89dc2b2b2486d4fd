"""Idempotent producer over blocking connections, with several requests in flight.

Batches of a partition carry sequence numbers. The broker recognises a batch that is sent again after a lost
answer and does not append it twice. Requests are pipelined per broker.

After a retriable error the sender awaits everything in flight. It then sends the failed batches again in the
order of their sequence numbers, one at a time. That is slow and rare.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from barnabas.client.blocking import Connection
from barnabas.client.core.retries import Retries
from barnabas.core.errors import (
    DuplicateSequenceNumber,
    KafkaError,
    NetworkException,
    OutOfOrderSequenceNumber,
    error_for,
)
from barnabas.core.ids import TopicPartition
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from pyspark_barnabas.shared.cluster import Cluster, wait

PRODUCE_VERSION: Final = 11
"""The last version in which clients add partitions to a transaction first, and topics go by name."""
IN_FLIGHT_MAX: Final = 4
"""A broker remembers the last five batches of a producer; this stays below."""
DELIVERY_TIMEOUT_MS: Final = 120_000
UNKNOWN_OFFSET: Final = -1


@dataclass(slots=True, eq=False)
class Outgoing:
    """One sealed batch that is sent or about to be sent."""

    topic_partition: TopicPartition
    sequence: int
    records: bytearray
    record_count: int


Acknowledged = Callable[[Outgoing, int], None]
"""Called with each batch and its base offset; the offset is -1 for a duplicate whose offset the broker does
not know."""


class BatchSender:
    """Sends batches in order; `flush` returns when all of them are acknowledged."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        transactional_id: str | None = None,
        request_timeout_ms: int = 30_000,
        delivery_timeout_ms: float = DELIVERY_TIMEOUT_MS,
        acknowledged: Acknowledged | None = None,
    ) -> None:
        self._cluster = cluster
        self._transactional_id = transactional_id
        self._request_timeout_ms = request_timeout_ms
        self._delivery_timeout_ms = delivery_timeout_ms
        self._acknowledged: Acknowledged = acknowledged or (lambda _batch, _offset: None)
        self._in_flight: dict[Connection, list[list[Outgoing]]] = defaultdict(list)
        self._failed: list[Outgoing] = []

    def send(self, batches: Iterable[Outgoing]) -> None:
        """Send at most one batch of each partition, as Produce requires."""
        if self._failed:
            self.flush()
        by_leader: dict[Connection, list[Outgoing]] = defaultdict(list)
        for batch in batches:
            try:
                by_leader[self._cluster.leader(batch.topic_partition)].append(batch)
            except KafkaError as error:
                self._fail([batch], error)
        for connection, group in by_leader.items():
            if len(self._in_flight[connection]) >= IN_FLIGHT_MAX:
                self._take(connection)
            if any(
                topic_partition in {each.topic_partition for each in group}
                for topic_partition in self._failed_topic_partitions()
            ):
                self._failed += group
                continue
            self._post(connection, group)

    def flush(self) -> None:
        for connection in [*self._in_flight]:
            while self._in_flight[connection]:
                self._take(connection)
        failed, self._failed = self._failed, []
        failed.sort(key=lambda each: (each.topic_partition, each.sequence))
        retries = self._cluster.state.retries(self._delivery_timeout_ms)
        for batch in failed:
            self._send_alone(batch, retries)

    def _failed_topic_partitions(self) -> set[TopicPartition]:
        return {each.topic_partition for each in self._failed}

    def _request(self, group: list[Outgoing]) -> ProduceRequest:
        topics: dict[str, list[PartitionProduceData]] = defaultdict(list)
        for batch in group:
            topics[batch.topic_partition.topic].append(
                PartitionProduceData(index=batch.topic_partition.partition, records=batch.records)
            )
        return ProduceRequest(
            transactional_id=self._transactional_id,
            acks=-1,
            timeout_ms=self._request_timeout_ms,
            topic_data=[TopicProduceData(name=name, partition_data=rows) for name, rows in topics.items()],
        )

    def _post(self, connection: Connection, group: list[Outgoing]) -> None:
        try:
            connection.post(self._request(group), ProduceResponse, version_max=PRODUCE_VERSION)
        except NetworkException as error:
            self._lose(connection, error)
            self._fail(group, error)
        else:
            self._in_flight[connection].append(group)

    def _take(self, connection: Connection) -> None:
        try:
            answer = connection.take()
        except NetworkException as error:
            self._lose(connection, error)
            return
        group = {each.topic_partition: each for each in self._in_flight[connection].pop(0)}
        for topic_partition, base_offset, refusal in _results(answer):
            batch = group.pop(topic_partition, None)
            if batch is None:
                continue
            if refusal is None:
                self._acknowledged(batch, base_offset)
            else:
                self._fail([batch], refusal)
        # A partition missing from the answer may have been written or not, as after a lost answer.
        self._fail([*group.values()], NetworkException("the answer leaves a partition out"))

    def _lose(self, connection: Connection, error: KafkaError) -> None:
        """Fail all requests of a connection. Some may have arrived; sequence numbers make a retry safe."""
        for group in self._in_flight.pop(connection, []):
            self._fail(group, error)
        self._cluster.state.forget()

    def _fail(self, group: list[Outgoing], error: KafkaError) -> None:
        if isinstance(error, DuplicateSequenceNumber):
            for batch in group:
                self._acknowledged(batch, UNKNOWN_OFFSET)
            return
        # Successors of a failed batch are out of order. They are sent again after it.
        is_behind = isinstance(error, OutOfOrderSequenceNumber) and any(
            each.topic_partition == batch.topic_partition and each.sequence < batch.sequence
            for batch in group
            for each in self._failed
        )
        if not error.retriable and not is_behind:
            raise error
        self._failed += group

    def _send_alone(self, batch: Outgoing, retries: Retries) -> None:
        while True:
            try:
                connection = self._cluster.leader(batch.topic_partition)
                answer = connection.ask(self._request([batch]), ProduceResponse, version_max=PRODUCE_VERSION)
                ((_, base_offset, refusal),) = _results(answer)
                if refusal is not None:
                    raise refusal
            except DuplicateSequenceNumber:
                self._acknowledged(batch, UNKNOWN_OFFSET)
                return
            except KafkaError as error:
                wait(retries, error)
            else:
                self._acknowledged(batch, base_offset)
                return
            self._cluster.state.forget()


def _results(answer: ProduceResponse) -> Iterator[tuple[TopicPartition, int, KafkaError | None]]:
    for topic in answer.responses:
        for row in topic.partition_responses:
            topic_partition = TopicPartition(topic.name, row.index)
            error = None
            if row.error_code:
                error = error_for(row.error_code, f"writing to {topic_partition}: {row.error_message or ''}")
            yield topic_partition, row.base_offset, error
