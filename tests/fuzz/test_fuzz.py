"""A slice of the fuzzer in seconds, what it kept, and the places of the planted bugs."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from barnabas.protocol.messages import request_class
from barnabas.protocol.schema.headers import request_header_fields
from tests.fuzz import byte_loop, targets
from tests.fuzz.frames import Drawing, frame
from tests.fuzz.judges import interference
from tests.fuzz.judges.interference import mann_whitney_p
from tests.fuzz.life import Failure, life, tried
from tests.fuzz.plan import Rates
from tests.fuzz.planted import BUGS
from tests.fuzz.pool import Pool
from tests.fuzz.run import CAUGHT, KEPT
from tests.fuzz.simulated import SimulatedSequence
from tests.fuzz.steps import CASES, Recording, draw, draw_damaged
from tests.support.planting import Bug, check_place

INPUTS = 150_000
STEPS = 300
RESTARTED = Rates(restarts=1.0)
REPOSITORY = Path(__file__).resolve().parents[2]
KEPT_INPUTS = sorted(KEPT.glob("input-*.json"))
KEPT_SEQUENCES = sorted(KEPT.glob("sequence-*.json"))


def complaints_of(failure: Failure | None) -> list[str]:
    """Without those that tell of a busy machine as well as of a broker; `make fuzz` has them."""
    told = failure.complaints if failure is not None else []
    return [each for each in told if not each.startswith(("slow:", "stuck:"))]


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_decoders_refuse_or_read_whatever_they_get() -> None:
    found: list[byte_loop.Finding] = []

    def keep(finding: byte_loop.Finding) -> bool:
        found.append(finding)
        return True

    byte_loop.run_inputs(targets.all_targets(Random(5)), INPUTS, 5, keep)
    assert not found, f"{found[0].target} with {found[0].data!r}\n{found[0].told}"


@pytest.mark.parametrize("path", KEPT_INPUTS, ids=lambda path: path.stem)
def test_inputs_that_were_found_stay_harmless(path: Path) -> None:
    kept = json.loads(path.read_text(encoding="utf-8"))
    (target,) = (each for each in targets.all_targets(Random(1)) if each.name == kept["target"])
    finding = byte_loop.attempt(target, base64.b64decode(kept["data"]), 0)
    assert finding is None, finding and finding.told


@pytest.mark.timeout(300)
def test_a_broker_stands_sequences_and_a_restart() -> None:
    with life() as lived:
        for seed in (1_001, 1_002):
            assert not complaints_of(lived.play(seed, STEPS))
        assert not complaints_of(lived.play(1_003, 100, RESTARTED))
        assert lived.restarts >= 2
        told_apart = list(interference.complaints(lived.world, 1, 40))
        assert not told_apart, told_apart[0]
        assert not complaints_of(lived.end())


@pytest.mark.timeout(300)
@pytest.mark.parametrize("path", KEPT_SEQUENCES, ids=lambda path: path.stem)
def test_sequences_that_were_found_stay_harmless(path: Path) -> None:
    assert not complaints_of(tried(Recording.read(path)))


def test_a_recording_is_read_as_it_was_written(tmp_path: Path) -> None:
    drawing = Drawing(Random(1), Pool())
    steps = [draw(drawing, number) for number in range(50)] + [draw_damaged(drawing, 0, 51)]
    recording = Recording(1, steps, [b"a" * 16], ["slow: x"])
    recording.write(tmp_path / "r.json")
    assert Recording.read(tmp_path / "r.json") == recording


@pytest.mark.parametrize("is_large", [False, True])
def test_drawn_frames_can_be_read_to_their_last_byte(is_large: bool) -> None:
    drawing = Drawing(Random(3), Pool())
    for key, version in CASES:
        for _ in range(4):
            drawing.is_large = is_large
            drawn = memoryview(frame(drawing, key, version, 5, b"fuzz"))
            position = request_header_fields(drawn)[4]
            message, end = request_class(key).decoder(version)(drawn, position)
            assert end == len(drawn), f"{key.name} v{version}: {message!r}"


@pytest.mark.timeout(300)
def test_a_simulated_broker_stands_sequences_and_each_follows_from_its_seed() -> None:
    once, again = (SimulatedSequence(1, STEPS).run() for _ in range(2))
    assert once.complaints == []
    assert once.requests > STEPS / 2
    assert once == again
    other = SimulatedSequence(2, STEPS).run()
    assert other.complaints == []
    assert other.digest != once.digest


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("bug", "sizes"),
    [
        ("text that is not UTF-8 is an error of ours", ("--inputs", "100000", "--requests", "0")),
        (
            "a negative rebalance timeout of a static member makes a timer that is always due",
            ("--inputs", "0", "--requests", "0", "--simulated", "6000", "--seed", "12"),
        ),
    ],
)
def test_a_planted_bug_is_caught(bug: str, sizes: tuple[str, ...]) -> None:
    command = [
        *(sys.executable, "-m", "tests.fuzz.run", "--bug", bug, *sizes),
        *("--until-failure", "--no-shrink"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=REPOSITORY)
    assert CAUGHT in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_bugs_have_their_place(bug: Bug) -> None:
    check_place(bug)


def test_there_are_many_bugs() -> None:
    assert len({bug.name for bug in BUGS}) == len(BUGS) >= 30


def test_samples_of_one_kind_are_not_told_apart() -> None:
    random = Random(1)
    one, other = ([random.gauss(100, 10) for _ in range(120)] for _ in range(2))
    assert mann_whitney_p(one, other) > 1e-3
    assert mann_whitney_p(one, [each + 30 for each in other]) < 1e-9
