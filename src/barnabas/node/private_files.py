"""Small files that hold secrets: nobody but their owner reads them, at no moment."""

from __future__ import annotations

import os
from pathlib import Path


def make_private_directory(path: Path) -> None:
    """Also one that is there already."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.chmod(0o700)


def write_private(path: Path, content: str) -> None:
    """The file has its old or its new content, whatever happens, and its owner is the only reader."""
    temporary = path.with_name(f"{path.name}.tmp")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
