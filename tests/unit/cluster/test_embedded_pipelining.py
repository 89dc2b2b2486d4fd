"""Requests that overlap give the same answers, and the same tree, as the same requests one by one."""

from __future__ import annotations

import asyncio
import random

import pytest
from tests.support.manual_time import ManualClock
from tests.unit.cluster.later import Later
from tests.unit.cluster.simulated_disk import STORE, SimulatedDisk

from barnabas.cluster.coordination.contract import (
    Check,
    CoordinationError,
    Create,
    Delete,
    Operation,
    SetData,
)
from barnabas.cluster.embedded.session import EmbeddedStore
from barnabas.core.scheduler import InlineBackground

PATHS = ["/a", "/b", "/a/x", "/a/y", "/b/x", "/a/x/deep"]


def random_operation(chance: random.Random) -> Operation:
    path = chance.choice(PATHS)
    version = chance.choice([-1, -1, 0, 1, 2])
    data = b"%d" % chance.randrange(100)
    match chance.randrange(6):
        case 0 | 1:
            return Create(path, data, ephemeral=chance.random() < 0.2)
        case 2:
            return Create(path + "-", data, sequential=True)
        case 3:
            return SetData(path, data, version)
        case 4:
            return Delete(path, version)
        case _:
            return Check(path, version)


def outcome_of(outcome: object) -> object:
    return (type(outcome).__name__, outcome.index) if isinstance(outcome, CoordinationError) else outcome


def tree_of(store: EmbeddedStore) -> object:
    return {path: (node.data, node.stat()) for path, node in store.nodes.items()}


@pytest.mark.parametrize("seed", range(30))
async def test_overlapping_requests_equal_the_same_one_by_one(seed: int) -> None:
    chance = random.Random(seed)
    requests = [[random_operation(chance) for _ in range(chance.choice([1, 1, 1, 3]))] for _ in range(120)]
    plain = EmbeddedStore.open(SimulatedDisk(), STORE, ManualClock(), InlineBackground())
    session = plain.connect()
    expected = []
    for request in requests:
        try:
            expected.append(outcome_of(await session.multi(request)))
        except CoordinationError as error:
            expected.append(outcome_of(error))

    disk, background = SimulatedDisk(), Later()
    store = EmbeddedStore.open(disk, STORE, ManualClock(), background)
    session = store.connect()
    started = []
    for request in requests:
        started.append(asyncio.create_task(session.multi(request)))
        await asyncio.sleep(0)
        if chance.random() < 0.2:
            background.run_one()
    await background.run_all()
    found = await asyncio.gather(*started, return_exceptions=True)

    assert [outcome_of(outcome) for outcome in found] == expected
    assert tree_of(store) == tree_of(plain)
    assert store._tree._shadows == {}

    disk.restart()
    again = EmbeddedStore.open(disk, STORE, ManualClock(), InlineBackground())
    lasting = {path: node.data for path, node in plain.nodes.items() if not node.owner}
    assert {path: node.data for path, node in again.nodes.items()} == lasting
