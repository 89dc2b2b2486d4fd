"""Newer requests name topics by id; the broker's own books are kept by name."""

from __future__ import annotations

from barnabas.core.ids import Uuid
from barnabas.requests.context import RequestContext


def topic_name(context: RequestContext, topic_id: Uuid) -> str | None:
    """The name of the topic that has this id now; None if there is none."""
    known = context.broker.metadata.topic_by_id(topic_id)
    return None if known is None else known.name
