"""Clients that go on while brokers die: producers, a group of consumers, and transactional copiers.

All are librdkafka's, each in a thread of its own with the settings that a careful user has:
idempotent, acks=all, default retries. They write down what they did and saw (`history`) and never
decide what is right.
"""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from tests.chaos.history import History, Outcome, Place, Reading, Transaction, Value, Write
from tests.support.secured_cluster import Reach

PAUSE_S = 0.005
POLL_S = 0.1
BATCH_MAX = 50
TRANSACTION_TIMEOUT_MS = 20_000
WRITE_TIMEOUT_MS = 600_000
"""Longer than a partition is ever away, on a machine that is busy with other things too: librdkafka gives a
late record up, and sends what it had sent behind it once more, under another epoch."""
SEND_OFFSETS_TIMEOUT_S = 15
ERRORS_KEPT = 30
READ_TIMEOUT_S = 60.0
CLOSE_TIMEOUT_S = 60.0
SERVED_TIMEOUT_S = 120.0
POLL_INTERVAL_MS = 60_000


class ClientHangs(Exception):
    """A call of the client library did not come back."""


class Worker:
    """A thread that repeats `_step` until it is stopped, and keeps the error that ended it otherwise."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.failure: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._met: deque[str] = deque(maxlen=ERRORS_KEPT)

    def start(self) -> None:
        self._thread.start()

    def ask_to_stop(self) -> None:
        self._stop.set()

    def join(self, timeout_s: float = 60.0) -> None:
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            raise TimeoutError(f"{self.name} does not stop")
        if self.failure is not None:
            raise self.failure

    def where(self) -> str:
        """Current work and last errors, to explain why the thread is late."""
        frame = sys._current_frames().get(self._thread.ident or 0)
        stack = "".join(traceback.format_stack(frame)) if frame else "nowhere: it has ended\n"
        return f"{self.name} is at\n{stack}and met\n" + "\n".join(self._met)

    def _meet(self, error: Exception) -> None:
        self._met.append(f"{time.strftime('%H:%M:%S')} {error}")

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as failure:
            self.failure = failure

    def _work(self) -> None:
        raise NotImplementedError


class Writing(Worker):
    """Writes numbered values to the partitions of a topic, in turn."""

    def __init__(
        self, name: str, reach: Reach, topic: str, partitions: int, history: History, *, in_flight: int
    ) -> None:
        super().__init__(name)
        if in_flight > 1:
            history.pipelining.add(name)
        self._topic = topic
        self._partitions = partitions
        self._history = history
        self._producer = Producer(
            {
                **reach.properties,
                "client.id": name,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "max.in.flight.requests.per.connection": in_flight,
                "message.timeout.ms": WRITE_TIMEOUT_MS,
                "socket.timeout.ms": 10_000,
                "log_level": 0,
            }
        )

    def _work(self) -> None:
        number = 0
        while not self._stop.is_set():
            write = Write(
                Value(self.name, number), self._topic, number % self._partitions, began_s=time.monotonic()
            )
            self._history.writes.append(write)
            self._producer.produce(
                write.topic, write.value.encode(), partition=write.partition, on_delivery=_settles(write)
            )
            self._producer.poll(0)
            number += 1
            time.sleep(PAUSE_S)
        self._producer.flush(120)


def _settles(write: Write) -> Callable[[KafkaError | None, Message], None]:
    def settle(error: KafkaError | None, message: Message) -> None:
        if error is None:
            write.answered_s = time.monotonic()
            write.outcome, write.offset = Outcome.ACKNOWLEDGED, message.offset()

    return settle


def closes(consumer: Consumer) -> bool:
    """Whether the consumer can be closed. librdkafka's close has no timeout: one that waits for a coordinator
    which it never finds is given up, as that of a process that is killed."""
    closing = threading.Thread(target=consumer.close, daemon=True)
    closing.start()
    closing.join(CLOSE_TIMEOUT_S)
    return not closing.is_alive()


class GroupReading(Worker):
    """A member of a group that reads a topic and commits what it has read."""

    def __init__(
        self, name: str, reach: Reach, topic: str, history: History, protocol: str = "classic"
    ) -> None:
        super().__init__(name)
        self._topic = topic
        self._history = history
        self._open: dict[int, Reading] = {}
        self._settings: dict[str, Any] = {
            **reach.properties,
            "client.id": name,
            "group.id": "readers",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": True,
            "auto.commit.interval.ms": 200,
            "max.poll.interval.ms": POLL_INTERVAL_MS,
            "log_level": 0,
        }
        if protocol == "classic":
            self._settings["session.timeout.ms"] = 6_000
        self._consumer = Consumer(self._settings)

    def _work(self) -> None:
        self._consumer.subscribe(
            [self._topic],
            on_assign=lambda _, partitions: self._assigned(partitions),
            on_revoke=lambda _, partitions: self._revoked(partitions),
            on_lost=lambda _, partitions: self._revoked(partitions),
        )
        while not self._stop.is_set():
            message = self._consumer.poll(POLL_S)
            if message is None or message.error() is not None:
                continue
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            reading = self._open.get(partition)
            if reading is not None:
                reading.seen.append((offset, Value.decode(message.value() or b"")))
        if not closes(self._consumer):
            self._meet(ClientHangs("close does not return"))
            self._check_that_others_are_served()

    def _check_that_others_are_served(self) -> None:
        """If this client hangs, other members of its group are served all the same."""
        fresh = Consumer({**self._settings, "client.id": f"{self.name}-fresh"})
        fresh.subscribe([self._topic])
        deadline = time.monotonic() + SERVED_TIMEOUT_S
        while not fresh.assignment():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name} cannot be closed, and its group serves nobody")
            fresh.poll(POLL_S)
        closes(fresh)

    def _assigned(self, partitions: Iterable[TopicPartition]) -> None:
        for each in partitions:
            reading = Reading(self.name, each.topic, each.partition)
            self._history.readings.append(reading)
            self._open[each.partition] = reading

    def _revoked(self, partitions: Iterable[TopicPartition]) -> None:
        for each in partitions:
            self._open.pop(each.partition, None)


class Copying(Worker):
    """Copies a topic to another, exactly once: consume, transform, produce, with the offsets in it."""

    def __init__(self, name: str, reach: Reach, source: str, target: str, history: History) -> None:
        super().__init__(name)
        self._reach = reach
        self._source = source
        self._target = target
        self._history = history
        self._attempts = 0

    def _work(self) -> None:
        while not self._stop.is_set():
            producer = consumer = None
            try:
                producer = self._new_producer()
                consumer = self._new_consumer()
                while not self._stop.is_set():
                    self._copy_some(producer, consumer)
            except (KafkaException, ClientHangs) as error:
                self._meet(error)
                time.sleep(0.2)  # fenced, or fatal in another way: begin anew, as a restarted process would
            finally:
                if consumer is not None and not closes(consumer):
                    self._meet(ClientHangs("close does not return"))
                del producer

    def _new_producer(self) -> Producer:
        producer = Producer(
            {
                **self._reach.properties,
                "client.id": self.name,
                "transactional.id": self.name,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "linger.ms": 2,
                "log_level": 0,
            }
        )
        self._retry(lambda: producer.init_transactions(10))
        return producer

    def _new_consumer(self) -> Consumer:
        consumer = Consumer(
            {
                **self._reach.properties,
                "client.id": self.name,
                "group.id": "copiers",
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 6_000,
                "log_level": 0,
            }
        )
        consumer.subscribe([self._source])
        return consumer

    def _copy_some(self, producer: Producer, consumer: Consumer) -> None:
        messages = [message for message in consumer.consume(BATCH_MAX, POLL_S) if message.error() is None]
        if not messages:
            return
        self._attempts += 1
        transaction = Transaction(f"{self.name}/{self._attempts}/{time.monotonic_ns()}")
        self._history.transactions.append(transaction)
        producer.begin_transaction()
        try:
            for message in messages:
                value = Value.decode(message.value() or b"")._replace(transaction=transaction.name)
                transaction.values.append(value)
                producer.produce(self._target, value.encode(), partition=message.partition() or 0)
            self._send_offsets(producer, consumer, _next_offsets(messages))
            self._retry(lambda: producer.commit_transaction(20), attempts=10)
            transaction.outcome = Outcome.ACKNOWLEDGED
        except KafkaException as failure:
            error: KafkaError = failure.args[0]
            if error.txn_requires_abort():
                self._retry(lambda: producer.abort_transaction(20), attempts=10)
                transaction.outcome = Outcome.REFUSED
            # What was read counts as unread: a fresh consumer starts from what is committed.
            raise

    def _send_offsets(self, producer: Producer, consumer: Consumer, offsets: list[TopicPartition]) -> None:
        """librdkafka forgets the timeout of this call when the group's coordinator leaves the metadata
        (its issues 5456 and 5511): then the producer is given up, as that of a process that is killed."""
        metadata = consumer.consumer_group_metadata()
        outcome: list[KafkaException | None] = []

        def send() -> None:
            try:
                producer.send_offsets_to_transaction(offsets, metadata, SEND_OFFSETS_TIMEOUT_S)
            except KafkaException as error:
                outcome.append(error)
            else:
                outcome.append(None)

        sending = threading.Thread(target=send, daemon=True)
        sending.start()
        sending.join(2 * SEND_OFFSETS_TIMEOUT_S)
        if not outcome:
            raise ClientHangs("send_offsets_to_transaction does not return")
        if outcome[0] is not None:
            raise outcome[0]

    def _retry(self, action: Callable[[], object], attempts: int = 100) -> None:
        """librdkafka's transactional calls may be called again when their error says so."""
        for attempt in range(attempts):
            try:
                action()
            except KafkaException as failure:
                self._meet(failure)
                if not failure.args[0].retriable() or attempt == attempts - 1 or self._stop.is_set():
                    raise
            else:
                return


