"""fsync of files on a local disk that a sink relies on after a power failure.

Spark writes its checkpoint, and the files of a micro-batch, without fsync. A power failure may truncate or
remove all files of the last half minute. Sinks are durable, so a sink could hold a micro-batch whose end
offsets are lost. The batch would be planned again with other offsets, and the sink would skip it as done.

So the offsets of a micro-batch are on disk before a sink takes the batch, and data files before the log lists
them. Commits need no fsync: a batch without a commit runs again, and the sink recognises it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

LOCAL_SCHEME: Final = "file"


def sync_plan(checkpoint: str, batch_id: int) -> None:
    """Sync the offsets of a micro-batch, before a sink takes it.

    The first batch also syncs the query id, and the directories that the query has made.
    """
    root = local_path(checkpoint)
    if root is None:
        return
    sync_files([root / "offsets" / f".{batch_id}.crc", root / "offsets" / str(batch_id)])
    if batch_id == 0:
        sync_files([root / ".metadata.crc", root / "metadata"])
        for directory in root.parents:
            _sync_directory(directory)


def sync_files(files: Iterable[Path]) -> None:
    """Sync files and the directories with their names. Missing files are left out."""
    directories = set()
    for file in files:
        with suppress(FileNotFoundError):
            _sync(file, os.O_RDONLY)
            directories.add(file.parent)
    for directory in directories:
        _sync_directory(directory)


def local_path(location: str) -> Path | None:
    """Path of a location on this machine's disk; None if the location has another scheme."""
    split = urlsplit(location)
    if not split.scheme:
        return Path(location).absolute()
    return Path(unquote(split.path)) if split.scheme == LOCAL_SCHEME else None


def _sync_directory(directory: Path) -> None:
    # A directory that this user may not read was not made by it.
    with suppress(FileNotFoundError, PermissionError):
        _sync(directory, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
