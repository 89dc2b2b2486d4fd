"""Files of a data directory that docs/FILES.md does not list."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "FILES.md"


def unlisted(directory: Path) -> list[str]:
    """Files and sockets below a data directory, or below a cluster's with a folder for each broker."""
    section = PAGE.read_text(encoding="utf-8").partition("## In a data directory")[2]
    first_cells = re.findall(r"^\| ([^|]+) \|", section, re.MULTILINE)
    known = [each for cell in first_cells for each in re.findall(r"`([^`]+)`", cell)]
    assert len(known) > 20
    found = [str(each.relative_to(directory)) for each in directory.rglob("*") if not each.is_dir()]
    assert len(found) > 10
    return [
        each for each in found if not any(fnmatch(re.sub(r"^broker-\d+/", "", each), row) for row in known)
    ]
