"""Parts that a test attaches to a broker: fault rules, a disk, a log of requests, a clock."""

from __future__ import annotations

import asyncio

from barnabas.config.broker_config import BrokerConfig
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.clock import SystemClock
from barnabas.node.background_threads import ThreadBackground
from barnabas.node.broker import Broker
from barnabas.testing.disk import Disk
from barnabas.testing.fault_layer import FaultLayer
from barnabas.testing.fault_rules import Faults
from barnabas.testing.request_log import RequestLog
from barnabas.testing.virtual_time import VirtualLoop


class Kit:
    """Parts of one broker, made before it."""

    def __init__(self) -> None:
        self.faults = Faults()
        self.requests = RequestLog()
        self.disk = Disk()

    def make_broker(self, config: BrokerConfig, metrics_address: Endpoint | None = None) -> Broker:
        """A broker with these parts. On a `VirtualLoop` its time is the loop's."""
        loop = asyncio.get_running_loop()
        virtual = loop if isinstance(loop, VirtualLoop) else None
        return Broker(
            config,
            metrics_address=metrics_address,
            clock=SystemClock() if virtual is None else virtual.clock,
            files=self.disk,
            make_workers=ThreadBackground if virtual is None else virtual.threads,
            dispatch_layer=lambda dispatch, metadata: FaultLayer(
                self.faults, self.requests, dispatch, metadata
            ),
        )

    def heal(self) -> None:
        """End all faults, so that the broker can stop."""
        self.faults.clear()
        self.disk.heal()
