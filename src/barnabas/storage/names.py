"""The names of a log's files, exactly as Kafka spells them."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from barnabas.core.ids import TopicPartition

LOG: Final = ".log"
OFFSET_INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TRANSACTION_INDEX: Final = ".txnindex"
PRODUCER_SNAPSHOT: Final = ".snapshot"
SEGMENT_SUFFIXES: Final = (LOG, OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX)

DELETED: Final = ".deleted"
CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"

LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
SUPERSEDED: Final = "superseded"
"""In a log whose copy in another directory is about to take its place."""

DELETE_DIRECTORY: Final = "-delete"
FUTURE_DIRECTORY: Final = "-future"
STRAY_DIRECTORY: Final = "-stray"

NAME_LENGTH_MAX: Final = 255
"""Of one file name, by the file systems that matter."""

_SEGMENT_FILE = re.compile(r"(\d{20})(\.log|\.index|\.timeindex|\.txnindex|\.snapshot)")
_RENAMED_DIRECTORY = re.compile(r"(\S+)-(\d+)\.(\S+)(-delete|-future|-stray)")
_LOG_DIRECTORY = re.compile(r"(\S+)-(\d+)")

CLUSTER_METADATA: Final = "__cluster_metadata-0"
"""The metadata log of Kafka's KRaft mode: not a topic, left alone."""


def segment_path(directory: str, base_offset: int, suffix: str) -> str:
    return f"{directory}/{base_offset:020d}{suffix}"


@lru_cache(maxsize=4_096)  # the logs of most partitions have files of the same names
def parse_segment_file(name: str) -> tuple[int, str] | None:
    """`(base offset, suffix)` of a segment's file, or None for every other file."""
    found = _SEGMENT_FILE.fullmatch(name)
    return (int(found[1]), found[2]) if found else None


def parse_log_directory(name: str) -> TopicPartition | None:
    """The partition whose log lives in a directory of this name; None for every other directory."""
    if name == CLUSTER_METADATA or _RENAMED_DIRECTORY.fullmatch(name):
        return None
    found = _LOG_DIRECTORY.fullmatch(name)
    return TopicPartition(found[1], int(found[2])) if found else None


def renamed_suffix(name: str) -> str | None:
    """What a log under this name is about: `-delete` (to be removed), `-future` (a copy that was to take the
    place of a log in another directory) or `-stray` (of no topic any more); None for every other name."""
    found = _RENAMED_DIRECTORY.fullmatch(name)
    return found[4] if found else None


def renamed_directory(topic_partition: TopicPartition, unique: str, suffix: str) -> str:
    """A name for a log on its way out (`-delete`), aside (`-stray`) or in (`-future`).

    The topic is cut where the whole would be longer than a file name may be."""
    tail = f"-{topic_partition.partition}.{unique}{suffix}"
    return topic_partition.topic[: NAME_LENGTH_MAX - len(tail)] + tail
