"""A producer that never stops and writes down what was acknowledged.

Run as a process of its own, so that neither the test nor the broker's death disturbs it. It sends
the numbers 0, 1, 2 … with padding, idempotently and with acks=all; for each acknowledgement it
appends `number offset` to a file. SIGTERM ends it after everything sent is acknowledged. An
error of any record is its death, with exit code 1: an idempotent producer must never see one
from a broker that merely restarts.
"""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer

RECORDS_PER_SECOND_MAX = 20_000
RECORDS_PER_TURN = 100
PADDING = b"." * 300
FLUSH_TIMEOUT_S = 120.0
BATCH_BYTES_MAX = 32_768
"""Well below the size of a segment: a batch must fit into one."""


def main(bootstrap: str, topic: str, acknowledged_path: str) -> int:
    stopping = False
    failures: list[str] = []

    def stop(*_: object) -> None:
        nonlocal stopping
        stopping = True

    def fatal(error: KafkaError) -> None:
        if error.fatal():
            failures.append(f"fatal: {error}")

    signal.signal(signal.SIGTERM, stop)
    sender = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 2,
            "batch.size": BATCH_BYTES_MAX,
            "queue.buffering.max.messages": 5_000,
            "message.timeout.ms": 600_000,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 100,
            "retry.backoff.ms": 20,
            "error_cb": fatal,
            "log_level": 2,
        }
    )
    with Path(acknowledged_path).open("w") as acknowledged:

        def delivered(error: KafkaError | None, message: Message) -> None:
            value = message.value() or b""
            if error is not None:
                failures.append(f"{value.split()[0]!r}: {error}")
            else:
                acknowledged.write(f"{value.split()[0].decode()} {message.offset()}\n")

        number = 0
        while not stopping and not failures:
            for _ in range(RECORDS_PER_TURN):
                try:
                    sender.produce(topic, b"%d %s" % (number, PADDING), partition=0, on_delivery=delivered)
                except BufferError:
                    sender.poll(0.01)
                    break
                number += 1
            sender.poll(0)
            acknowledged.flush()
            time.sleep(RECORDS_PER_TURN / RECORDS_PER_SECOND_MAX)
        left = sender.flush(FLUSH_TIMEOUT_S)
    if left:
        failures.append(f"{left} records were never acknowledged")
    print("\n".join(failures), flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:4]))
