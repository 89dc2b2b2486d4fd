"""Outcome of a transaction, as its markers carry it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition

MarkerErrors = Mapping[TopicPartition, KafkaError]
"""Partitions without a marker, and why; the others have it, replicated."""


class TransactionMarker(NamedTuple):
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    transaction_version: int
