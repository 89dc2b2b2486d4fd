"""Faults that brokers had once do not return."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fuzz.fault import Fault
from tests.fuzz.known_faults import ALL
from tests.fuzz.world import World, prepare

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    started = World(tmp_path_factory.mktemp("faults"))
    started.start()
    try:
        prepare(started)
        yield started
    finally:
        started.kill()


@pytest.mark.parametrize("fault", ALL, ids=lambda fault: fault.name)
def test_a_known_fault_is_not_there(world: World, fault: Fault) -> None:
    assert list(fault.show(world)) == []
    assert world.is_running
    assert "Traceback" not in world.log_text()
