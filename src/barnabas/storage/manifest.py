"""Manifest of closed segments, for jobs that read the files without the broker.

A closed segment never changes (compaction replaces its file, retention removes it), so a batch job may read
it at disk speed. The files do not show how far committed data goes. So the manifest has, for each partition,
the log start offset, the last stable offset and the aborted transactions.

The offsets must be fetched before the files are listed. Then every transaction that was aborted below the
last stable offset already has its marker, and its entry in a `.txnindex`, in the files.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from barnabas.core.files import Files
from barnabas.core.ids import TopicPartition
from barnabas.storage.files import names
from barnabas.storage.segment.sparse_index import CorruptIndex
from barnabas.storage.segment.time_index import TimeIndex
from barnabas.storage.segment.transaction_index import TransactionIndex

MANIFEST: Final = "segments-manifest.json"
VERSION: Final = 1


class Bounds(NamedTuple):
    """Offsets of one partition, from the broker."""

    log_start_offset: int
    last_stable_offset: int


def build_manifest(files: Files, directory: str, bounds: Mapping[TopicPartition, Bounds]) -> dict[str, Any]:
    """Build the manifest of the partitions in `bounds` whose logs are in the log directory."""
    partitions = []
    for entry in files.list(directory):
        topic_partition = names.parse_log_directory(entry.name)
        if topic_partition is not None and topic_partition in bounds:
            path = f"{directory}/{entry.name}"
            partitions.append(_partition(files, path, topic_partition, bounds[topic_partition]))
    partitions.sort(key=lambda each: (each["topic"], each["partition"]))
    return {"version": VERSION, "partitions": partitions}


def _partition(
    files: Files, directory: str, topic_partition: TopicPartition, bounds: Bounds
) -> dict[str, Any]:
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
        "topic": topic_partition.topic,
        "partition": topic_partition.partition,
        "log_start_offset": bounds.log_start_offset,
        "last_stable_offset": bounds.last_stable_offset,
        "segments": segments,
        "aborted": [
            [each.producer_id, each.first_offset, each.last_offset]
            for base in bases
            for each in _transaction_index(files, directory, base, sizes, is_closed=base != bases[-1]).entries
        ],
    }


def _transaction_index(
    files: Files, directory: str, base_offset: int, sizes: Mapping[tuple[int, str], int], *, is_closed: bool
) -> TransactionIndex:
    """Load a transaction index as the broker does. Only a closed segment's index has a valid checksum."""
    index = TransactionIndex(
        files,
        names.segment_path(directory, base_offset, names.TRANSACTION_INDEX),
        base_offset,
        file_bytes=sizes.get((base_offset, names.TRANSACTION_INDEX), 0),
        checksum_path=names.segment_path(directory, base_offset, names.TRANSACTION_INDEX_CHECKSUM),
        has_checksum=is_closed and (base_offset, names.TRANSACTION_INDEX_CHECKSUM) in sizes,
    )
    index.check()
    return index


def _max_timestamp(files: Files, directory: str, base_offset: int, file_bytes: int) -> int | None:
    """Largest timestamp of a segment; None if unknown, and then no filter by time can skip the segment."""
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
