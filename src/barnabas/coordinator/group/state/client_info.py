"""Client of a group request: its identity, API version and readable topics."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from barnabas.core.bounds.kept_memory import MemoryOwner
from barnabas.core.limits import NAME_CHARS_REMEMBERED_MAX


class Caller(NamedTuple):
    client_id: str
    client_host: str
    """Kafka's form: `/127.0.0.1`."""
    api_version: int
    may_describe: Callable[[str], bool]
    """Whether the client may describe a topic, by name."""
    owner: MemoryOwner
    """Owner of the memory that outlives the request."""

    @classmethod
    def of(
        cls,
        client_id: str | None,
        client_host: str,
        api_version: int,
        may_describe: Callable[[str], bool],
        owner: MemoryOwner,
    ) -> Caller:
        """A client id is a label of any length; members keep its beginning."""
        label = (client_id or "")[:NAME_CHARS_REMEMBERED_MAX]
        return cls(label, client_host, api_version, may_describe, owner)
