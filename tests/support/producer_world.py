"""The producer's machines before model brokers, on a clock that a test moves.

A `World` has the accumulator and the sender of one producer, and partitions whose leaders check sequence
numbers as Apache Kafka's do. Requests travel on one connection for each broker: in order, and lost together.
A request that was on its way when its connection broke may still be appended later.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from barnabas.client.core.metadata import Leader, Metadata, Partition, Topic
from barnabas.client.producer.core.accumulator import Accumulator, AccumulatorOptions
from barnabas.client.producer.core.batch import ProducerBatch
from barnabas.client.producer.core.buffer_memory import BufferMemory
from barnabas.client.producer.core.producer_state import ProducerState
from barnabas.client.producer.core.sender import Outgoing, Sender, SenderOptions
from barnabas.client.producer.core.sender_metrics import SenderMetrics
from barnabas.client.producer.core.transaction_state import TransactionState
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.errors import (
    InvalidProducerEpoch,
    KafkaError,
    MessageTooLarge,
    NetworkException,
    NotLeaderOrFollower,
    OutOfOrderSequenceNumber,
)
from barnabas.core.ids import TopicPartition, Uuid
from barnabas.core.reporting.metrics import Metrics
from barnabas.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from barnabas.records.batch import NO_PRODUCER_ID, RecordBatch, read_batch
from barnabas.records.record import iterate_records
from tests.support.manual_time import ManualClock

TOPIC = "orders"
TOPIC_ID = Uuid(b"0123456789abcdef")
REMEMBERED_BATCHES = 5
PRODUCER_ID = 7


@dataclass
class ModelPartition:
    """Log of a partition, with the rules of Kafka's producer state."""

    leader: Leader
    values: list[bytes] = field(default_factory=list)
    epochs: dict[int, int] = field(default_factory=dict)
    batches: dict[int, deque[tuple[int, int, int]]] = field(default_factory=dict)
    """First and last sequence and base offset of the last batches, by producer id."""
    size_max: int = 1 << 30

    def append(self, batch: RecordBatch) -> int:
        """Append a batch; returns its base offset."""
        if batch.size_bytes > self.size_max:
            raise MessageTooLarge("too large")
        if batch.producer_id == NO_PRODUCER_ID:
            return self._add(batch)
        known_epoch = self.epochs.get(batch.producer_id, -1)
        if batch.producer_epoch < known_epoch:
            raise InvalidProducerEpoch("fenced")
        known = self.batches.setdefault(batch.producer_id, deque(maxlen=REMEMBERED_BATCHES))
        last_sequence = batch.base_sequence + batch.record_count - 1
        if batch.producer_epoch == known_epoch:
            for first, last, offset in known:
                if (first, last) == (batch.base_sequence, last_sequence):
                    return offset
            if known and batch.base_sequence != known[-1][1] + 1:
                raise OutOfOrderSequenceNumber(f"{batch.base_sequence} after {known[-1][1]}")
        elif known_epoch >= 0 and batch.base_sequence != 0:
            raise OutOfOrderSequenceNumber(f"{batch.base_sequence} begins an epoch")
        else:
            known.clear()
        offset = self._add(batch)
        self.epochs[batch.producer_id] = batch.producer_epoch
        known.append((batch.base_sequence, last_sequence, offset))
        return offset

    def _add(self, batch: RecordBatch) -> int:
        offset = len(self.values)
        self.values += [record.value or b"" for record in iterate_records(batch)]
        return offset


@dataclass(eq=False)
class OnTheWire:
    request: Outgoing
    data: list[tuple[TopicPartition, bytes]]
    answer: ProduceResponse | None = None


