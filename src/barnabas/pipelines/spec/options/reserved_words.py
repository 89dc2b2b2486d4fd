"""Reserved words of specs: names of columns and conditions with a fixed meaning."""

from __future__ import annotations

RESERVED = ("_key", "_topic", "_partition", "_offset", "_timestamp", "_headers", "_tombstone")
"""Columns with a record's key, coordinates and headers beside its value. Sinks do not write them as value."""

IS_TOMBSTONE = "_tombstone"
"""Column that marks a record with a null value; all its fields are null."""

TOMBSTONE = "tombstone()"
"""Predicate for records with a null value."""
