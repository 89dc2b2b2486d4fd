"""Snapshots of data directories: copies that tests go back to.

A copy of a running broker would be torn. So a broker stops for its snapshot and for a restore, and starts
again on its port. That takes about a tenth of a second. Clients connect again by themselves.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

_NOT_COPIED: Final = frozenset({".lock", ".cluster.lock", "socket"})
"""Locks and sockets belong to processes, not to data."""

_MARKS: Final = ("meta.properties", "coordination", "broker-1")
"""One of them is in every data directory of a broker or a cluster."""


def check_copy(source: Path, target: Path) -> None:
    """Raise an error unless a copy deletes nothing but older data of a broker or a cluster."""
    if not source.is_dir():
        raise FileNotFoundError(f"there is no snapshot in {source}")
    one, other = source.resolve(), target.resolve()
    if one.is_relative_to(other) or other.is_relative_to(one):
        raise ValueError(f"{target} and {source} overlap: write another directory")
    is_data = any((target / mark).exists() for mark in _MARKS)
    if target.exists() and not is_data and any(target.iterdir()):
        raise FileExistsError(f"{target} has other files, which would be deleted: write an empty directory")


def copy_data(source: Path, target: Path) -> None:
    """Make `target` a copy of `source`. Older data in it is gone."""
    check_copy(source, target)
    if target.exists():
        clear(target)
    shutil.copytree(source, target, ignore=_left_out, dirs_exist_ok=True)


def clear(directory: Path) -> None:
    """Delete everything in a directory but its locks, and leave the directory itself."""
    for each in directory.iterdir():
        if each.name in _NOT_COPIED:
            continue
        if each.is_dir() and not each.is_symlink():
            shutil.rmtree(each)
        else:
            each.unlink()


def _left_out(_: str, names: list[str]) -> list[str]:
    return [each for each in names if each in _NOT_COPIED]
