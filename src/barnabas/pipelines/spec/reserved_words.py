"""Words with a meaning of their own in specs, where columns and conditions are named."""

from __future__ import annotations

RESERVED = ("_key", "_topic", "_partition", "_offset", "_timestamp", "_headers")
"""Columns that carry a record's place beside its value; sinks do not write them as value."""

TOMBSTONE = "tombstone()"
"""As a predicate: the record's value is null."""
