"""Small files with secrets, which only their owner can read at any moment."""

from __future__ import annotations

import os
from pathlib import Path


def make_private_directory(path: Path) -> None:
    """Make the directory, or restrict an existing one."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.chmod(0o700)


def write_private(path: Path, content: str) -> None:
    """Replace the content atomically, in a file that only its owner can read."""
    temporary = path.with_name(f"{path.name}.tmp")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
