"""Numbers in requests for records and offsets: special timestamps and isolation levels."""

from __future__ import annotations

LATEST = -1
EARLIEST = -2
"""The ends of a partition."""
MAX_TIMESTAMP = -3
"""The record with the latest timestamp."""
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
"""Bounds of remote storage, for a broker that has it."""

READ_UNCOMMITTED = 0
READ_COMMITTED = 1
"""Isolation levels."""
