"""Barnabas: an Apache-Kafka-compatible streaming platform in Python.

Start reading at `docs/ARCHITECTURE.md`; the package order there is the import order here.
"""

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """`barnabas.read_segments` and `barnabas.read`, without making a broker import Spark or the client."""
    if name in ("read", "read_segments"):
        from importlib import import_module  # noqa: PLC0415

        place = "barnabas.client.tables.read" if name == "read" else "pyspark_barnabas"
        return getattr(import_module(place), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
