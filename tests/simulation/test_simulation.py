"""The same seed is the same run, what was found stays mended, and a planted bug is caught."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.bugs import BUGS, Bug, mutated
from tests.simulation.shrinking import TRANSCRIPTS, read
from tests.simulation.simulation import Simulation

REPOSITORY = Path(__file__).resolve().parents[2]
SHORT_S = 15.0


def elsewhere(*arguments: str, hash_seed: str = "random") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.simulation.run",
            "--no-shrink",
            "--faults-seconds",
            str(SHORT_S),
            *arguments,
        ],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": "src"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_same_seed_is_the_same_run_here_and_in_another_process() -> None:
    once, again = (Simulation(5, faults_s=SHORT_S).run() for _ in range(2))
    assert once.faults
    assert once.events > 1_000
    assert once.complaints == [], "\n".join(once.lines)
    assert (once.digest, once.lines) == (again.digest, again.lines)
    other = elsewhere("--seeds", "1", "--seed", "5", hash_seed="7")
    assert f"trace {once.digest}" in other.stdout
    assert Simulation(6, faults_s=SHORT_S).run().digest != once.digest


@pytest.mark.parametrize("path", sorted(TRANSCRIPTS.glob("*.json")), ids=lambda path: path.stem)
def test_what_was_found_stays_mended(path: Path) -> None:
    seed, faults = read(path)
    outcome = Simulation(seed, faults).run()
    assert outcome.complaints == [], "\n".join(outcome.lines)


def test_a_planted_bug_is_caught() -> None:
    caught = elsewhere(
        "--bug", "the last stable offset is the high watermark", "--seeds", "5", "--until-failure"
    )
    assert "caught by seed" in caught.stdout, caught.stdout + caught.stderr


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_bugs_have_their_place(bug: Bug) -> None:
    spec = importlib.util.find_spec(bug.module)
    assert spec is not None
    assert spec.origin is not None
    source = Path(spec.origin).read_text(encoding="utf-8")
    assert mutated(bug, source) != source
    compile(mutated(bug, source), spec.origin, "exec")
