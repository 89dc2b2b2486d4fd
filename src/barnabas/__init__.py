"""Barnabas: an Apache-Kafka-compatible streaming platform in Python.

Start reading at `docs/ARCHITECTURE.md`; the package order there is the import order here.
"""

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """`barnabas.read_segments`, without making a broker import Spark."""
    if name == "read_segments":
        from importlib import import_module  # noqa: PLC0415

        return import_module("pyspark_barnabas").read_segments
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
