"""Known log directories of a broker, so that an unmounted disk does not count as a new directory.

The mount point of a missing disk looks like a fresh log directory: it is empty or absent. A broker that
formats it creates its partitions again, empty. The mounted disk later hides the records written meanwhile.
The directory alone cannot show the difference, so every log directory holds a list of all of them
(`.log-dirs`). A directory that another one lists, and that has neither `meta.properties` nor a log, is
offline until the next start. Its partitions are not created elsewhere.

An operator who replaces a disk by an empty one copies the `meta.properties` of another directory into it. The
directory then belongs to the broker.

Gap: a broker with one log directory has no other directory that lists it.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence
from typing import Final

from barnabas.core.files import Files
from barnabas.storage.directory.directory_properties import META_PROPERTIES
from barnabas.storage.files.names import parse_log_directory

KNOWN_DIRECTORIES: Final = ".log-dirs"


def missing_directories(files: Files, log_dirs: Sequence[str]) -> dict[str, OSError]:
    """Find the log directories that this broker has used before and that are empty now, with the reason."""
    bare = [path for path in log_dirs if _is_bare(files, path)]
    known = {each: path for path in log_dirs if path not in bare for each in _read(files, path)}
    return {path: _missing(known[path]) for path in bare if path in known}


def remember_directories(files: Files, usable: Iterable[str], log_dirs: Sequence[str]) -> dict[str, OSError]:
    """Write the list of all directories to each usable one; returns those that cannot be written to."""
    failed: dict[str, OSError] = {}
    content = "".join(f"{path}\n" for path in log_dirs)
    for path in usable:
        try:
            if _read(files, path) != list(log_dirs):
                files.replace(f"{path}/{KNOWN_DIRECTORIES}", content.encode())
        except OSError as error:
            failed[path] = error
    return failed


def _is_bare(files: Files, path: str) -> bool:
    """Whether the directory has no file of a broker. An unreadable directory may have some."""
    try:
        entries = files.list(path) if files.exists(path) else []
    except OSError:
        return False
    return not any(entry.name == META_PROPERTIES or parse_log_directory(entry.name) for entry in entries)


def _read(files: Files, path: str) -> list[str]:
    try:
        file = f"{path}/{KNOWN_DIRECTORIES}"
        return files.read(file).decode("utf-8", "replace").splitlines() if files.exists(file) else []
    except OSError:
        return []  # the directory goes offline when it is opened


def _missing(other: str) -> OSError:
    return OSError(
        errno.ENODEV,
        f"{other} lists it as a log directory of this broker, and now it is empty. Mount its disk and start"
        f" the broker again; or, if the disk was replaced by an empty one, copy {other}/{META_PROPERTIES}"
        " into it",
    )
