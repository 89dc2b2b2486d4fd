"""A task of the HTTP sink without Spark, which sends one micro-batch and notes that it has come to its end.

`python -m tests.scenario.pipelines.http_driver URL ROWS ROW_BYTES BATCH_RECORDS DIRECTORY`
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from barnabas.pipelines.spark.sinks.http import _Form, _Sender
from barnabas.pipelines.spark.sinks.http_client import Receiver

BATCH = 4


def rows_of(count: int, row_bytes: int) -> list[tuple[Any, ...]]:
    """Key, body, topic and record of each row."""
    bodies = (json.dumps({"n": at, "text": "x" * row_bytes}).encode() for at in range(count))
    return [(None, bytearray(body), "orders", f"orders/0/{at}") for at, body in enumerate(bodies)]


def send(url: str, rows: list[tuple[Any, ...]], batch_records: int) -> None:
    receiver = Receiver(
        method="POST", headers={}, timeout_s=60.0, retries=20, backoff_s=0.01, backoff_s_max=0.05,
        redirect_hosts=(), ca_file=None, secret_headers=frozenset(),
    )  # fmt: skip
    form = _Form(url, batch_records, 8_000_000, False, "ignore", "Idempotency-Key", "application/json")
    _Sender(receiver, form).send_all(rows, "query", BATCH)  # type: ignore[arg-type]


def main(url: str, count: str, row_bytes: str, batch_records: str, directory: str) -> None:
    send(url, rows_of(int(count), int(row_bytes)), int(batch_records))
    (Path(directory) / "sent").touch()
    while True:  # the driver has still to note the batch
        time.sleep(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
