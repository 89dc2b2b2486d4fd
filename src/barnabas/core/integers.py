"""Largest values of Kafka's INT and LONG."""

from typing import Final

INT_MAX: Final = (1 << 31) - 1
LONG_MAX: Final = (1 << 63) - 1
