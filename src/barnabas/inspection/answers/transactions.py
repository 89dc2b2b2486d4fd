"""Transactions: what this broker coordinates, and what is open in the partitions that it leads."""

from __future__ import annotations

import heapq
from typing import Any, Final

from barnabas.coordinator.transaction.state.states import AT_REST
from barnabas.core.steps import Sliced
from barnabas.inspection.inspected import Inspected
from barnabas.inspection.wire import Question
from barnabas.security.acl.vocabulary import ResourceType

TRANSACTIONS_MAX: Final = 10_000
PARTITIONS_MAX: Final = 1_000
"""Partitions that are named of one transaction."""
ALL_PARTITIONS_MAX: Final = 50_000
"""And of all."""
Row = dict[str, Any]


def transactions(inspected: Inspected, question: Question) -> Sliced[Row]:
    """Transactional ids of this coordinator, those with an open transaction first."""
    viewer = inspected.viewer(question)
    open_rows: list[Row] = []
    other_rows: list[Row] = []
    left = ALL_PARTITIONS_MAX
    for _, shard in inspected.broker.transactions.runtime.active_shards():
        for each in list(shard.transactions.values()):
            yield
            rows = other_rows if each.state in AT_REST else open_rows
            if len(rows) >= TRANSACTIONS_MAX or not viewer.sees(
                ResourceType.TRANSACTIONAL_ID, each.transactional_id
            ):
                continue
            partitions = heapq.nsmallest(min(PARTITIONS_MAX, left), each.partitions)
            left -= len(partitions)
            rows.append(
                {
                    "transactional_id": each.transactional_id,
                    "producer_id": each.producer_id,
                    "producer_epoch": each.producer_epoch,
                    "state": each.state.shown_as,
                    "coordinator_id": inspected.broker.broker_id,
                    "timeout_ms": each.timeout_ms,
                    "started_ms": each.start_timestamp_ms if each.start_timestamp_ms >= 0 else None,
                    "partitions": [each for each in partitions if viewer.sees_topic(each.topic)],
                }
            )
    return {"rows": (open_rows + other_rows)[:TRANSACTIONS_MAX]}


def open_producers(inspected: Inspected, question: Question) -> Sliced[Row]:
    """Open transactions in the logs of the partitions that this broker leads."""
    viewer = inspected.viewer(question)
    rows: list[Row] = []
    for topic_partition, partition in list(inspected.broker.replicas.table.partitions.items()):
        yield
        if not partition.leadership.is_leader or partition.log.log_directory.failure is not None:
            continue
        producers = partition.log.producers
        for first_offset, producer_id in producers.ongoing_transactions():
            entry = producers.producers.get(producer_id)
            if (
                entry is not None
                and len(rows) < TRANSACTIONS_MAX
                and viewer.sees_topic(topic_partition.topic)
            ):
                rows.append(
                    {
                        "topic": topic_partition.topic,
                        "partition": topic_partition.partition,
                        "producer_id": producer_id,
                        "producer_epoch": entry.producer_epoch,
                        "coordinator_epoch": entry.coordinator_epoch,
                        "start_offset": first_offset,
                        "started_ms": entry.last_timestamp if entry.last_timestamp >= 0 else None,
                    }
                )
    return {"rows": rows}
