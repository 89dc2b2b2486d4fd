"""A client of the store that overwrites the node of the controller with nonsense.

No controller stops working and no broker fails to start because of it. The node ends with the session of the
elected controller, and the next controller writes its own.
"""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.cluster.znodes.layout import ControllerZnode
from tests.chaos.history import History
from tests.simulation.cast import Client, Part, Stage
from tests.simulation.clients import World
from tests.simulation.embedded import EmbeddedView
from tests.simulation.shared import SharedView
from tests.simulation.store import Store

NONSENSE = b"{"
PAUSE_S = 40.0


class Vandal(Part):
    def clients(self, stage: Stage) -> Iterator[Client]:
        yield "vandal", _spoil(stage.world("vandal", History()), stage.store)


async def _spoil(world: World, store: Store | EmbeddedView | SharedView) -> None:
    while not world.is_over():
        await world.pause(PAUSE_S)
        store.spoil(ControllerZnode.PATH, NONSENSE)
