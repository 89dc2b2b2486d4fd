"""Mark of a micro-batch, committed with its files: which batch of a query a table holds, and its end.

A table recognises a repeated micro-batch by its query and number. The query id is constant for a checkpoint
and unique to it. The mark also holds the end offsets of the sources with the ids of their topics. So a
batch under a known number with other offsets is noticed, as is a topic that was deleted and created again.
Without that comparison the sink would take it for done and skip its records.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from barnabas.pipelines.state.checkpoint_format import HEAD_LINES, topic_ids, without_topic_ids

Sources = tuple[Any, ...]
"""Offsets of every source of a query, as in Spark's offset log."""


@dataclass(frozen=True, slots=True)
class BatchMark:
    pipeline: str
    query: str
    generation: int
    batch_id: int
    sources: Sources
    """End offsets; empty if unknown."""
    token: str
    """Unique to the driver that committed the batch, and to the batch."""

    def to_text(self) -> str:
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @classmethod
    def of_text(cls, text: str) -> Self:
        found = json.loads(text)
        return cls(**{**found, "sources": tuple(found["sources"])})

    @property
    def topic_ids(self) -> dict[str, str]:
        return {
            topic: topic_id
            for each in self.sources
            if isinstance(each, dict)
            for topic, topic_id in topic_ids(each).items()
        }

    @property
    def ends(self) -> list[Mapping[str, Any]]:
        """End offsets of each source, without topic ids."""
        return [without_topic_ids(each) for each in self.sources if isinstance(each, dict)]

    def is_same_batch(self, other: BatchMark) -> bool:
        """True unless both marks know where their batch ends, and the ends differ."""
        if not self.sources or not other.sources:
            return True
        shared = self.topic_ids.keys() & other.topic_ids.keys()
        return self.ends == other.ends and all(
            self.topic_ids[topic] == other.topic_ids[topic] for topic in shared
        )

    def plan_text(self, before: str) -> str | None:
        """Spark's offsets file of the batch, based on that of the batch before; None if unknown."""
        lines = before.splitlines()
        if not self.sources or len(lines) != HEAD_LINES + len(self.sources):
            return None
        return "\n".join(
            [*lines[:HEAD_LINES], *(json.dumps(each, separators=(",", ":")) for each in self.sources)]
        )


def sources_of(plan: str) -> Sources:
    """End offsets in Spark's offsets file of a batch; `-` is a source without offsets yet."""
    return tuple(None if line == "-" else json.loads(line) for line in plan.splitlines()[HEAD_LINES:])
