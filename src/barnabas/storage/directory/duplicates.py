"""Duplicate logs: two log directories hold a log of the same partition, and one of the two counts.

A mark in one of them decides. Without a mark only an operator can decide, and the broker does not start.

- `superseded` marks a log whose copy in another directory is complete (`future_logs`). A crash may leave both
  under the name of the log. The copy counts, and the original is deleted.
- `made-anew` marks a log that was created while another directory was offline. The offline directory may hold
  an earlier log of the partition. It may belong to a replica that the controller still calls new, or to a
  topic that was deleted and created again. When the directory is back, the newer log counts. The earlier one
  is set aside as a stray, with all its files.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from barnabas.core.files import Files
from barnabas.storage.files.names import DELETE_DIRECTORY, MADE_ANEW, STRAY_DIRECTORY, SUPERSEDED


class Verdict(NamedTuple):
    """Log that does not count, and the suffix that it gets."""

    directory: str
    suffix: str


def verdict(files: Files, one: str, other: str) -> Verdict | None:
    """Decide between two logs of one partition; None if only an operator can decide."""
    for old, new in ((one, other), (other, one)):
        if is_superseded(files, old):
            return Verdict(old, DELETE_DIRECTORY)
        if _is_made_anew(files, new) and not _is_made_anew(files, old):
            return Verdict(old, STRAY_DIRECTORY)
    return None


def mark_made_anew(files: Files, directory: str) -> None:
    """Mark a log before it is created, in a directory that may not exist yet; durable on return."""
    files.make_lasting_directory(directory)
    files.replace(f"{directory}/{MADE_ANEW}", b"")


def is_superseded(files: Files, directory: str) -> bool:
    return files.exists(f"{directory}/{SUPERSEDED}")


def unmark(files: Files, directory: str) -> None:
    """Remove the mark after a crash that came before the copy got the log's name: the log still counts."""
    if is_superseded(files, directory):
        files.unlink(f"{directory}/{SUPERSEDED}")


def unmark_made_anew(files: Files, directories: Iterable[str]) -> None:
    """Remove the marks once no log directory is offline."""
    for directory in directories:
        if _is_made_anew(files, directory):
            files.unlink(f"{directory}/{MADE_ANEW}")


def _is_made_anew(files: Files, directory: str) -> bool:
    return files.exists(f"{directory}/{MADE_ANEW}")
