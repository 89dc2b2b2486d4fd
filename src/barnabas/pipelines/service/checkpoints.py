"""What a checkpoint on this machine's disk says, without Spark: how far the source was read.

Spark writes a file per micro-batch into `offsets` before it and into `commits` after it.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from barnabas.core.spark_journal import source_offsets


def committed_offsets(checkpoint: str) -> dict[str, Any]:
    """Of the last finished micro-batch's first source; nothing if there is none, or not here."""
    directory = Path(checkpoint)
    done = _numbers(directory / "commits")
    while done:
        text = (directory / "offsets" / str(done.pop())).read_text(encoding="utf-8")
        for found in filter(None, source_offsets(text)):
            return found
    return {}


def last_generation(state_location: str, name: str) -> int:
    """The highest generation of a pipeline that has a directory on this machine; -1 if none has."""
    return max(_numbers(Path(state_location) / name), default=-1)


def remove_generations(state_location: str, name: str, last: int) -> None:
    """Remove the checkpoints of a pipeline that is deleted, up to its last generation, if they are here."""
    home = Path(state_location) / name
    if home.resolve().parent != Path(state_location).resolve():
        return  # what lies elsewhere is not the pipeline's
    for number in _numbers(home):
        if number <= last:
            shutil.rmtree(home / str(number))
    if home.is_dir() and not any(home.iterdir()):
        home.rmdir()


def _numbers(directory: Path) -> list[int]:
    if not directory.is_dir():
        return []
    return sorted(int(entry.name) for entry in directory.iterdir() if entry.name.isdecimal())
