"""Controller election."""

from __future__ import annotations

import pytest

from barnabas.cluster.coordination.contract import BadVersion
from barnabas.cluster.znodes.layout import ControllerEpochZnode, ControllerZnode
from barnabas.controller.election import become_controller
from barnabas.core.errors import NotController
from barnabas.core.ids import BrokerId
from tests.unit.controller.support import BROKER_ID, Admin


async def test_the_first_epoch_is_one_and_each_controller_takes_the_next(admin: Admin) -> None:
    assert admin.controller.epoch == 1
    data, stat = await admin.znodes.get(ControllerZnode.PATH)
    assert ControllerZnode.decode(data) == BROKER_ID
    assert stat.ephemeral_owner == admin.znodes.session_id
    await admin.restart()
    assert admin.controller.epoch == 2
    assert ControllerEpochZnode.decode((await admin.znodes.get(ControllerEpochZnode.PATH))[0]) == 2


async def test_there_is_one_controller(admin: Admin) -> None:
    with pytest.raises(NotController):
        await become_controller(admin.znodes, BrokerId(2), admin.clock)
    assert ControllerEpochZnode.decode((await admin.znodes.get(ControllerEpochZnode.PATH))[0]) == 1


async def test_the_guard_fails_once_another_has_been_elected(admin: Admin) -> None:
    await admin.stop()
    await admin.open()
    controllership = await become_controller(admin.znodes, BROKER_ID, admin.clock)
    await admin.znodes.multi(list(controllership.guard))
    await admin.znodes.delete(ControllerZnode.PATH)
    await become_controller(admin.znodes, BrokerId(2), admin.clock)
    with pytest.raises(BadVersion):
        await admin.znodes.multi(list(controllership.guard))


async def test_of_two_that_read_the_same_epoch_one_wins(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    await admin.stop()
    await admin.open()
    get = admin.znodes.get

    async def get_and_lose_the_race(path: str) -> tuple[bytes, object]:
        found = await get(path)
        await admin.znodes.set(path, ControllerEpochZnode.encode(2))
        return found

    monkeypatch.setattr(admin.znodes, "get", get_and_lose_the_race)
    with pytest.raises(NotController):
        await become_controller(admin.znodes, BrokerId(2), admin.clock)
    assert await admin.znodes.exists(ControllerZnode.PATH) is None
