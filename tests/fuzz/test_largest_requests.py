"""No single request, however large, delays another client by 100 ms or makes the broker grow by 64 MB."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.handlers import APIS
from barnabas.protocol.api_keys import ApiKey
from barnabas.requests.registry import Api
from tests.fuzz.connection import Closed
from tests.fuzz.judges.latency import P99_S_MAX
from tests.fuzz.judges.memory import GROWTH_BYTES_MAX
from tests.fuzz.largest import frames
from tests.fuzz.prober import Prober
from tests.fuzz.steps import SASL
from tests.fuzz.world import World, prepare

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ELEMENTS_MAX = 100_000
ANSWER_S_MAX = 120.0
NOT_ASKED = SASL | {ApiKey.CONTROLLED_SHUTDOWN}
ASKED = [api for api in APIS.for_clients() if api.key not in NOT_ASKED]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    started = World(tmp_path_factory.mktemp("largest"), settings={"socket.request.max.bytes": str(100 << 20)})
    started.start()
    try:
        prepare(started)
        yield started
    finally:
        started.kill()


def highest_bytes(pid: int) -> int:
    """Most memory that the process has had since `forget_highest`."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))


def forget_highest(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def largest_answered(world: World, user: str, candidates: list[bytes]) -> bool:
    for frame in candidates:
        try:
            with world.connect(user, ANSWER_S_MAX) as connection:
                connection.send(frame)
                connection.one_answer()
        except Closed:  # more elements than a request may have
            continue
        return True
    return False


@pytest.mark.parametrize("user", ["mallory", "admin"])
@pytest.mark.parametrize("api", ASKED, ids=lambda api: api.key.name)
def test_the_largest_request_delays_nobody_and_keeps_little(world: World, api: Api, user: str) -> None:
    prober = Prober(world.port, world.pid)
    try:
        for name, candidates in frames(api.key, api.versions[-1], ELEMENTS_MAX):
            assert prober.is_served(ANSWER_S_MAX)
            prober.taken()
            before_bytes = world.resident_bytes()
            forget_highest(world.pid)
            largest_answered(world, user, candidates)
            assert prober.is_served(ANSWER_S_MAX)
            worst_s = max(wait.busy_s for wait in prober.taken())
            assert worst_s < P99_S_MAX, f"{name}: another client waits {worst_s * 1_000:.0f} ms"
            grown_bytes = highest_bytes(world.pid) - before_bytes
            assert grown_bytes < GROWTH_BYTES_MAX, f"{name}: {grown_bytes >> 20} MB more"
    finally:
        prober.close()
