"""What the coordination store says of topics.

That the metadata do not know a topic does not say that it is gone: that is for the store to say.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping

from barnabas.core.ids import Uuid

StoredIds = Mapping[str, Uuid | None]
"""What the store says of topics, by name: their ids (ZERO_UUID: it has none), None for one that is gone. Of
what is left out nothing could be learnt."""

FindTopics = Callable[[Collection[str]], Awaitable[StoredIds]]
"""Asks the store."""
