"""Partition of a transactional id: by the existing topic, never by the one that would be created."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from barnabas.cluster.metadata.cache import MetadataCache, PartitionMetadata
from barnabas.coordinator.runtime.routing import partition_of
from barnabas.coordinator.runtime.shard_context import RuntimeSettings
from barnabas.coordinator.transaction.coordinator import NO_PARTITION, TRANSACTION_TOPIC
from barnabas.coordinator.transaction.factory import make_transaction_coordinator
from barnabas.coordinator.transaction.state.settings import TransactionSettings
from barnabas.core.ids import Uuid
from barnabas.core.reporting.metrics import Metrics
from barnabas.purgatory.timer import Timer
from tests.support.manual_time import ManualClock, ManualScheduler
from tests.support.settings import broker_config


def test_a_topic_that_is_led_here_and_not_yet_heard_of_has_no_number_of_partitions() -> None:
    clock, metadata = ManualClock(), MetadataCache("cluster")
    coordinator = make_transaction_coordinator(
        TransactionSettings.of(broker_config()),
        RuntimeSettings(load_buffer_bytes=5 << 20),
        7,
        cast("Any", SimpleNamespace(local=SimpleNamespace(notify_leadership=lambda _: None))),
        metadata,
        cast("Any", None),
        lambda: 0,
        clock=clock,
        scheduler=ManualScheduler(clock),
        timer=Timer(clock),
        metrics=Metrics(),
    )
    assert coordinator.partition_for("id") == partition_of("id", 7), "it will be made like that"
    coordinator.runtime.elected(3, 0)
    assert coordinator.partition_for("id") == NO_PARTITION
    partitions = [PartitionMetadata(number, (1,)) for number in range(50)]
    metadata.put_topic(TRANSACTION_TOPIC, Uuid(bytes(15) + b"1"), partitions)
    assert coordinator.partition_for("id") == partition_of("id", 50)
