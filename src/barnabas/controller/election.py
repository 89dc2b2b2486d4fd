"""Controller election.

The broker that creates the ephemeral `/controller` is the controller. The same transaction takes the next
controller epoch. Requests and writes of an earlier controller carry a lower epoch and are refused.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from barnabas.cluster.coordination.contract import (
    BadVersion,
    Check,
    Coordination,
    Create,
    NodeExists,
    SetData,
    Stat,
)
from barnabas.cluster.znodes.layout import NO_CONTROLLER_EPOCH, ControllerEpochZnode, ControllerZnode
from barnabas.core.clock import Clock
from barnabas.core.errors import NotController
from barnabas.core.ids import BrokerId


class Controllership(NamedTuple):
    """Controller epoch that a broker has won, and its proof."""

    epoch: int
    guard: tuple[Check, ...]
    """Precedes every write, which then fails once another controller has been elected."""


async def become_controller(znodes: Coordination, broker_id: BrokerId, clock: Clock) -> Controllership:
    """Become the controller; NOT_CONTROLLER if another broker is."""
    path = ControllerEpochZnode.PATH
    if await znodes.exists(path) is None:
        with suppress(NodeExists):  # another broker starts at the same time: the version decides
            await znodes.create(path, ControllerEpochZnode.encode(NO_CONTROLLER_EPOCH))
    data, stat = await znodes.get(path)
    epoch = ControllerEpochZnode.decode(data) + 1
    claim = ControllerZnode.encode(broker_id, clock.now_ms())
    try:
        results = await znodes.multi(
            [
                Create(ControllerZnode.PATH, claim, ephemeral=True),
                SetData(path, ControllerEpochZnode.encode(epoch), stat.version),
            ]
        )
    except (NodeExists, BadVersion):
        raise NotController("another broker is the controller") from None
    written = results[1]
    assert isinstance(written, Stat)
    return Controllership(epoch, (Check(path, written.version),))
