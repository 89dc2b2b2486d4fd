"""Shrinks a failure: leaves faults out as long as the run still fails in the same way.

The remaining faults are written to a file with the lines of their run, for a person to read and to be played
again. The files in `transcripts` are tests.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from tests.simulation.faults import Fault
from tests.simulation.shape import Shape
from tests.simulation.simulation import FAULTS_S, Outcome, Simulation
from tests.simulation.story import COMPLAINTS_MAX, tell

TRANSCRIPTS = Path(__file__).parent / "transcripts"


def kinds(outcome: Outcome) -> set[str]:
    """The complaints, without the details."""
    return {complaint.partition(":")[0] for complaint in outcome.complaints}


def shrink(failed: Outcome, told: Callable[[str], None], faults_s: float = FAULTS_S) -> Outcome:
    """Leave out half of the faults, a quarter, …, single ones."""
    smallest, wanted = failed, kinds(failed)
    size = max(len(failed.faults) // 2, 1)
    while True:
        start = 0
        while start < len(smallest.faults):
            fewer = [*smallest.faults[:start], *smallest.faults[start + size :]]
            outcome = Simulation(failed.seed, fewer, faults_s=faults_s, shape=failed.shape).run()
            if wanted & kinds(outcome):
                smallest = outcome
                told(f"still fails with {len(fewer)} faults")
            else:
                start += size
        if size == 1:
            return smallest
        size //= 2


def write(outcome: Outcome, directory: Path, faults_s: float = FAULTS_S) -> Path:
    directory.mkdir(exist_ok=True)
    path = directory / f"seed-{outcome.seed}.json"
    lines = outcome.lines[: -len(outcome.complaints) or None]
    content = {
        "seed": outcome.seed,
        "shape": outcome.shape._asdict(),
        "faults_seconds": faults_s,
        "faults": [list(fault) for fault in outcome.faults],
        "complaints": outcome.complaints[:COMPLAINTS_MAX],
        "transcript": tell(lines, outcome.complaints, outcome.histories, outcome.partitions),
    }
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return path


def replay(path: Path) -> Simulation:
    """The run that a transcript tells of."""
    content = json.loads(path.read_text(encoding="utf-8"))
    return Simulation(
        content["seed"],
        [Fault(*each) for each in content["faults"]],
        faults_s=content.get("faults_seconds", FAULTS_S),
        shape=Shape(**content.get("shape", {})),
    )
