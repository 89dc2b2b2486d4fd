"""Format of a file in the `offsets` directory of a Spark checkpoint: source offsets of a micro-batch.

Spark writes the file before it runs the batch: a line with a version, a line of metadata, and a line per
source. Callers read the file; this module alone parses it.

The offsets of a topic source are `{"topic": {"0": 5}}`. Beside them stand the topic ids at the time of
reading: `{"topic": {"0": 5}, "@topic_ids": {"topic": "MTIzNDU2Nzg5MDEyMzQ1Ng"}}`. A topic that was deleted
and created again has another id, and its offsets begin again. Older checkpoints have no ids.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

TOPIC_IDS: Final = "@topic_ids"
"""Key of the ids. No topic has this name: `@` is not allowed."""
HEAD_LINES: Final = 2
"""Header lines of an offsets file: a version, and metadata. A line per source follows."""


def source_offsets(text: str) -> Iterator[dict[str, Any]]:
    """Offsets of every source with a JSON object: topics are `{"topic": {"0": 5}}`, without ids."""
    yield from map(without_topic_ids, _objects(text))


def source_topic_ids(text: str) -> dict[str, str]:
    """Ids of the topics that the sources read, by name."""
    return {name: topic_id for each in _objects(text) for name, topic_id in topic_ids(each).items()}


def topic_ids(offsets: Mapping[str, Any]) -> dict[str, str]:
    """Ids beside the offsets of one topic source."""
    return dict(offsets.get(TOPIC_IDS, {}))


def without_topic_ids(offsets: Mapping[str, Any]) -> dict[str, Any]:
    return {name: each for name, each in offsets.items() if name != TOPIC_IDS}


def _objects(text: str) -> Iterator[dict[str, Any]]:
    for line in text.splitlines()[HEAD_LINES:]:
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict):
            yield found
