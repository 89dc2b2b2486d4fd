"""What a decoder makes of a column of bytes."""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql import Column


class Decoded(NamedTuple):
    """A struct of the value's columns (or the one column that it is), and what went wrong, if anything."""

    value: Column
    error: Column
    is_struct: bool = True
