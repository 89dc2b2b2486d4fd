"""A worker of a group that consumes, transforms and produces, exactly once: to be killed at any moment.

Partitions come by `subscribe`, so they move between workers while transactions are open. What keeps a record
from being handled twice is the group's generation in the transaction's offsets: a worker that lost its
partitions cannot commit. A rebalance or an error aborts the transaction and goes back to what is committed;
an error that ends the producer ends the process. After each commit a line goes to the notes.
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
    def __init__(self, bootstrap: str, sink: str, name: str) -> None:
        # librdkafka 2.16 may wait for ever when it bootstraps anew inside of a transactional call.
        quick = {
            "metadata.recovery.strategy": "none",
            "bootstrap.servers": bootstrap,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 100,
            "retry.backoff.ms": 20,
            "log_level": 2,
        }
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
        self._producer.init_transactions(TIMEOUT_S)

    def subscribe(self, source: str) -> None:
        self._consumer.subscribe([source])

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
            number = message.partition()
            self._producer.produce(self._sink, message.value(), partition=number)
            following[number] = TopicPartition(message.topic(), number, message.offset() + 1)
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
        """Read on from where the last committed transaction ended."""
        assigned = self._consumer.assignment()
        if not assigned:
            return
        for position in self._consumer.committed(assigned, TIMEOUT_S):
            if position.error is not None:
                raise KafkaException(position.error)
            if position.offset < 0:
                position.offset = OFFSET_BEGINNING
            self._consumer.seek(position)


def main(bootstrap: str, source: str, sink: str, notes_path: str, name: str) -> int:
    worker = Worker(bootstrap, sink, name)
    worker.subscribe(source)
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
    raise SystemExit(main(*sys.argv[1:6]))
