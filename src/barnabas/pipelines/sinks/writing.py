"""What a sink hands back: a query ready to start, and whether it took the dead letters along."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamWriter


class Writing(NamedTuple):
    writer: DataStreamWriter
    took_letters: bool = False
