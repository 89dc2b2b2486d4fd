"""Offsets of the last finished micro-batch in a Spark checkpoint on the local disk.

Spark writes a file per micro-batch into `offsets` before the batch and into `commits` after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def committed_text(checkpoint: Path) -> str | None:
    """Offsets file of the last finished micro-batch; None if there is none here."""
    return next(committed_texts(checkpoint), None)


def committed_texts(checkpoint: Path) -> Iterator[str]:
    """Offsets files of the finished micro-batches, the last one first."""
    for number in reversed(numbers_in(checkpoint / "commits")):
        try:
            yield (checkpoint / "offsets" / str(number)).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue  # lost in a crash of the machine


def numbers_in(directory: Path) -> list[int]:
    """Numbers that are names in a directory, sorted."""
    if not directory.is_dir():
        return []
    return sorted(int(entry.name) for entry in directory.iterdir() if entry.name.isdecimal())