def _next_offsets(messages: Iterable[Message]) -> list[TopicPartition]:
    following: dict[tuple[str, int], int] = {}
    for message in messages:
        place = (message.topic() or "", message.partition() or 0)
        following[place] = max(following.get(place, 0), (message.offset() or 0) + 1)
    return [TopicPartition(topic, partition, offset) for (topic, partition), offset in following.items()]


def read_all(
    reach: Reach,
    topic: str,
    partitions: int,
    *,
    committed: bool,
    epochs: dict[Place, int] | None = None,
) -> dict[tuple[str, int], list[tuple[int, Value]]]:
    """Every partition from its start to its end; the leader epochs of its records are put into `epochs`."""
    consumer = Consumer(
        {
            **reach.properties,
            "group.id": "final",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    found: dict[tuple[str, int], list[tuple[int, Value]]] = {(topic, n): [] for n in range(partitions)}
    left = set(range(partitions))
    try:
        consumer.assign([TopicPartition(topic, n, 0) for n in range(partitions)])
        progressed = time.monotonic()
        while left:
            if time.monotonic() > progressed + READ_TIMEOUT_S:
                raise TimeoutError(f"partitions {sorted(left)} of {topic} cannot be read to their end")
            message = consumer.poll(1.0)
            if message is None:
                continue
            error = message.error()
            if error is None:
                progressed = time.monotonic()
                rows = found[topic, message.partition() or 0]
                rows.append((message.offset() or 0, Value.decode(message.value() or b"")))
                epoch = message.leader_epoch()
                if epochs is not None and epoch is not None:
                    epochs[Place(topic, message.partition() or 0, message.offset() or 0)] = epoch
            elif error.code() == KafkaError._PARTITION_EOF:
                left.discard(message.partition() or 0)
    finally:
        consumer.close()
    return found
