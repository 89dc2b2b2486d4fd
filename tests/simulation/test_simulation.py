"""The same seed is the same run, earlier findings stay fixed, and a planted bug is caught."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest

from tests.simulation import shape
from tests.simulation.faults import Fault
from tests.simulation.parts import TRIALS
from tests.simulation.planted import BUGS
from tests.simulation.shape import Shape, draw_shape
from tests.simulation.shrinking import TRANSCRIPTS, replay
from tests.simulation.simulation import Simulation
from tests.simulation.tinkerer import CHANGES, changes_of
from tests.support.planting import Bug, check_place

REPOSITORY = Path(__file__).resolve().parents[2]
SHORT_S = 15.0


PYTHONS = [each for each in os.environ.get("SIMULATION_PYTHONS", "").split(os.pathsep) if each]
"""Other interpreters that have what the broker needs."""


def elsewhere(
    *arguments: str, hash_seed: str = "random", python: str = sys.executable
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            python,
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


def test_a_broker_that_stops_leaves_in_the_same_order() -> None:
    """It closes its connections and ends its tasks: in an order that no address in memory decides."""
    faults = [Fault(6.0, "stop", 2, 1.0), Fault(9.0, "stop", 1, 1.0)]
    once, again = (Simulation(3, faults, faults_s=SHORT_S, shape=Shape()).run() for _ in range(2))
    assert once.complaints == [], "\n".join(once.lines)
    assert once.digest == again.digest


@pytest.mark.skipif(not PYTHONS, reason="SIMULATION_PYTHONS names no other interpreter")
@pytest.mark.parametrize("python", PYTHONS)
def test_the_same_seed_is_the_same_run_on_another_python(python: str) -> None:
    here, there = (elsewhere("--seeds", "2", "--seed", "5", python=each) for each in (sys.executable, python))
    assert here.stdout.count("trace ") == 2
    assert [line for line in there.stdout.splitlines() if line.startswith("seed ")] == [
        line for line in here.stdout.splitlines() if line.startswith("seed ")
    ], there.stderr


@pytest.mark.parametrize("path", sorted(TRANSCRIPTS.glob("*.json")), ids=lambda path: path.stem)
def test_what_was_found_stays_mended(path: Path) -> None:
    outcome = replay(path).run()
    assert outcome.complaints == [], "\n".join(outcome.lines)


def test_a_planted_bug_is_caught() -> None:
    caught = elsewhere(
        "--bug", "the last stable offset is the high watermark", "--seeds", "5", "--until-failure"
    )
    assert "caught by seed" in caught.stdout, caught.stdout + caught.stderr


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_bugs_have_their_place(bug: Bug) -> None:
    check_place(bug)


def test_every_trial_is_drawn() -> None:
    named = (shape.TRIALS, shape.EMBEDDED_TRIALS, shape.LATER_TRIALS, shape.LATER_EMBEDDED_TRIALS)
    latest = (shape.LATEST_TRIALS, shape.LATEST_EMBEDDED_TRIALS, shape.NEWEST_TRIALS, shape.PROMISE_TRIALS)
    assert set(TRIALS) == {draw_shape(seed).trial for seed in range(300)} - {""} == {*chain(*named, *latest)}


@pytest.mark.parametrize("trial", TRIALS)
def test_a_trial_that_is_asked_for_is_drawn(trial: str) -> None:
    assert {draw_shape(seed, trial).trial for seed in range(10)} == {trial}


def test_bugs_name_trials_that_there_are() -> None:
    assert {bug.trial for bug in BUGS} - {""} <= set(TRIALS)


def test_a_broker_without_followers_never_stops_syncing_each_write() -> None:
    """Its power is cut, and no other replica has the records that it acknowledged."""
    assert {each["flush.messages"] for each in changes_of(1) if "flush.messages" in each} == {"1"}
    assert all("min.insync.replicas" not in each for each in changes_of(1))
    assert changes_of(3) == CHANGES


def test_there_are_many_bugs() -> None:
    assert len({bug.name for bug in BUGS}) == len(BUGS) >= 152
