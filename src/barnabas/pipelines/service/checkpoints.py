"""Checkpoints on the local disk, read without Spark: committed offsets and generations."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from barnabas.pipelines.state.checkpoint_format import source_offsets
from barnabas.pipelines.state.committed_offsets import committed_texts, numbers_in


def committed_offsets(checkpoint: str) -> dict[str, Any]:
    """Source offsets of the last finished micro-batch's first source; empty if there is none here."""
    for text in committed_texts(Path(checkpoint)):
        for found in filter(None, source_offsets(text)):
            return found
    return {}


def last_generation(state_location: str, name: str) -> int:
    """Highest generation of a pipeline with a directory on this machine; -1 if there is none."""
    return max(numbers_in(Path(state_location) / name), default=-1)


def remove_generations(state_location: str, name: str, last: int) -> None:
    """Remove the checkpoints of a deleted pipeline on this machine, up to its last generation."""
    directory = Path(state_location) / name
    if directory.resolve().parent != Path(state_location).resolve():
        return  # a directory elsewhere is not the pipeline's
    for number in numbers_in(directory):
        if number <= last:
            shutil.rmtree(directory / str(number))
    if directory.is_dir() and not any(directory.iterdir()):
        directory.rmdir()
