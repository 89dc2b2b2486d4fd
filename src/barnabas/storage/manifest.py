"""The manifest of closed segments: what a reader of files may read without asking the broker.

A closed segment never changes (compaction replaces its file whole, retention removes it), so a batch
job may read it at disk speed. What the files alone do not say is how far committed data goes: the
manifest carries, for each partition, its start, its last stable offset, and the aborted transactions.

The offsets must be asked for before the files are listed. Then every transaction that was aborted
below the last stable offset has its marker, and so its entry in a `.txnindex`, on disk already.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from barnabas.core.files import Files
from barnabas.core.ids import TopicPartition
from barnabas.storage import names
from barnabas.storage.segment.sparse_index import CorruptIndex
from barnabas.storage.segment.time_index import TimeIndex
from barnabas.storage.segment.transaction_index import parse_transaction_index

MANIFEST: Final = "segments-manifest.json"
VERSION: Final = 1


class Bounds(NamedTuple):
    """Of one partition, as the broker tells them."""

    log_start_offset: int
    last_stable_offset: int


def build_manifest(files: Files, directory: str, bounds: Mapping[TopicPartition, Bounds]) -> dict[str, Any]:
    """Of the partitions in `bounds` whose logs are in the log directory."""
    partitions = []
    for entry in files.list(directory):
        place = names.parse_log_directory(entry.name)
        if place in bounds and place is not None:
            partitions.append(_partition(files, f"{directory}/{entry.name}", place, bounds[place]))
    partitions.sort(key=lambda each: (each["topic"], each["partition"]))
    return {"version": VERSION, "partitions": partitions}


def _partition(files: Files, directory: str, place: TopicPartition, bounds: Bounds) -> dict[str, Any]:
    sizes: dict[tuple[int, str], int] = {}
    for entry in files.list(directory):
        parsed = names.parse_segment_file(entry.name)
        if parsed is not None:
            sizes[parsed] = entry.size_bytes
    bases = sorted(base for base, suffix in sizes if suffix == names.LOG)
    segments = [
        {
            "file": names.segment_path(directory, base, names.LOG),
            "base_offset": base,
            "end_offset": following,
            "size_bytes": sizes[base, names.LOG],
            "max_timestamp": _max_timestamp(files, directory, base, sizes.get((base, names.TIME_INDEX), 0)),
        }
        for base, following in itertools.pairwise(bases)
        if following > bounds.log_start_offset and base < bounds.last_stable_offset
    ]
    return {
        "topic": place.topic,
        "partition": place.partition,
        "log_start_offset": bounds.log_start_offset,
        "last_stable_offset": bounds.last_stable_offset,
        "segments": segments,
        "aborted": [
            [each.producer_id, each.first_offset, each.last_offset]
            for base in bases
            if sizes.get((base, names.TRANSACTION_INDEX))
            for each in parse_transaction_index(
                files.read(names.segment_path(directory, base, names.TRANSACTION_INDEX)), directory
            )
        ],
    }


def _max_timestamp(files: Files, directory: str, base_offset: int, file_bytes: int) -> int | None:
    """None when it is not known: such a segment cannot be left out by time."""
    index = TimeIndex(
        files,
        names.segment_path(directory, base_offset, names.TIME_INDEX),
        base_offset,
        file_bytes=file_bytes,
    )
    try:
        timestamp, _ = index.last()
    except CorruptIndex:
        return None
    return timestamp if timestamp >= 0 else None
