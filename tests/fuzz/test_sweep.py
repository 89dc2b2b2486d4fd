"""A slice of the sweep: single requests and sequences of ten neither stop nor fill a broker."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.handlers import APIS
from barnabas.protocol.api_keys import ApiKey
from tests.fuzz.http_edges import Service, hostile_requests
from tests.fuzz.sweep import Measured, Sweep, complaint
from tests.fuzz.turns import Turns
from tests.fuzz.world import World, prepare

SLICE = frozenset(
    {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY, ApiKey.DESCRIBE_TOPIC_PARTITIONS}
)
SPIN = """
import asyncio, sys, time
from pathlib import Path
from tests.fuzz.turns import measure

async def spin():
    began_s = time.thread_time()
    while time.thread_time() - began_s < 0.2:
        pass
    await asyncio.sleep(0.3)  # no processor time

measure(Path(sys.argv[1]))
asyncio.run(spin())
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    started = World(tmp_path_factory.mktemp("sweep"), is_measured=True)
    started.start()
    try:
        prepare(started)
        yield started
    finally:
        started.kill()


@pytest.mark.timeout(300)
def test_a_slice_of_the_sweep(world: World) -> None:
    sweep = Sweep(world, 1)
    apis = [api for api in APIS.for_clients() if api.key in SLICE]
    found = [*sweep.edges(apis), *sweep.sequences(apis)]
    sweep.close()
    assert len(found) > 50
    assert max(each.turn_s for each in found) > 0.0
    assert [told for each in found if (told := complaint(each))] == []


def test_a_turn_is_measured_in_processor_time(tmp_path: Path) -> None:
    path = tmp_path / "turns"
    subprocess.run([sys.executable, "-c", SPIN, str(path)], check=True, cwd=Path(__file__).parents[2])
    turns = Turns(path)
    assert turns.longest_s >= 0.2
    turns.forget()
    assert turns.longest_s == 0.0


def test_bounds_are_complained_about() -> None:
    assert complaint(Measured("x", 0.099, 63 << 20, ())) is None
    assert complaint(Measured("x", 0.101, 0, ())) == "slow: x: a turn of 101 ms"
    assert complaint(Measured("x", 0.0, 65 << 20, ())) == "memory: x: 65 MB more"
    assert complaint(Measured("x", 0.0, 0, (), "the answer is 500")) == "fault: x: the answer is 500"


def test_requests_over_http_have_names_of_their_own() -> None:
    service = Service("metrics", 0, 0, "token", Path(), 0, Path())
    names = [name for name, _ in hostile_requests(service)]
    assert len(set(names)) == len(names) > 500
