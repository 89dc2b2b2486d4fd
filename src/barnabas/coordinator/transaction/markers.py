"""How a transaction ended, as its partitions are told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition

MarkerErrors = Mapping[TopicPartition, KafkaError]
"""The partitions that have no marker, and why; the others have it, replicated."""


class TransactionMarker(NamedTuple):
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    transaction_version: int
