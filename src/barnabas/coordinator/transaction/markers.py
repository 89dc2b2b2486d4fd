"""What the coordinator asks of whoever tells the partitions how a transaction ended."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, Protocol

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


class MarkerWriter(Protocol):
    def write(
        self,
        marker: TransactionMarker,
        partitions: Collection[TopicPartition],
        done: Callable[[MarkerErrors], None],
    ) -> None:
        """Append the marker to each partition and wait until it is replicated; then call `done`, once."""
        ...
