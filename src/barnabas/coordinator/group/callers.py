"""Who sends a request to a group, which version of the API it speaks, and which topics it may know of."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Caller(NamedTuple):
    client_id: str
    client_host: str
    """As Kafka shows it: `/127.0.0.1`."""
    api_version: int
    may_describe: Callable[[str], bool]
    """A topic, by its name."""
