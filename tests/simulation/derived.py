"""Producer state of a broker equals the state that its log implies, at the end and after any restart.

A broker that forgets a producer may write a batch twice. A broker that remembers truncated batches of a
producer acknowledges a batch that is not in the log. Clients see either only after a rare retry; this check
sees both directly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from barnabas.core.ids import TopicPartition
from barnabas.records.batch import RecordBatch
from barnabas.replication.partition.partition import Partition
from barnabas.storage.producers.producer_state import ProducerState
from tests.simulation import judge
from tests.simulation.machine import Machine


class Known(NamedTuple):
    """Compared state of one producer."""

    epoch: int
    last_sequence: int
    last_offset: int
    open_from: int


def forgotten_producers(machines: Sequence[Machine]) -> Iterator[str]:
    for machine in machines:
        if not machine.is_serving or machine.is_damaged:
            continue
        for place, partition in machine.partitions.items():
            yield from _of_partition(machine, place, partition)


def _of_partition(machine: Machine, place: TopicPartition, partition: Partition) -> Iterator[str]:
    """Of producers whose last batch is still there: what is deleted from the start may be forgotten."""
    log = partition.log
    written = ProducerState(end_offset=log.log_start_offset)
    for data in judge.batches(machine.files, *place).values():
        batch = RecordBatch(memoryview(bytearray(data)))
        if batch.base_offset < log.log_start_offset:
            continue
        completed = written.apply(batch, batch.base_offset)
        if completed is not None:
            written.complete(completed)
    remembered = known_of(log.producers)
    for producer, told in known_of(written).items():
        found = remembered.get(producer)
        if told.last_sequence >= 0 and found != told:
            yield (
                f"producer remembered wrongly: {machine} knows {found} of producer {producer} of {place}, and"
                f" its log has {told}"
            )


def known_of(state: ProducerState) -> dict[int, Known]:
    return {
        producer: Known(
            entry.producer_epoch,
            entry.last_sequence,
            entry.last_data_offset,
            entry.current_txn_first_offset,
        )
        for producer, entry in state.producers.items()
    }
