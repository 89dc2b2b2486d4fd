"""Consume, transform, produce, exactly once: a process of its own, so that it can be killed at any moment.

Every number read from the source is written to the same partition of the sink, in one transaction with the
offset that says so. The loop owns its partitions by its transactional id alone, so that no rebalance blurs
what is seen. Errors that a transaction survives abort it, and reading goes on from what is committed; errors
that end the producer end the process, and whoever started it starts it again. After each commit a line goes
to the notes, so that others see progress.
"""

from __future__ import annotations

import sys
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

PARTITIONS = 2
RECORDS_PER_TRANSACTION = 20
TIMEOUT_S = 30.0
GROUP = "transform"
TRANSACTIONAL_ID = "transform-1"
FATAL = 3


def rewind(receiver: Consumer, source: str) -> None:
    """Read from where the last committed transaction ended."""
    partitions = [TopicPartition(source, number) for number in range(PARTITIONS)]
    positions = receiver.committed(partitions, TIMEOUT_S)
    for position in positions:
        if position.error is not None:
            raise KafkaException(position.error)
        position.offset = max(position.offset, 0)
    receiver.assign(positions)


def transform(receiver: Consumer, producer: Producer, sink: str) -> int:
    messages = [each for each in receiver.consume(RECORDS_PER_TRANSACTION, 0.05) if each.error() is None]
    if not messages:
        return 0
    producer.begin_transaction()
    following: dict[int, TopicPartition] = {}
    for message in messages:
        number = message.partition()
        producer.produce(sink, message.value(), partition=number)
        following[number] = TopicPartition(message.topic(), number, message.offset() + 1)
    producer.send_offsets_to_transaction([*following.values()], receiver.consumer_group_metadata(), TIMEOUT_S)
    producer.commit_transaction(TIMEOUT_S)
    return len(messages)


def recover(receiver: Consumer, producer: Producer, source: str, error: KafkaError) -> bool:
    """True when the loop may go on."""
    print(error, flush=True)
    if error.fatal():
        return False
    try:
        producer.abort_transaction(TIMEOUT_S)
        rewind(receiver, source)
    except KafkaException as failure:
        print("while recovering:", failure, flush=True)
        return False
    return True


def main(bootstrap: str, source: str, sink: str, notes_path: str) -> int:
    # librdkafka 2.16 may wait for ever when it bootstraps anew inside of a transactional call.
    quick = {
        "metadata.recovery.strategy": "none",
        "bootstrap.servers": bootstrap,
        "reconnect.backoff.ms": 10,
        "reconnect.backoff.max.ms": 100,
        "log_level": 2,
    }
    producer = Producer(
        {**quick, "transactional.id": TRANSACTIONAL_ID, "linger.ms": 0, "retry.backoff.ms": 20}
    )
    receiver = Consumer(
        {
            **quick,
            "group.id": GROUP,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    producer.init_transactions(TIMEOUT_S)
    rewind(receiver, source)
    with Path(notes_path).open("a") as notes:
        while True:
            try:
                count = transform(receiver, producer, sink)
            except KafkaException as failure:
                if not recover(receiver, producer, source, failure.args[0]):
                    return FATAL
            else:
                if count:
                    notes.write(f"{count}\n")
                    notes.flush()


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:5]))