class World:
    def __init__(
        self,
        *,
        partitions: int = 1,
        brokers: int = 1,
        memory_bytes: int = 1 << 20,
        batch_bytes: int = 200,
        linger_ms: float = 0,
        delivery_timeout_ms: float = 120_000,
        is_idempotent: bool = True,
        transaction: TransactionState | None = None,
        options: SenderOptions | None = None,
        has_id: bool = True,
        seed: int = 0,
    ) -> None:
        self.clock = ManualClock()
        self.metadata = Metadata()
        self.metadata.brokers = {broker: Endpoint("b", broker + 1) for broker in range(brokers)}
        self.metadata.topics[TOPIC] = Topic(
            TOPIC,
            TOPIC_ID,
            False,
            tuple(Partition(index, index % brokers, 0, (), (), (), 0) for index in range(partitions)),
        )
        self.logs = [ModelPartition(Leader(index % brokers, 0)) for index in range(partitions)]
        self.memory = BufferMemory(memory_bytes)
        accumulator_options = AccumulatorOptions(
            batch_bytes=batch_bytes, linger_ms=linger_ms, delivery_timeout_ms=delivery_timeout_ms
        )
        self.accumulator = Accumulator(accumulator_options, self.memory, self.clock)
        self.state = ProducerState(is_idempotent=is_idempotent, transaction=transaction)
        if has_id and is_idempotent:
            self.state.set_id(PRODUCER_ID, 0)
        self.metrics = Metrics()
        self.sender = Sender(
            options or SenderOptions(),
            self.accumulator,
            self.state,
            self.metadata,
            self.clock,
            random.Random(seed),
            SenderMetrics(self.metrics, self.memory),
        )
        self.wires: dict[int, deque[OnTheWire]] = {broker: deque() for broker in range(brokers)}
        self.zombies: list[OnTheWire] = []
        self.refuse: Callable[[TopicPartition, RecordBatch], KafkaError | None] = lambda _at, _batch: None
        """A fault that a broker has with a batch."""
        self.sent: list[tuple[ProducerBatch, int, bytes, int]] = []
        """Batch, position, value and partition of each record."""

    def send(self, value: bytes, partition: int = 0) -> bool:
        """Take a record, if there is room."""
        queue = self.accumulator.queue(TOPIC, partition)
        size = len(value) + 36
        batch = self.accumulator.open_batch(queue, size)
        if batch is None:
            reserved = self.accumulator.batch_bytes_for(size)
            if not self.memory.take(reserved):
                return False
            batch = self.accumulator.add_batch(
                queue, reserved, is_transactional=self.state.transaction is not None
            )
        index = self.accumulator.append(batch, None, value, (), self.clock.now_ms())
        self.sent.append((batch, index, value, partition))
        return True

    def run(self) -> list[Outgoing]:
        """One run of the sender; its requests are on the wire then."""
        made = self.sender.requests(lambda _broker: True)
        for request in made:
            data = [(batch.topic_partition, bytes(batch.data or b"")) for batch in request.batches]
            self.wires[request.broker_id].append(OnTheWire(request, data))
        return made

    def process(self, broker: int = 0) -> bool:
        """The broker handles the next request; False without one."""
        for wired in self.wires[broker]:
            if wired.answer is None:
                wired.answer = self._handle(broker, wired)
                return True
        return False

    def respond(self, broker: int = 0) -> bool:
        """The next answer arrives; False without one."""
        wire = self.wires[broker]
        if not wire or wire[0].answer is None:
            return False
        wired = wire.popleft()
        assert wired.answer is not None
        self.sender.answered(wired.request, wired.answer, by_id=True)
        return True

    def break_connection(self, broker: int = 0) -> None:
        wire, self.wires[broker] = self.wires[broker], deque()
        self.zombies += [wired for wired in wire if wired.answer is None]
        for wired in wire:
            self.sender.failed(wired.request, NetworkException("lost"))

    def process_zombie(self) -> None:
        """A request of a lost connection is handled after all; its answer goes nowhere."""
        if self.zombies:
            wired = self.zombies.pop(0)
            self._handle(wired.request.broker_id, wired)

    def move_leader(self, partition: int, broker: int) -> None:
        """Another broker leads a partition. The client learns it from an answer."""
        log = self.logs[partition]
        if log.leader.broker_id != broker:
            log.leader = Leader(broker, log.leader.epoch + 1)

    def settle(self, rounds: int = 200) -> None:
        """Let everything arrive, and time pass, until nothing is left."""
        for _ in range(rounds):
            self.run()
            while any(self.process(broker) for broker in self.wires):
                pass
            while any(self.respond(broker) for broker in self.wires):
                pass
            if not self.accumulator.incomplete:
                return
            self.clock.advance(500)
        raise AssertionError("batches without an outcome are left")

    def outcomes(self) -> Sequence[tuple[bytes, int, tuple[int, int] | Exception]]:
        return [(value, partition, batch.outcome(index)) for batch, index, value, partition in self.sent]

    def _handle(self, broker: int, wired: OnTheWire) -> ProduceResponse:
        rows = [self._append(broker, at, data) for at, data in wired.data]
        return ProduceResponse(responses=[TopicProduceResponse(topic_id=TOPIC_ID, partition_responses=rows)])

    def _append(self, broker: int, at: TopicPartition, data: bytes) -> PartitionProduceResponse:
        log = self.logs[at.partition]
        batch = read_batch(data)
        assert batch.is_valid_crc
        try:
            if log.leader.broker_id != broker:
                raise NotLeaderOrFollower("moved")
            fault = self.refuse(at, batch)
            if fault is not None:
                raise fault
            return PartitionProduceResponse(index=at.partition, error_code=0, base_offset=log.append(batch))
        except KafkaError as error:
            leader = LeaderIdAndEpoch(leader_id=log.leader.broker_id, leader_epoch=log.leader.epoch)
            return PartitionProduceResponse(
                index=at.partition,
                error_code=error.code,
                base_offset=-1,
                error_message=error.message,
                record_errors=[
                    BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
                    for index, message in error.record_errors
                ],
                current_leader=leader if isinstance(error, NotLeaderOrFollower) else None,
            )
