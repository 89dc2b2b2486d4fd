"""Offset syncs of a mirror: where the records of a source partition are in its copy.

Each micro-batch notes, for every partition, the source offsets that it read and the offsets that it wrote.
The notes are in a compacted topic, in the transaction of the records. A key holds the number of the batch
modulo 64, so compaction keeps the last 64 batches; every 64th batch has a second key, and every 4,096th a
third. So the notes of a partition are bounded, dense for the present and sparse for the past.

A translation never leaves a record out. It is exact at the ends of batches, and inside a batch without gaps
in its source offsets (of transactions, or of compaction). In all other places it is a little too early, so
that a consumer reads some records again, as in MirrorMaker.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import NamedTuple

SLOTS = 64
LEVELS = 3


class Sync(NamedTuple):
    """Note of one batch and partition."""

    begin: int | None
    """First source offset; None for the first batch of a query, whose beginning is in no checkpoint."""
    end: int
    base: int
    """Offset of the first copied record."""
    records: int

    def to_json(self) -> str:
        return json.dumps({"begin": self.begin, "end": self.end, "base": self.base, "records": self.records})

    @classmethod
    def from_json(cls, text: str) -> Sync:
        found = json.loads(text)
        return cls(found["begin"], found["end"], found["base"], found["records"])


def keys_of(group: str, topic: str, partition: int, batch_id: int) -> Iterator[str]:
    """Keys under which a batch is noted. The group's name is last, because it may hold any character."""
    for level in range(LEVELS):
        number, rest = divmod(batch_id, SLOTS**level)
        if rest:
            return
        yield f"{level}/{number % SLOTS}/{partition}/{topic}/{group}"


def place_of(key: str) -> tuple[str, str, int]:
    """Group, topic and partition of a key."""
    _, _, partition, topic, group = key.split("/", 4)
    return group, topic, int(partition)


def translated(offset: int, syncs: Iterable[Sync]) -> int | None:
    """Offset in the copy for a committed offset of the source; None if it is before all notes.

    `syncs` are in the order in which they were written.
    """
    before: Sync | None = None
    for sync in _of_present_topics(syncs):
        if offset < sync.end:
            if sync.begin is not None and sync.begin <= offset:
                gaps = sync.end - sync.begin - sync.records
                return sync.base + max(0, offset - sync.begin - gaps)
            break
        before = sync
    return None if before is None else before.base + before.records


def _of_present_topics(syncs: Iterable[Sync]) -> list[Sync]:
    """Syncs since both topics have been there, the oldest first.

    Offsets only grow, at the source and in the copy. Where either has fallen, a topic was deleted and made
    again, or is read from an earlier offset. Older syncs would then lead to other records.
    """
    found: list[Sync] = []
    for sync in reversed(list(syncs)):
        if found and (sync.end > found[-1].end or sync.base > found[-1].base):
            break
        found.append(sync)
    return found[::-1]
