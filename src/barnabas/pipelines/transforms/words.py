"""Words that specs use for columns and conditions; known where Spark is not."""

from __future__ import annotations

TOMBSTONE = "tombstone()"
"""As a predicate: the record's value is null."""
