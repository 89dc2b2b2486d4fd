"""`partition.metadata`: the id of the topic whose partition a log is."""

from __future__ import annotations

import logging

from barnabas.config.keys import read_properties
from barnabas.core.files import Files
from barnabas.core.ids import Uuid
from barnabas.storage.names import PARTITION_METADATA

_log = logging.getLogger(__name__)


def read_topic_id(files: Files, directory: str) -> Uuid | None:
    """The topic id in `partition.metadata` of one log; None when the log has none (yet, or any more)."""
    path = f"{directory}/{PARTITION_METADATA}"
    if not files.exists(path):
        return None
    found = read_properties(files.read(path).decode("utf-8", "replace"))
    try:
        return Uuid.parse(found["topic_id"])
    except (KeyError, ValueError):
        _log.warning("%s does not hold a topic id", path)
        return None


def render_topic_id(topic_id: Uuid) -> bytes:
    return f"version: 0\ntopic_id: {topic_id}".encode()
