"""Who sends a request to a group, and which version of the API it speaks."""

from __future__ import annotations

from typing import NamedTuple


class Caller(NamedTuple):
    client_id: str
    client_host: str
    """As Kafka shows it: `/127.0.0.1`."""
    api_version: int
