"""The numbers in requests for records and offsets: timestamps that stand for a place, and what is read."""

from __future__ import annotations

LATEST = -1
EARLIEST = -2
"""The ends of a partition."""
MAX_TIMESTAMP = -3
"""The record with the latest timestamp."""
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
"""Where remote storage begins and ends, for a broker that has some."""

READ_UNCOMMITTED = 0
READ_COMMITTED = 1
"""Isolation levels."""
