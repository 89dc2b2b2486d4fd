"""Checkpoints on the local disk, read without Spark: committed offsets and generations.

Spark writes a file per micro-batch into `offsets` before the batch and into `commits` after it.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from barnabas.pipelines.state.checkpoint_format import source_offsets


def committed_offsets(checkpoint: str) -> dict[str, Any]:
    """Source offsets of the last finished micro-batch's first source; empty if there is none here."""
    directory = Path(checkpoint)
    done = _numbers(directory / "commits")
    while done:
        try:
            text = (directory / "offsets" / str(done.pop())).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue  # lost in a crash of the machine
        for found in filter(None, source_offsets(text)):
            return found
    return {}


def last_generation(state_location: str, name: str) -> int:
    """Highest generation of a pipeline with a directory on this machine; -1 if there is none."""
    return max(_numbers(Path(state_location) / name), default=-1)


def remove_generations(state_location: str, name: str, last: int) -> None:
    """Remove the checkpoints of a deleted pipeline on this machine, up to its last generation."""
    directory = Path(state_location) / name
    if directory.resolve().parent != Path(state_location).resolve():
        return  # a directory elsewhere is not the pipeline's
    for number in _numbers(directory):
        if number <= last:
            shutil.rmtree(directory / str(number))
    if directory.is_dir() and not any(directory.iterdir()):
        directory.rmdir()


def _numbers(directory: Path) -> list[int]:
    if not directory.is_dir():
        return []
    return sorted(int(entry.name) for entry in directory.iterdir() if entry.name.isdecimal())
