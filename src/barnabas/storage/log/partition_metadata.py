"""`partition.metadata`: the id of the topic whose partition a log is."""

from __future__ import annotations

import logging
from functools import lru_cache

from barnabas.config.properties import read_properties
from barnabas.core.files import Files
from barnabas.core.ids import Uuid
from barnabas.storage.names import PARTITION_METADATA

_log = logging.getLogger(__name__)


def read_topic_id(files: Files, directory: str) -> Uuid | None:
    """The topic id in `partition.metadata` of one log; None when the log has none (yet, or any more)."""
    path = f"{directory}/{PARTITION_METADATA}"
    if not files.exists(path):
        return None
    topic_id = _parse(files.read(path))
    if topic_id is None:
        _log.warning("%s does not hold a topic id", path)
    return topic_id


@lru_cache(maxsize=1_024)  # the partitions of a topic have the same content
def _parse(content: bytes) -> Uuid | None:
    try:
        return Uuid.parse(read_properties(content.decode("utf-8", "replace"))["topic_id"])
    except (KeyError, ValueError):
        return None


def render_topic_id(topic_id: Uuid) -> bytes:
    return f"version: 0\ntopic_id: {topic_id}".encode()
