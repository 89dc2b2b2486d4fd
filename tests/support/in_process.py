"""A real broker on the test's own loop: real sockets and protocol, any files, any power cut.

`InProcessBroker` is for what a process of its own does not let a test do: hold an fsync, fail a
disk, cut the power. Requests are asked through a channel of Barnabas' own client, so that every
version can be spoken; what clients of others see is tested elsewhere.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from barnabas.client.aio.channel import Channel
from barnabas.config.broker_config import BrokerConfig
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.files import Files
from barnabas.network.transport.sockets import SYSTEM_SOCKETS, Sockets
from barnabas.node.broker import Broker
from barnabas.node.lifecycle import BrokerState
from barnabas.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from barnabas.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.protocol.schema.message import Message
from barnabas.records.batch import iterate_batches
from barnabas.records.record import iterate_records
from tests.support.power_cut_files import PowerCutFiles
from tests.support.wire import batch, content

Response = TypeVar("Response", bound=Message)
BY_NAME_PRODUCE, BY_NAME_FETCH = 12, 12
"""The last versions in which topics go by their names."""


class InProcessBroker:
    """One broker, and one channel to it."""

    def __init__(
        self,
        directories: Sequence[Path],
        files: Files | None = None,
        sockets: Sockets = SYSTEM_SOCKETS,
        **settings: object,
    ) -> None:
        properties = {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": ",".join(map(str, directories)),
            **{key.replace("_", "."): str(value) for key, value in settings.items()},
        }
        self.broker = Broker(BrokerConfig.load(properties), files=files, sockets=sockets)
        self.channel: Channel

    @property
    def address(self) -> Endpoint:
        (listener,) = self.broker.bound_listeners
        return listener.endpoint

    async def start(self) -> None:
        await self.broker.startup()
        self.channel = await Channel.connect(self.address)

    async def stop(self) -> None:
        self.channel.close()
        await self.broker.shutdown()

    async def lose_power(self, files: PowerCutFiles) -> None:
        """The machine goes dark: no write of this broker reaches the disk any more, not even its last."""

        def dead(operation: str, path: str) -> None:
            raise OSError(5, f"{operation} {path}: the power is off")

        files.before = dead
        files.cut_power()
        await self.stop()
        files.before = None

    # -- requests -----------------------------------------------------------------------------

    async def ask(
        self, request: Message, response_class: type[Response], version_max: int | None = None
    ) -> Response:
        return await self.channel.send(request, response_class, version_max=version_max)

    async def create_topic(self, name: str, partitions: int = 1, **configs: object) -> int:
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=[
                CreatableTopicConfig(name=key.replace("_", "."), value=str(value))
                for key, value in configs.items()
            ],
        )
        answer = await self.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), CreateTopicsResponse)
        return answer.topics[0].error_code

    async def produce(
        self, topic: str, *values: bytes, partition: int = 0, acks: int = -1, timeout_ms: int = 30_000
    ) -> PartitionProduceResponse:
        request = produce_request(topic, *values, partition=partition, acks=acks, timeout_ms=timeout_ms)
        answer = await self.ask(request, ProduceResponse, BY_NAME_PRODUCE)
        return answer.responses[0].partition_responses[0]

    async def fetch(self, topic: str, offset: int, **params: Any) -> PartitionData:
        answer = await self.ask(fetch_request(topic, offset, **params), FetchResponse, BY_NAME_FETCH)
        return answer.responses[0].partitions[0]

    async def read_all(self, topic: str, partition: int = 0) -> list[bytes | None]:
        """Every value, from the start of the log to the high watermark."""
        found: list[bytes | None] = []
        offset = 0
        while True:
            part = await self.fetch(topic, offset, partition=partition, max_wait_ms=0)
            assert part.error_code == 0, f"error {part.error_code} at offset {offset}"
            if offset >= part.high_watermark:
                return found
            for each in iterate_batches(content(part.records)):
                assert each.is_valid_crc
                assert each.base_offset == offset, "a hole in the log"
                found.extend(record.value for record in iterate_records(each))
                offset = each.next_offset

    async def metadata(self, topic: str) -> MetadataResponseTopic:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        return (await self.ask(request, MetadataResponse)).topics[0]


def state_of(broker: Broker) -> BrokerState:
    """As it is now: a type checker takes an attribute for what an earlier assertion said of it."""
    return broker.lifecycle.state


@asynccontextmanager
async def in_process_broker(
    *directories: Path, files: Files | None = None, sockets: Sockets = SYSTEM_SOCKETS, **settings: object
) -> AsyncIterator[InProcessBroker]:
    started = InProcessBroker(directories, files, sockets, **settings)
    await started.start()
    try:
        yield started
    finally:
        await started.stop()


def produce_request(
    topic: str, *values: bytes, partition: int = 0, acks: int = -1, timeout_ms: int = 30_000
) -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=batch(values or (b"value",)))
    topics = [TopicProduceData(name=topic, partition_data=[data])]
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=topics)


def fetch_request(
    topic: str,
    offset: int,
    *,
    partition: int = 0,
    max_bytes: int = 1 << 20,
    max_wait_ms: int = 30_000,
    min_bytes: int = 1,
    isolation_level: int = 0,
) -> FetchRequest:
    wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )


def fail_in(directory: Path, operations: Sequence[str], error: OSError) -> Callable[[str, str], None]:
    """A fault for `PowerCutFiles.before`: these operations fail in this directory, and in no other."""

    def before(operation: str, path: str) -> None:
        if operation in operations and path.startswith(f"{directory}/"):
            raise error

    return before
