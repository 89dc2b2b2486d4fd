"""A failure as small as it gets: faults are left out as long as it still fails in the same way.

What is left is written down with the lines of its run, for a person to read, and to be played again: the
files in `transcripts` are tests.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.simulation.faults import Fault
from tests.simulation.simulation import FAULTS_S, Outcome, Simulation

TRANSCRIPTS = Path(__file__).parent / "transcripts"


def kinds(outcome: Outcome) -> set[str]:
    """What is complained of, without the details."""
    return {complaint.partition(":")[0] for complaint in outcome.complaints}


def shrink(failed: Outcome, told: Callable[[str], None], faults_s: float = FAULTS_S) -> Outcome:
    """Leave out half of the faults, a quarter, …, single ones."""
    smallest, wanted = failed, kinds(failed)
    size = max(len(failed.faults) // 2, 1)
    while True:
        start = 0
        while start < len(smallest.faults):
            fewer = [*smallest.faults[:start], *smallest.faults[start + size :]]
            outcome = Simulation(failed.seed, fewer, faults_s=faults_s).run()
            if wanted & kinds(outcome):
                smallest = outcome
                told(f"still fails with {len(fewer)} faults")
            else:
                start += size
        if size == 1:
            return smallest
        size //= 2


def write(outcome: Outcome, directory: Path) -> Path:
    directory.mkdir(exist_ok=True)
    path = directory / f"seed-{outcome.seed}.json"
    content = {
        "seed": outcome.seed,
        "faults": [list(fault) for fault in outcome.faults],
        "complaints": outcome.complaints[:5],
        "transcript": outcome.lines[: -len(outcome.complaints) or None],
    }
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return path


def read(path: Path) -> tuple[int, Sequence[Fault]]:
    content = json.loads(path.read_text(encoding="utf-8"))
    return content["seed"], [Fault(*each) for each in content["faults"]]
