"""The lines of a run that docs/SIMULATION.md shows are those of a transcript in the repository."""

from __future__ import annotations

import json
import re
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]
PAGE = (REPOSITORY / "docs" / "SIMULATION.md").read_text(encoding="utf-8")


def test_the_lines_shown_are_of_the_transcript_that_is_named() -> None:
    pattern = r"These lines are from `([\w/.-]+)`.*?^```\n(.*?)^```$"
    ((named, shown),) = re.findall(pattern, PAGE, re.MULTILINE | re.DOTALL)
    known = json.loads((REPOSITORY / named).read_text(encoding="utf-8"))
    lines = shown.splitlines()
    assert [each for each in known["transcript"] if each in lines[:-1]] == lines[:-1]
    assert lines[-1].strip() in known["complaints"]
