"""`partition.metadata`: the topic id of a log."""

from __future__ import annotations

import logging
from functools import lru_cache

from barnabas.config.properties import read_properties
from barnabas.core.files import Files
from barnabas.core.ids import Uuid
from barnabas.storage.files.names import PARTITION_METADATA

logger = logging.getLogger(__name__)


def read_topic_id(files: Files, directory: str) -> Uuid | None:
    """Read the topic id of one log; None if the file is missing or damaged."""
    path = f"{directory}/{PARTITION_METADATA}"
    if not files.exists(path):
        return None
    topic_id = _parse(files.read(path))
    if topic_id is None:
        logger.warning("ignoring damaged %s: it has no valid topic id", path)
    return topic_id


@lru_cache(maxsize=1_024)  # the partitions of a topic have the same content
def _parse(content: bytes) -> Uuid | None:
    try:
        return Uuid.parse(read_properties(content.decode("utf-8", "replace"))["topic_id"])
    except (KeyError, ValueError):
        return None


def render_topic_id(topic_id: Uuid) -> bytes:
    return f"version: 0\ntopic_id: {topic_id}".encode()
