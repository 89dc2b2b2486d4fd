"""A broker's administrative parts without sockets and logs: a real store, real rules, fake replicas."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from barnabas.core.errors import KafkaError, UnknownTopicOrPartition
from barnabas.core.ids import BrokerId, TopicPartition, Uuid
from barnabas.handlers.context import RequestContext
from barnabas.handlers.services import Services
from barnabas.storage.log_config import LogConfig


@dataclass
class FakePeer:
    peer_host: str = "192.0.2.1"
    local_host: str = "192.0.2.9"
    local_port: int = 19092
    listener_name: str = "PLAINTEXT"
    connection_id: str = "1"
    principal: str = "User:ANONYMOUS"


@dataclass
class FakeExchange:
    connection: FakePeer = field(default_factory=FakePeer)
    received_ms: float = 0.0
    held: bool = False
    closed: str | None = None

    def respond(self, parts: Sequence[Any], /) -> None:
        raise AssertionError("handlers answer through the context")

    def respond_nothing(self) -> None:
        raise AssertionError("administrative requests are always answered")

    def close(self, reason: str, /) -> None:
        self.closed = reason

    def hold(self) -> None:
        self.held = True


class Finisher:
    """Keeps what a handler answers with."""

    def __init__(self) -> None:
        self.response: Any = None
        self.work: Coroutine[Any, Any, Any] | None = None

    def finish(self, context: RequestContext, response: Any) -> None:
        self.response = response

    def finish_later(self, context: RequestContext, work: Coroutine[Any, Any, Any]) -> None:
        self.work = work


class FakeLog:
    def __init__(self, topic_partition: TopicPartition, topic_id: Uuid, config: LogConfig) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.config = config
        self.producers: list[Any] = []

    def active_producers(self) -> list[Any]:
        return self.producers


@dataclass
class Led:
    """A partition that the fake replicas lead."""

    log: FakeLog
    leader_epoch: int
    replicas: list[int]
    isr: list[int]


class FakeReplicas:
    """Leads what it is told to lead, except what is in `broken`."""

    def __init__(self) -> None:
        self.led: dict[TopicPartition, Led] = {}
        self.deleted: list[TopicPartition] = []
        self.forgotten: list[str] = []
        self.broken: Mapping[TopicPartition, KafkaError] = {}

    def become_leader(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        leader_epoch: int,
        replicas: Sequence[BrokerId],
        isr: Sequence[BrokerId],
        config: LogConfig,
    ) -> None:
        if topic_partition in self.broken:
            raise self.broken[topic_partition]
        log = FakeLog(topic_partition, topic_id, config)
        self.led[topic_partition] = Led(log, leader_epoch, list(replicas), list(isr))

    def stop_replica(self, topic_partition: TopicPartition, *, delete: bool) -> None:
        self.led.pop(topic_partition, None)
        if delete:
            self.deleted.append(topic_partition)

    def forget_topic(self, topic: str) -> None:
        self.forgotten.append(topic)

    def update_log_config(self, topic: str, config: LogConfig) -> None:
        for topic_partition, led in self.led.items():
            if topic_partition.topic == topic:
                led.log.config = config

    def partition(self, topic_partition: TopicPartition) -> Led:
        if topic_partition not in self.led:
            raise UnknownTopicOrPartition(f"this broker has no partition {topic_partition}")
        return self.led[topic_partition]


async def ask(broker: Services, handle: Any, request: Any, version: int, peer: FakePeer | None = None) -> Any:
    """The response that `handle` gives, whether at once, later or as a coroutine."""
    finisher = Finisher()
    exchange = FakeExchange(peer or FakePeer())
    context = RequestContext(broker, exchange, version, 1, "test", 0.0, finisher)
    response = handle(request, context)
    if isinstance(response, Coroutine):
        return await response
    if response is None and finisher.work is not None:
        return await finisher.work
    return response if response is not None else finisher.response
