"""Are the replicas of a partition the same, byte for byte?

Segments may be cut at different offsets (each replica rolls by its own clock), so what is compared is the
sequence of batches. Everything below the shortest replica's end must be equal: at rest, with every replica
in sync, that is all of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from barnabas.records.batch import RecordBatch
from tests.chaos.history import Place, Producer

LENGTH_AT = 8
OVERHEAD_BYTES = 12


def batches(directory: Path) -> dict[int, bytes]:
    """Every whole batch of a partition's directory by its base offset."""
    found: dict[int, bytes] = {}
    for segment in sorted(directory.glob("*.log")):
        data = segment.read_bytes()
        position = 0
        while position + OVERHEAD_BYTES <= len(data):
            size = OVERHEAD_BYTES + int.from_bytes(
                data[position + LENGTH_AT : position + OVERHEAD_BYTES], "big"
            )
            if position + size > len(data):
                break
            batch = data[position : position + size]
            found[int.from_bytes(batch[:LENGTH_AT], "big")] = batch
            position += size
    return found


def producers(directory: Path, topic: str, partition: int) -> dict[Place, Producer]:
    """Producer of each record of a partition."""
    found: dict[Place, Producer] = {}
    for batch in batches(directory).values():
        view = RecordBatch(batch)
        for offset in range(view.base_offset, view.next_offset):
            found[Place(topic, partition, offset)] = Producer(view.producer_id, view.producer_epoch)
    return found


def differences(replicas: Mapping[int, Path]) -> list[str]:
    """Differences between replicas (broker id to partition directory)."""
    logs = {broker_id: batches(directory) for broker_id, directory in replicas.items()}
    reference_id, reference = next(iter(logs.items()))
    complaints = []
    for broker_id, log in logs.items():
        name = next(iter(replicas.values())).name
        for base_offset in sorted(reference.keys() | log.keys()):
            ours, theirs = reference.get(base_offset), log.get(base_offset)
            if ours != theirs:
                complaints.append(
                    f"replicas differ: {name}@{base_offset} is {_describe(ours)} on broker {reference_id}"
                    f" and {_describe(theirs)} on broker {broker_id}"
                )
                break
    return complaints


def _describe(batch: bytes | None) -> str:
    if batch is None:
        return "missing"
    view = RecordBatch(memoryview(bytearray(batch)))
    return f"a batch of epoch {view.leader_epoch} with {view.record_count} records"


def partition_directories(
    data_directories: Mapping[int, Path], topic: str, partition: int
) -> dict[int, Path]:
    """Where each broker has the log: by name, since other logs are being removed meanwhile."""
    found = {}
    for broker_id, root in data_directories.items():
        place = root / f"{topic}-{partition}"
        if place.is_dir():
            found[broker_id] = place
    return found
