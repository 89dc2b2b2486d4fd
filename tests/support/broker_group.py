"""Several brokers that belong together, ours or Apache Kafka's: started, found and killed as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from tests.support.broker import Broker
from tests.support.waiting import PATIENCE_S, eventually


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
        self, predicate: Callable[[], object], timeout_s: float = PATIENCE_S, what: str = ""
    ) -> None:
        """Poll until `predicate` is true; fails with the output of every broker."""
        eventually(predicate, what, timeout_s=timeout_s, report=self.output_text)

    def output_text(self) -> str:
        return "\n".join(f"--- broker {broker.id}\n{broker.output_text()}" for broker in self.brokers)
