"""Parts that a test attaches to a broker: fault rules, a disk, a log of requests, a clock."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

from barnabas.cluster.coordination.contract import Coordination
from barnabas.cluster.embedded.session import open_embedded
from barnabas.config.broker_config import BrokerConfig
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.clock import Clock, SystemClock
from barnabas.core.files import Files
from barnabas.core.scheduler import Background
from barnabas.network.transport.sockets import SYSTEM_SOCKETS, Sockets
from barnabas.node.background_threads import ThreadBackground
from barnabas.node.broker import Broker
from barnabas.node.membership.coordination_store import (
    COORDINATION_DIRECTORY,
    OpenCoordination,
    open_coordination,
)
from barnabas.testing.faults.actions import Actions
from barnabas.testing.faults.disk import Disk
from barnabas.testing.faults.layer import FaultLayer
from barnabas.testing.faults.request_log import RequestLog
from barnabas.testing.faults.rules import Faults
from barnabas.testing.running.broker_log import BrokerLog
from barnabas.testing.running.virtual_time import VirtualLoop


def open_own_store(
    files: Files, config: BrokerConfig, clock: Clock, background: Background
) -> AbstractAsyncContextManager[Coordination]:
    """The embedded store, on the disk of the test; any other store as usual."""
    if not config.owns_store:
        return open_coordination(config, clock, background)
    path = Path(config.log_dirs[0]) / COORDINATION_DIRECTORY
    return open_embedded(path, clock, background, files=files)


class Kit:
    """Parts of one broker, made before it."""

    def __init__(self, *, is_lasting: bool = True, of_cluster: Faults | None = None) -> None:
        """`is_lasting` is whether the data outlives the test; `of_cluster` are rules of all brokers."""
        self._is_lasting = is_lasting
        self.faults = Faults(of_cluster)
        self.requests = RequestLog()
        self.disk = Disk(is_lasting=is_lasting)
        self.log = BrokerLog()
        self.actions = Actions(lambda: self.disk)

    def make_broker(
        self,
        config: BrokerConfig,
        metrics_address: Endpoint | None = None,
        *,
        sockets: Sockets = SYSTEM_SOCKETS,
        open_store: OpenCoordination | None = None,
    ) -> Broker:
        """A broker with these parts. On a `VirtualLoop` its time is the loop's."""
        loop = asyncio.get_running_loop()
        virtual = loop if isinstance(loop, VirtualLoop) else None
        return Broker(
            config,
            metrics_address=metrics_address,
            clock=SystemClock() if virtual is None else virtual.clock,
            files=self.disk,
            sockets=sockets,
            open_store=open_store or partial(open_own_store, self.disk),
            make_workers=ThreadBackground if virtual is None else virtual.threads,
            dispatch_layer=lambda dispatch, metadata: FaultLayer(
                self.faults, self.requests, self.actions, dispatch, metadata
            ),
        )

    def begin_life(self) -> None:
        """The rules apply, and the disk is without faults."""
        self.disk = Disk(is_lasting=self._is_lasting)
        self.faults.are_suspended = False

    def heal(self) -> None:
        """End the faults of this life, so that the broker can stop. The rules stay for the next one."""
        self.faults.are_suspended = True
        self.disk.heal()
