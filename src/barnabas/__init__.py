"""Barnabas: an Apache-Kafka-compatible streaming platform in Python.

Start reading at `docs/ARCHITECTURE.md`; the package order there is the import order here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """`barnabas.read_segments` and `barnabas.read`, without making a broker import Spark or the client."""
    if name in ("read", "read_segments"):
        from importlib import import_module  # noqa: PLC0415

        place = "barnabas.client.tables.read" if name == "read" else "pyspark_barnabas"
        return getattr(import_module(place), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
