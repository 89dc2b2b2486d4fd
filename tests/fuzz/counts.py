"""Counts of a run as one line, which can be added up: several processes, with seeds of their own.

    counts: sequences seed=3 requests=120000 answered=117520 restarts=4 lives=2 failures=0 seconds=61

`python -m tests.fuzz.counts FILE...` adds the last such line of each part of each file.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

LINE = re.compile(r"^counts: (\w+) (.*)$", re.MULTILINE)
DECODERS, SEQUENCES, SIMULATED = "decoders", "sequences", "simulated"


def line(part: str, **counts: float) -> str:
    return f"counts: {part} " + " ".join(f"{name}={number:.0f}" for name, number in counts.items())


def added(texts: Iterable[str]) -> dict[str, Counter[str]]:
    """By part of the fuzzer. Lines of one seed and part follow each other: the last one has all of it."""
    found: dict[str, Counter[str]] = {}
    for text in texts:
        last: dict[tuple[str, str], str] = {}
        for part, told in LINE.findall(text):
            last[part, told.split()[0]] = told
        for (part, _), told in last.items():
            pairs = [each.partition("=") for each in told.split()[1:]]
            found.setdefault(part, Counter({"runs": 0})).update(
                {"runs": 1, **{name: int(number) for name, _, number in pairs}}
            )
    return found


def main() -> None:
    for part, counts in sorted(added(Path(name).read_text() for name in sys.argv[1:]).items()):
        print(line(part, **counts))


if __name__ == "__main__":
    main()
