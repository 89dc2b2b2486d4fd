"""Text files of a pipeline beside its checkpoint, on any of Spark's file systems.

A note is created completely or not at all, and never overwritten: a driver that dies leaves the existing
notes. Notes that grow are a directory with a file for each addition.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from barnabas.pipelines.spark.context.run_context import Run
from barnabas.pipelines.spark.state.log_entry import create_entry
from barnabas.pipelines.state.durable_files import LOCAL_SCHEME


def read_note(run: Run, location: str) -> str | None:
    """Text at `location`; None if it does not exist."""
    return next(iter(read_notes(run, location)), None)


def read_notes(run: Run, location: str) -> list[str]:
    """Texts of a file, or of all files of a directory."""
    path, files = _open(run, location)
    if str(files.getUri().getScheme()) == LOCAL_SCHEME:  # without a job of Spark
        return _local_texts(Path(str(path.toUri().getPath())))
    if not files.exists(path):
        return []
    rows = run.spark.read.text(location, wholetext=True).collect()
    return [str(row[0]).rstrip("\n") for row in rows]


def write_note(run: Run, location: str, text: str) -> None:
    """Create a note; an existing one is kept."""
    path, files = _open(run, location)
    create_entry(run.spark, files, path, text)


def add_note(run: Run, location: str, text: str) -> None:
    """Add a note to a directory."""
    number = len(read_notes(run, location))
    path, files = _open(run, location)
    hadoop: Any = run.spark._jvm
    while not create_entry(run.spark, files, hadoop.org.apache.hadoop.fs.Path(path, f"{number}.txt"), text):
        number += 1


def batch_numbers(run: Run, kind: str) -> list[int]:
    """Numbers of the micro-batches in a directory of Spark's checkpoint (`offsets`, `commits`), in order."""
    path, files = _open(run, f"{run.checkpoint()}/{kind}")
    if not files.exists(path):
        return []
    names = [str(status.getPath().getName()) for status in files.listStatus(path)]
    return sorted(int(name) for name in names if name.isdecimal())


def _local_texts(place: Path) -> list[str]:
    found = [place]
    if place.is_dir():
        found = [each for each in sorted(place.iterdir()) if not each.name.startswith((".", "_"))]
    return [each.read_text("utf-8").rstrip("\n") for each in found if each.is_file()]


def _open(run: Run, location: str) -> tuple[Any, Any]:
    jvm: Any = run.spark._jvm
    path = jvm.org.apache.hadoop.fs.Path(location)
    return path, path.getFileSystem(run.spark.sparkContext._jsc.hadoopConfiguration())
