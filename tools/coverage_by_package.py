"""Coverage per package, from the data of `make coverage`.

Lines and branches together, as coverage counts them. Code in other processes (brokers that a scenario starts,
Spark's workers) does not count.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory

import coverage

COUNTED = ("num_statements", "num_branches")
COVERED = ("covered_lines", "covered_branches")


def package_of(path: str) -> str:
    """`src/barnabas/storage/log.py` is in `storage`."""
    inside = Path(path).parts[1:]
    if inside[0] == "barnabas" and len(inside) > 2:
        return inside[1]
    return inside[0]


def main() -> None:
    measured = coverage.Coverage()
    measured.load()
    with TemporaryDirectory() as directory:
        report = Path(directory) / "coverage.json"
        measured.json_report(outfile=str(report))
        files = json.loads(report.read_text(encoding="utf-8"))["files"]
    counted: defaultdict[str, int] = defaultdict(int)
    covered: defaultdict[str, int] = defaultdict(int)
    for path, data in files.items():
        for package in (package_of(path), "all"):
            counted[package] += sum(data["summary"][name] for name in COUNTED)
            covered[package] += sum(data["summary"][name] for name in COVERED)
    for package in sorted(counted, key=lambda each: (each == "all", each)):
        print(f"{package:<20} {covered[package] / max(counted[package], 1):>6.1%}")


if __name__ == "__main__":
    main()
