"""Record of the files that this process syncs, in order."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


class SyncedFiles:
    """Paths of synced files and directories, at the time of the sync."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.paths: list[Path] = []
        fsync = os.fsync

        def note(descriptor: int) -> None:
            self.paths.append(Path(f"/proc/self/fd/{descriptor}").readlink())
            fsync(descriptor)

        monkeypatch.setattr(os, "fsync", note)

    def __contains__(self, path: Path) -> bool:
        return path.resolve() in self.paths

    def order_of(self, path: Path) -> int:
        return self.paths.index(path.resolve())
