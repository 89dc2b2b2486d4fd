"""States that must never be, and states that must be reached at the end.

The history of the clients goes to the checker of the chaos tests. This module checks properties that only an
observer of the whole world sees. Replicas are equal byte for byte. Readers of committed records never saw
uncommitted ones. Every partition is served again in bounded time after the last fault.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from barnabas.cluster.znodes.layout import PartitionStateZnode
from barnabas.records.batch import RecordBatch
from tests.chaos.checker import complaints_about
from tests.chaos.history import History, Outcome, Place, Reading
from tests.simulation.machine import DIRECTORIES, Machine
from tests.support.power_cut_files import PowerCutFiles

LENGTH_AT = 8
OVERHEAD_BYTES = 12


def batches(files: PowerCutFiles, topic: str, partition: int) -> dict[int, bytes]:
    """Every whole batch of a replica by its base offset."""
    places = [f"{each}/{topic}-{partition}" for each in DIRECTORIES]
    directory = next(filter(files.exists, places), None)
    if directory is None:
        return {}
    found: dict[int, bytes] = {}
    for name in sorted(entry.name for entry in files.list(directory) if entry.name.endswith(".log")):
        data = files.read(f"{directory}/{name}")
        position = 0
        while position + OVERHEAD_BYTES <= len(data):
            size = OVERHEAD_BYTES + int.from_bytes(
                data[position + LENGTH_AT : position + OVERHEAD_BYTES], "big"
            )
            batch = data[position : position + size]
            if len(batch) < size:
                break
            found[int.from_bytes(batch[:LENGTH_AT], "big")] = batch
            position += size
    return found


def holders(machines: Sequence[Machine], topic: str, partition: int) -> list[Machine]:
    """The ISR in the store: at the end, every replica."""
    node = machines[0].store.tree.nodes.get(PartitionStateZnode.path(topic, partition))
    isr = PartitionStateZnode.decode(node.data, 0).isr if node is not None else ()
    return [machine for machine in machines if machine.number in isr]


def differing_replicas(everybody: Sequence[Machine], topic: str, partition: int) -> Iterator[str]:
    machines = holders(everybody, topic, partition)
    logs = {machine.number: batches(machine.files, topic, partition) for machine in machines}
    reference = logs[machines[0].number]
    for number, log in logs.items():
        for offset in sorted(reference.keys() | log.keys()):
            if reference.get(offset) != log.get(offset):
                yield (
                    f"replicas differ: {topic}-{partition}@{offset} is {describe(reference.get(offset))} on"
                    f" broker {machines[0].number} and {describe(log.get(offset))} on broker {number}"
                )
                break


def epochs(machine: Machine, topic: str, partition: int) -> dict[Place, int]:
    """The leader epoch of every record."""
    found = {}
    for data in batches(machine.files, topic, partition).values():
        view = RecordBatch(memoryview(bytearray(data)))
        for offset in range(view.base_offset, view.next_offset):
            found[Place(topic, partition, offset)] = view.leader_epoch
    return found


def uncommitted_reads(readings: Sequence[Reading], history: History) -> Iterator[str]:
    """Of readers that asked for committed records only."""
    refused = {each.name for each in history.transactions if each.outcome is Outcome.REFUSED}
    for reading in readings:
        final = dict(history.final_committed.get((reading.topic, reading.partition), ()))
        last = -1
        for offset, value in reading.seen:
            where = f"{reading.topic}-{reading.partition}@{offset}"
            if value.transaction in refused:
                yield f"aborted read: {reading.consumer} saw {value} at {where}"
            elif final.get(offset) != value:
                there = final.get(offset)
                yield f"read too early: {reading.consumer} saw {value} at {where}, where {there} is"
            if offset <= last:
                yield f"backward: {reading.consumer} read {where} after {last}"
            last = offset
        missing = [each for each in final if reading.seen and reading.seen[0][0] <= each <= last]
        for offset in sorted(set(missing) - {offset for offset, _ in reading.seen}):
            yield f"skipped: {reading.consumer} did not get {reading.topic}-{reading.partition}@{offset}"


def verdict(
    history: History,
    committed_readings: Sequence[Reading],
    machines: Sequence[Machine],
    topics: dict[str, int],
) -> list[str]:
    complaints = complaints_about(history)
    complaints += uncommitted_reads(committed_readings, history)
    for topic, partitions in topics.items():
        for partition in range(partitions):
            complaints += differing_replicas(machines, topic, partition)
    return complaints


def describe(batch: bytes | None) -> str:
    if batch is None:
        return "missing"
    view = RecordBatch(memoryview(bytearray(batch)))
    return f"a batch of epoch {view.leader_epoch} with {view.record_count} records"
