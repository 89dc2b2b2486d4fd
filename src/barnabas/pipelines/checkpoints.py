"""What a checkpoint on this machine's disk says, without Spark: how far the source was read.

Spark writes a file per micro-batch into `offsets` before it and into `commits` after it; an
offsets file has a version line, a line of metadata, and a line of offsets per source.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def committed_offsets(checkpoint: str) -> dict[str, Any]:
    """Of the last finished micro-batch's first source; nothing if there is none, or not here."""
    directory = Path(checkpoint)
    done = _numbers(directory / "commits")
    while done:
        lines = (directory / "offsets" / str(done.pop())).read_text(encoding="utf-8").splitlines()
        for line in lines[2:]:
            found = _offsets(line)
            if found:
                return found
    return {}


def _numbers(directory: Path) -> list[int]:
    if not directory.is_dir():
        return []
    return sorted(int(entry.name) for entry in directory.iterdir() if entry.name.isdecimal())


def _offsets(line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
