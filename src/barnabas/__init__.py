"""Barnabas: an Apache-Kafka-compatible streaming platform in Python.

Start reading at `docs/ARCHITECTURE.md`; the package order there is the import order here.
"""

__version__ = "0.1.0"
