"""Term parts: the context, store, batch, watches and epoch that all collaborators of one term share."""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.controller.channels.request_batch import RequestBatch
from barnabas.controller.state.context import ControllerContext
from barnabas.controller.state.store import ControllerStore
from barnabas.controller.state.watches import Watching


@dataclass(frozen=True, slots=True)
class TermParts:
    """Parts of one term. They end with it, so a collaborator of an earlier term cannot reach a later one."""

    context: ControllerContext
    store: ControllerStore
    batch: RequestBatch
    watching: Watching
    epoch: int
    """Controller epoch, which every state written in this term carries."""
