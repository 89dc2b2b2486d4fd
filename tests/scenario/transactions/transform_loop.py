"""Consume, transform, produce, exactly once: a process of its own, so that it can be killed at any moment.

Every number read from the source is written to the same partition of the sink, in one transaction with the
offset that says so. Errors that a transaction survives abort it, and reading goes on from what is committed;
errors that end the producer end the process, and its parent starts it again. After each commit a line goes to
the notes, so that others see progress.

A worker either owns all partitions, by its transactional id alone, or has those that its group gives it.
There the group's generation in the transaction's offsets keeps a record from being handled twice: a worker
that lost its partitions cannot commit.

    python -m tests.scenario.transactions.transform_loop BOOTSTRAP SOURCE SINK NOTES NAME [PARTITIONS]
"""

from __future__ import annotations

import sys
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition

RECORDS_PER_TRANSACTION = 20
TIMEOUT_S = 30.0
GROUP = "workers"
FATAL = 3


class Worker:
    """Of a group."""

    def __init__(self, bootstrap: str, source: str, sink: str, name: str) -> None:
        # librdkafka 2.16 may wait for ever when it bootstraps anew inside of a transactional call.
        quick = {
            "metadata.recovery.strategy": "none",
            "bootstrap.servers": bootstrap,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 100,
            "retry.backoff.ms": 20,
            "log_level": 2,
        }
        self._source = source
        self._sink = sink
        self._producer = Producer({**quick, "transactional.id": name, "linger.ms": 0})
        self._consumer = Consumer(
            {
                **quick,
                "group.id": GROUP,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "session.timeout.ms": 2_000,
                "heartbeat.interval.ms": 300,
            }
        )

    def start(self) -> None:
        self._producer.init_transactions(TIMEOUT_S)
        self._consumer.subscribe([self._source])

    def transform(self) -> int:
        """One transaction; the number of records in it."""
        messages = [
            each for each in self._consumer.consume(RECORDS_PER_TRANSACTION, 0.05) if each.error() is None
        ]
        if not messages:
            return 0
        self._producer.begin_transaction()
        following: dict[int, TopicPartition] = {}
        for message in messages:
            topic, number, offset = message.topic(), message.partition(), message.offset()
            assert topic is not None
            assert number is not None
            assert offset is not None
            self._producer.produce(self._sink, message.value(), partition=number)
            following[number] = TopicPartition(topic, number, offset + 1)
        self._producer.send_offsets_to_transaction(
            [*following.values()], self._consumer.consumer_group_metadata(), TIMEOUT_S
        )
        self._producer.commit_transaction(TIMEOUT_S)
        return len(messages)

    def recover(self, failure: KafkaException) -> bool:
        """True when the worker may go on."""
        print(failure, flush=True)
        if failure.args[0].fatal():
            return False
        try:
            self._producer.abort_transaction(TIMEOUT_S)
            self._rewind()
        except KafkaException as second:
            print("while recovering:", second, flush=True)
            return False
        return True

    def _rewind(self) -> None:
        assigned = self._consumer.assignment()
        if assigned:
            for position in self._committed(assigned):
                self._consumer.seek(position)

    def _committed(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """End offset of the last committed transaction."""
        positions = self._consumer.committed(partitions, TIMEOUT_S)
        for position in positions:
            if position.error is not None:
                raise KafkaException(position.error)
            if position.offset < 0:
                position.offset = OFFSET_BEGINNING
        return positions


class OnlyWorker(Worker):
    """Takes all partitions without a group."""

    def __init__(self, bootstrap: str, source: str, sink: str, name: str, partitions: int) -> None:
        super().__init__(bootstrap, source, sink, name)
        self._partitions = [TopicPartition(source, number) for number in range(partitions)]

    def start(self) -> None:
        self._producer.init_transactions(TIMEOUT_S)
        self._rewind()

    def _rewind(self) -> None:
        self._consumer.assign(self._committed(self._partitions))


def main(bootstrap: str, source: str, sink: str, notes_path: str, name: str, partitions: str = "") -> int:
    if partitions:
        worker: Worker = OnlyWorker(bootstrap, source, sink, name, int(partitions))
    else:
        worker = Worker(bootstrap, source, sink, name)
    worker.start()
    with Path(notes_path).open("a") as notes:
        while True:
            try:
                count = worker.transform()
            except KafkaException as failure:
                if not worker.recover(failure):
                    return FATAL
            else:
                if count:
                    notes.write(f"{name} {count}\n")
                    notes.flush()


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
