"""Becoming the controller.

Whoever creates the ephemeral `/controller` is the controller, and in the same step takes the
next controller epoch: what an earlier controller still sends or writes carries a lower epoch
and is refused. On one node there is no rival, but the tree looks as it does in a cluster.
"""

from __future__ import annotations

from barnabas.cluster.coordination import Coordination, Create, NodeExists, SetData
from barnabas.cluster.znodes import NO_CONTROLLER_EPOCH, ControllerEpochZnode, ControllerZnode
from barnabas.core.clock import Clock
from barnabas.core.errors import NotController
from barnabas.core.ids import BrokerId


async def become_controller(znodes: Coordination, broker_id: BrokerId, clock: Clock) -> int:
    """The epoch in which this broker is the controller; NOT_CONTROLLER if another one is."""
    if await znodes.exists(ControllerEpochZnode.PATH) is None:
        try:
            await znodes.create(ControllerEpochZnode.PATH, ControllerEpochZnode.encode(NO_CONTROLLER_EPOCH))
        except NodeExists:
            pass  # another broker starts at the same time: the condition below decides
    data, stat = await znodes.get(ControllerEpochZnode.PATH)
    epoch = ControllerEpochZnode.decode(data) + 1
    try:
        await znodes.multi(
            [
                Create(
                    ControllerZnode.PATH, ControllerZnode.encode(broker_id, clock.now_ms()), ephemeral=True
                ),
                SetData(ControllerEpochZnode.PATH, ControllerEpochZnode.encode(epoch), stat.version),
            ]
        )
    except NodeExists:
        raise NotController("another broker is the controller") from None
    return epoch
