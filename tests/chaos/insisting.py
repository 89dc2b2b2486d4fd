"""Retries of a question. After the faults, leaders and coordinators still move, and refuse requests for a
moment.

Only a refusal that lasts for minutes is a fault.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import KafkaException

from barnabas.core.errors import KafkaError

INSIST_S = 120.0
PAUSE_S = 0.2

Found = TypeVar("Found")


def insist(look: Callable[[], Found], timeout_s: float = INSIST_S) -> Found:
    """Result of `look` as soon as brokers answer it; its failure if that takes too long."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return look()
        except (KafkaException, KafkaError):
            if time.monotonic() > deadline:
                raise
            time.sleep(PAUSE_S)
