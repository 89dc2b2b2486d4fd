"""File names of a log: Kafka's own, and a few that only this broker uses."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from barnabas.core.ids import TopicPartition

LOG: Final = ".log"
OFFSET_INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TRANSACTION_INDEX: Final = ".txnindex"
TRANSACTION_INDEX_CHECKSUM: Final = ".txnindex.crc"
"""Only this broker has it: Kafka's transaction index has no checksum. Apache Kafka ignores the file."""
PRODUCER_SNAPSHOT: Final = ".snapshot"
SEGMENT_SUFFIXES: Final = (LOG, OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX, TRANSACTION_INDEX_CHECKSUM)

DELETED: Final = ".deleted"
CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"

LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
SUPERSEDED: Final = "superseded"
"""Marks a log that its copy in another directory is about to replace."""
MADE_ANEW: Final = "made-anew"
"""Marks a log that was created while another log directory was offline."""

DELETE_DIRECTORY: Final = "-delete"
FUTURE_DIRECTORY: Final = "-future"
STRAY_DIRECTORY: Final = "-stray"

NAME_LENGTH_MAX: Final = 255
"""Longest file name that common file systems allow."""

_SEGMENT_FILE = re.compile(r"(\d{20})(\.log|\.index|\.timeindex|\.txnindex|\.txnindex\.crc|\.snapshot)")
_RENAMED_DIRECTORY = re.compile(r"(\S+)-(\d+)\.(\S+)(-delete|-future|-stray)")
_LOG_DIRECTORY = re.compile(r"(\S+)-(\d+)")

CLUSTER_METADATA: Final = "__cluster_metadata-0"
"""Directory of the metadata log in Kafka's KRaft mode. It is not a topic, and the broker leaves it alone."""


def segment_path(directory: str, base_offset: int, suffix: str) -> str:
    return f"{directory}/{base_offset:020d}{suffix}"


@lru_cache(maxsize=4_096)  # the logs of most partitions have files of the same names
def parse_segment_file(name: str) -> tuple[int, str] | None:
    """Parse the name of a segment's file into `(base offset, suffix)`; None for every other file."""
    found = _SEGMENT_FILE.fullmatch(name)
    return (int(found[1]), found[2]) if found else None


def parse_log_directory(name: str) -> TopicPartition | None:
    """Parse the directory name of a log into its partition; None for every other directory."""
    if name == CLUSTER_METADATA or _RENAMED_DIRECTORY.fullmatch(name):
        return None
    found = _LOG_DIRECTORY.fullmatch(name)
    return TopicPartition(found[1], int(found[2])) if found else None


def renamed_suffix(name: str) -> str | None:
    """Suffix of a renamed log; None for every other name.

    `-delete` waits for removal, `-future` is a copy for another log directory, `-stray` has no topic."""
    found = _RENAMED_DIRECTORY.fullmatch(name)
    return found[4] if found else None


def renamed_directory(topic_partition: TopicPartition, unique: str, suffix: str) -> str:
    """Name of a log that is being deleted (`-delete`), set aside (`-stray`) or copied (`-future`).

    A long topic name is cut, so that the whole is a valid file name."""
    tail = f"-{topic_partition.partition}.{unique}{suffix}"
    return topic_partition.topic[: NAME_LENGTH_MAX - len(tail)] + tail
