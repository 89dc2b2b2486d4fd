"""Consume, transform, produce, exactly once: a process of its own, so that it can be killed at any moment.

Every number read from the source is written to the same partition of the sink, in one transaction with the
offset that says so. Errors that a transaction survives abort it, and reading goes on from what is committed;
errors that end the producer end the process, and whoever started it starts it again. After each commit a line
goes to the notes, so that others see progress.
"""

from __future__ import annotations

import sys
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

RECORDS_PER_TRANSACTION = 20
TIMEOUT_S = 30.0
GROUP = "transform"
TRANSACTIONAL_ID = "transform-1"
FATAL = 3


def rewind(receiver: Consumer) -> None:
    """Read again from where the last committed transaction ended."""
    for position in receiver.committed(receiver.assignment(), TIMEOUT_S):
        position.offset = max(position.offset, 0)
        receiver.seek(position)


def transform(receiver: Consumer, producer: Producer, sink: str) -> int:
    messages = [each for each in receiver.consume(RECORDS_PER_TRANSACTION, 0.2) if each.error() is None]
    if not messages:
        return 0
    producer.begin_transaction()
    for message in messages:
        producer.produce(sink, message.value(), partition=message.partition())
    producer.send_offsets_to_transaction(
        receiver.position(receiver.assignment()), receiver.consumer_group_metadata(), TIMEOUT_S
    )
    producer.commit_transaction(TIMEOUT_S)
    return len(messages)


def recover(receiver: Consumer, producer: Producer, error: KafkaError) -> bool:
    """True when the loop may go on."""
    print(error, flush=True)
    if error.fatal():
        return False
    try:
        producer.abort_transaction(TIMEOUT_S)
        rewind(receiver)
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
            "session.timeout.ms": 1_000,
            "heartbeat.interval.ms": 200,
        }
    )
    producer.init_transactions(TIMEOUT_S)
    receiver.subscribe([source])
    with Path(notes_path).open("a") as notes:
        while True:
            try:
                count = transform(receiver, producer, sink)
            except KafkaException as failure:
                if not recover(receiver, producer, failure.args[0]):
                    return FATAL
            else:
                if count:
                    notes.write(f"{count}\n")
                    notes.flush()


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:5]))
