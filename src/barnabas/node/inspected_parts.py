"""Parts of a running broker that its inspection socket reads (`node.inspection`)."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.core.reporting.metrics import Metrics
from barnabas.core.scheduler import Scheduler
from barnabas.core.tasks import Tasks
from barnabas.network.server import Server
from barnabas.node.membership.peers import Peers
from barnabas.requests.services import Services


class InspectedParts(NamedTuple):
    services: Services
    metrics: Metrics
    server: Server
    peers: Peers
    scheduler: Scheduler
    tasks: Tasks
