"""Checkpoint files: a version, a count, and one line for each entry.

Kafka keeps four per log directory, all with lines `topic partition offset`: recovery points, high watermarks,
log start offsets, and how far logs are compacted. Each log has one more, with lines `epoch start-offset`.

A damaged checkpoint does not stop the broker. Each can be rebuilt or safely taken as empty, so a damaged file
counts as empty and is reported.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from barnabas.core.errors import KafkaStorageError
from barnabas.core.files import Files
from barnabas.core.ids import TopicPartition

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
CLEANED_OFFSETS = "cleaner-offset-checkpoint"

VERSION = 0

logger = logging.getLogger(__name__)


class CorruptCheckpoint(Exception):
    """The file is not a valid checkpoint."""


def render(lines: Sequence[str]) -> bytes:
    return "\n".join((str(VERSION), str(len(lines)), *lines, "")).encode()


def parse(content: bytes) -> list[list[str]]:
    """Split every entry into words; an empty file has no entries."""
    lines = content.decode("utf-8", "replace").splitlines()
    if len(lines) < 2:
        return []
    try:
        version, count = int(lines[0]), int(lines[1])
    except ValueError:
        raise CorruptCheckpoint("the first two lines are not numbers") from None
    if version != VERSION:
        raise CorruptCheckpoint(f"version {version} is unknown")
    entries = [line.split() for line in lines[2:]]
    if len(entries) != count:
        raise CorruptCheckpoint(f"{count} entries announced, {len(entries)} found")
    return entries


def render_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    for topic in {topic for topic, _ in offsets}:
        if topic.split() != [topic]:
            raise KafkaStorageError(f"a checkpoint cannot hold the topic {topic!r}: its name has whitespace")
    return render([f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()])


def parse_offsets(content: bytes) -> dict[TopicPartition, int]:
    rows = _typed(content, str, int, int)
    return {TopicPartition(topic, partition): offset for topic, partition, offset in rows}


def read_offsets(files: Files, path: str) -> dict[TopicPartition, int]:
    """Read the offsets in the file; none when it is missing or damaged."""
    if not files.exists(path):
        return {}
    try:
        return parse_offsets(files.read(path))
    except CorruptCheckpoint as error:
        logger.warning("ignoring damaged checkpoint %s: %s", path, error)
        return {}


def render_epochs(entries: Iterable[tuple[int, int]]) -> bytes:
    return render([f"{epoch} {start_offset}" for epoch, start_offset in entries])


def parse_epochs(content: bytes) -> list[tuple[int, int]]:
    return [(epoch, start_offset) for epoch, start_offset in _typed(content, int, int)]


def _typed(content: bytes, *types: type[str | int]) -> Iterator[Any]:
    for words in parse(content):
        try:
            yield [convert(word) for convert, word in zip(types, words, strict=True)]
        except ValueError:
            raise CorruptCheckpoint(f"malformed line {' '.join(words)!r}") from None
