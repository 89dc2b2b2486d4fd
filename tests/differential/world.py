"""One broker as a case sees it: topics with the same names and content on either side.

Topic ids are the broker's own, so a request that carries one differs in those sixteen bytes;
`Side` remembers whose id is whose, and `normalise` puts the topic's name in its place.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from barnabas.core.ids import Uuid
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.protocol.schema.headers import encode_request, read_response_header
from barnabas.protocol.schema.message import Message
from tests.support import wire
from tests.support.broker import Broker
from tests.support.fixtures import wait_until_led

LED_TIMEOUT_S = 60.0
UNKNOWN_ID = Uuid(b"no topic has it!")
TIMESTAMP_MS = 1_700_000_000_000


@dataclass(frozen=True)
class Topic:
    name: str
    id: Uuid = UNKNOWN_ID


NOWHERE = Topic("nowhere")
"""A topic that neither broker has."""


@dataclass
class Side:
    """One of the two brokers, and what is known of it that the other may not share."""

    broker: Broker
    cluster_id: str = ""
    topic_names: dict[Uuid, str] = field(default_factory=dict)
    shared: dict[str, Topic] = field(default_factory=dict)
    versions: dict[int, range] = field(default_factory=dict)
    producer_ids: list[int] = field(default_factory=list)
    """Those that the broker gave out in the case that runs, in that order."""

    @property
    def name(self) -> str:
        return self.broker.name

    def producer_label(self, producer_id: int) -> str | int:
        """A name for an id that the broker chose; one that the case chose stays what it is."""
        if producer_id not in self.producer_ids:
            return producer_id
        return f"<producer id {self.producer_ids.index(producer_id)}>"

    def connect(self, node: int | None = None) -> wire.WireConnection:
        """There is one broker; a cluster has a node for each number."""
        return wire.WireConnection(self.broker.host, self.broker.port)

    def word_for(self, root: str, field_name: str, value: object) -> str | None:
        """Placeholder of a value that is this side's own, in a response of the class `root`."""
        own = {"host": self.broker.host, "port": self.broker.port, "cluster_id": self.cluster_id}
        words = {"host": "<host>", "port": "<port>", "cluster_id": "<cluster>"}
        return words[field_name] if field_name in own and own[field_name] == value else None

    def ask(self, api: ApiKey, version: int, request: Message, response: type[Message]) -> Message:
        """For preparing the world: one request on a connection of its own."""
        with self.connect() as connection:
            connection.send_raw(wire.framed(b"".join(encode_request(api, version, 1, "world", request))))  # type: ignore[arg-type]
            frame = receive_frame(connection)
        _, position = read_response_header(memoryview(frame), api, version)
        return response.decode(frame, version, position)[0]

    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> Topic:
        """A new topic, led and ready."""
        wanted = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
        )
        answer = self.ask(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=[wanted]), CreateTopicsResponse)
        assert isinstance(answer, CreateTopicsResponse)
        (made,) = answer.topics
        assert made.error_code == 0, (
            f"{self.name} did not create {name}: {made.error_code} {made.error_message}"
        )
        self.topic_names[made.topic_id] = name
        with self.connect() as connection:
            for partition in range(partitions):
                wait_until_led(connection, name, partition)
        return Topic(name, made.topic_id)

    def append(self, topic: Topic, records: bytes, partition: int = 0) -> int:
        """The base offset."""
        with self.connect() as connection:
            body = wire.produce_body(topic.name, records, partition=partition)
            reader = connection.ask(wire.PRODUCE, wire.PRODUCE_VERSION, body)
        reader.number("i"), reader.string(), reader.unpack("ii")
        error, base_offset = reader.unpack("hq")
        assert error == 0, f"{self.name} did not take records of {topic.name}: error {error}"
        return base_offset

    def learn(self) -> None:
        """The cluster's id and the versions that are spoken."""
        answer = self.ask(ApiKey.METADATA, 12, MetadataRequest(topics=[]), MetadataResponse)
        assert isinstance(answer, MetadataResponse)
        self.cluster_id = answer.cluster_id or ""
        with self.connect() as connection:
            reader = connection.ask(wire.API_VERSIONS, 0, b"")
        assert reader.number("h") == 0
        for _ in range(reader.number("i")):
            key, low, high = reader.unpack("hhh")
            self.versions[key] = range(low, high + 1)

    def learn_id(self, name: str) -> Topic:
        """The topic that exists under this name, made by whomever."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        deadline = time.monotonic() + LED_TIMEOUT_S
        while True:
            answer = self.ask(ApiKey.METADATA, 12, request, MetadataResponse)
            assert isinstance(answer, MetadataResponse)
            (found,) = answer.topics
            if found.error_code == 0:
                self.topic_names[found.topic_id] = name
                return Topic(name, found.topic_id)
            assert time.monotonic() < deadline, f"{self.name} does not know {name}"
            time.sleep(0.01)


@dataclass
class World:
    """One side in one version, as a case sees it."""

    side: Side
    version: int
    stem: str
    """Begins the names of the topics that this run of the case makes."""
    given: list[bytes] = field(default_factory=list)
    """Bytes of requests that may differ, since they follow from what the broker itself gave out."""
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def shared(self, name: str) -> Topic:
        """A topic that was prepared once and that no case changes (`prepared.py`)."""
        return self.side.shared[name]

    def new_name(self) -> str:
        return f"{self.stem}-{next(self._numbers)}"

    def topic(
        self,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
        batches: Sequence[bytes] = (),
    ) -> Topic:
        """A topic of this run alone; `batches` are appended to its partition 0."""
        topic = self.side.create_topic(self.new_name(), partitions, configs)
        for batch in batches:
            self.side.append(topic, batch)
        return topic

    def append(self, topic: Topic, records: bytes, partition: int = 0) -> int:
        return self.side.append(topic, records, partition)

    def settle(self, name: str, partitions: int = 1) -> Topic:
        """Waits until a topic that a request of the case made is led."""
        topic = self.side.learn_id(name)
        with self.side.connect() as connection:
            for partition in range(partitions):
                wait_until_led(connection, name, partition)
        return topic


def receive_frame(connection: wire.WireConnection) -> bytes:
    size = int.from_bytes(connection._exactly(4), signed=True)
    return connection._exactly(size)
