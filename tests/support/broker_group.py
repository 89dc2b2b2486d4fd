"""Several brokers that belong together, ours or Apache Kafka's: started, found and killed as one."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from tests.support.broker import Broker

WAIT_TIMEOUT_S = 60.0
POLL_S = 0.02


class GroupedBroker(Broker, Protocol):
    @property
    def id(self) -> int: ...
    @property
    def is_running(self) -> bool: ...


B = TypeVar("B", bound=GroupedBroker)


class BrokerGroup(Generic[B]):
    def __init__(self, brokers: Sequence[B]) -> None:
        self.brokers = brokers

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers)

    def broker(self, broker_id: int) -> B:
        return next(broker for broker in self.brokers if broker.id == broker_id)

    def start(self) -> None:
        """All at once: none is ready before the others are on their way."""
        for broker in self.brokers:
            broker.launch()
        for broker in self.brokers:
            broker.wait_ready()

    def kill(self) -> None:
        for broker in self.brokers:
            if broker.is_running:
                broker.kill()

    def wait_for(
        self, predicate: Callable[[], object], timeout_s: float = WAIT_TIMEOUT_S, what: str = ""
    ) -> None:
        """Poll until `predicate` is true; fails with the output of every broker."""
        deadline = time.monotonic() + timeout_s
        while not predicate():
            if time.monotonic() > deadline:
                raise AssertionError(f"{what or predicate} not within {timeout_s} s\n{self.output_text()}")
            time.sleep(POLL_S)

    def output_text(self) -> str:
        return "\n".join(f"--- broker {broker.id}\n{broker.output_text()}" for broker in self.brokers)
