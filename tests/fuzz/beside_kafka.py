"""The same sequences to Apache Kafka: where both brokers answer, they answer with the same error codes.

Requests are sent one at a time to both, so that both have the same state. Ids that a broker chose differ: the
pool learns pairs of them from answers of the same shape, and each broker gets its own. Versions are those
that both advertise. `ACCEPTED` lists the codes that may differ, each with its reason; everything else is a
complaint.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, NamedTuple

from barnabas.core.errors import KafkaError
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages import request_class
from barnabas.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.protocol.messages.produce import ProduceRequest
from barnabas.protocol.schema.message import Message
from tests.fuzz.plausible import draw_plausible
from tests.fuzz.pool import GROUPS, LEARNED, SHARED, TRANSACTIONS, Pool
from tests.fuzz.reading import codes_in, read_answer
from tests.fuzz.steps import ASK, STATEFUL, Step
from tests.fuzz.values import Values
from tests.support import hostile, wire

TOPICS = ("fuzz-a", "fuzz-b", "fuzz.c", "hidden-t")
READY_S_MAX = 60.0
ANSWER_S_MAX = 15.0
MAY_WAIT = frozenset({ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP})
"""One at a time they would wait for members that never come."""
DRAWN = tuple(key for key in STATEFUL if key not in MAY_WAIT)
CLOSED = "closed"
PASSING = frozenset({14, 15, 16, 51})
"""Of one broker that coordinates everything: it loads, or a transaction is being ended."""
FAILED = -1
"""UNKNOWN_SERVER_ERROR. Such an answer repeats ids of its request, so they are no ids of that broker."""
NAMES = ("name", "topic", "group_id", "transactional_id", "partition_index", "partition")
RETRIES_MAX = 100
RETRY_S = 0.1

Codes = tuple[int, ...] | str


class Accepted(NamedTuple):
    reason: str
    covers: Callable[[Message, Codes, Codes], bool]


def _damaged_batch(request: Message, ours: Codes, kafka: Codes) -> bool:
    return isinstance(request, ProduceRequest) and kafka == (2,)


def _named_twice(request: Message, ours: Codes, kafka: Codes) -> bool:
    if not isinstance(request, ProduceRequest):
        return False
    named = [(topic.name, topic.topic_id, data.index) for topic in request.topic_data
             for data in topic.partition_data]  # fmt: skip
    return len(set(named)) < len(named)


def _transaction_named_twice(request: Message, ours: Codes, kafka: Codes) -> bool:
    if not isinstance(request, AddPartitionsToTxnRequest):
        return False
    named = [each.transactional_id for each in request.transactions]
    return len(set(named)) < len(named)


def _session_of_another_connection(request: Message, ours: Codes, kafka: Codes) -> bool:
    return isinstance(request, FetchRequest) and ours == (70,) and kafka == (71,)


def _fails_there(request: Message, ours: Codes, kafka: Codes) -> bool:
    return kafka == CLOSED or FAILED in kafka


ACCEPTED = (
    Accepted("Kafka fails with UNKNOWN_SERVER_ERROR or closes the connection; every error is mapped here.",
             _fails_there),
    Accepted("Kafka looks into all batches first, and refuses a request with one damaged batch whole.",
             _damaged_batch),
    Accepted("Of a partition that a Produce names twice, Kafka answers the malformed batch, we the last.",
             _named_twice),
    Accepted("Of a transactional id that is named twice, Kafka answers each mention with topics of the first,"
             " and we the last (ADR 32).", _transaction_named_twice),
    Accepted("A fetch session ends with its connection (ADR 34).", _session_of_another_connection),
)  # fmt: skip


class Difference(NamedTuple):
    key: ApiKey
    version: int
    ours: Codes
    kafka: Codes
    told: str

    def __str__(self) -> str:
        return f"{self.key.name} v{self.version}: ours {self.ours}, Kafka {self.kafka}: {self.told[:600]}"


class Broker:
    """One connection to one of the two, opened again when the broker closes it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._connection: wire.WireConnection | None = None

    def ask(self, key: ApiKey, version: int, message: Message, number: int) -> Message | None:
        frame = hostile.frame_of(key, version, message, number)
        try:
            if self._connection is None:
                self._connection = wire.WireConnection("127.0.0.1", self._port, timeout_s=ANSWER_S_MAX)
            self._connection.send_raw(wire.framed(frame))
            size = int.from_bytes(self._connection._exactly(4), signed=True)
            answer = self._connection._exactly(size)
        except (EOFError, OSError):
            self.close()
            return None
        found, complaint = read_answer(Step(ASK, 0, key, version, frame), answer)
        assert complaint is None, complaint
        assert found is not None
        return found

    def ask_patiently(self, key: ApiKey, version: int, message: Message, number: int) -> Message | None:
        """Again while a coordinator loads or ends a transaction: that takes each broker its own time."""
        for _ in range(RETRIES_MAX):
            found = self.ask(key, version, message, number)
            if found is None or not PASSING & set(codes_in(found)):
                break
            time.sleep(RETRY_S)
        return found

    def close(self) -> None:
        if self._connection is not None:
            self._connection.socket.close()
        self._connection = None

    def versions(self) -> dict[int, range]:
        found: Any = self.ask(ApiKey.API_VERSIONS, 0, ApiVersionsRequest(), 1)
        return {each.api_key: range(each.min_version, each.max_version + 1) for each in found.api_keys}

    def all_topics(self) -> Message:
        found = self.ask(ApiKey.METADATA, 12, MetadataRequest(topics=None), 1)
        assert found is not None
        return found

    def prepare(self) -> None:
        topics = [CreatableTopic(name=name, num_partitions=2, replication_factor=1) for name in TOPICS]
        self.ask(ApiKey.CREATE_TOPICS, 2, CreateTopicsRequest(topics=topics), 1)
        for kind, names in enumerate((GROUPS, TRANSACTIONS)):
            for name in names:
                deadline_s = time.monotonic() + READY_S_MAX
                request = FindCoordinatorRequest(key=name, key_type=kind)
                while time.monotonic() < deadline_s:
                    found: Any = self.ask(ApiKey.FIND_COORDINATOR, 1, request, 1)
                    if found is not None and found.error_code == 0:
                        break
                    time.sleep(0.1)


def differences(ours: Broker, kafka: Broker, seed: int, count: int) -> Iterator[Difference]:
    """Of so many requests, drawn from the seed."""
    random, pool, pairs = Random(seed), Pool(), _Pairs()
    pairs.learn(ours.all_topics(), kafka.all_topics())
    theirs, mine = kafka.versions(), ours.versions()
    spoken = {key: range(max(mine[key][0], theirs[key][0]), min(mine[key][-1], theirs[key][-1]) + 1)
              for key in DRAWN if key in mine and key in theirs}  # fmt: skip
    for number in range(1, count + 1):
        key = random.choice([each for each in DRAWN if spoken.get(each)])
        version = random.choice(spoken[key])
        message = Values(random, pool).message(request_class(key), version)
        if random.random() < 0.4:
            key, version, message = draw_plausible(random, pool)
            if key in MAY_WAIT or version not in spoken.get(key, ()):
                continue
        if isinstance(message, ProduceRequest) and message.acks == 0:
            continue  # nothing would be answered
        try:
            here = ours.ask_patiently(key, version, message, number)
        except KafkaError:  # the drawn values do not fit into this version
            continue
        there = kafka.ask_patiently(key, version, pairs.translated(message), number)
        if here is not None and there is not None and FAILED not in codes_in(there):
            pool.learn(here)
            pairs.learn(here, there)
        if here is None or _is_from_follower(message):
            pool.forget("session_id")  # it ends with its connection, or is for followers only (ADR 34)
        found = _codes(here), _codes(there)
        if found[0] != found[1] and not any(each.covers(message, *found) for each in ACCEPTED):
            yield Difference(key, version, *found, hostile.shortened(message))


def _is_from_follower(message: Message) -> bool:
    if not isinstance(message, FetchRequest):
        return False
    replica = message.replica_state
    return (message.replica_id if replica is None else replica.replica_id) >= 0


def _codes(answer: Message | None) -> Codes:
    return CLOSED if answer is None else tuple(sorted(set(codes_in(answer))))


def _matched(ours: list[Any], theirs: list[Any]) -> Iterator[tuple[Message, Message]]:
    """Structs of the same name: the brokers list topics in different orders. Others keep their order."""
    named = {_name(each): each for each in theirs if isinstance(each, Message) and _name(each)}
    for each in ours:
        if isinstance(each, Message) and _name(each) in named:
            yield each, named[_name(each)]
    if not named and len(ours) == len(theirs):
        for each, same in zip(ours, theirs, strict=True):
            if isinstance(each, Message) and isinstance(same, Message):
                yield each, same


def _name(struct: Any) -> str:
    """The first of its fields that the client chose; structs without one keep their order."""
    return next((str(getattr(struct, each)) for each in NAMES if getattr(struct, each, None)), "")


class _Pairs:
    """Ids of ours, and what the other broker has in their place."""

    def __init__(self) -> None:
        self._theirs: dict[tuple[str, Any], Any] = {}

    def learn(self, ours: Message, theirs: Message) -> None:
        for field in ours.__schema__.fields:
            one, other = getattr(ours, field.name), getattr(theirs, field.name)
            name = SHARED.get(field.name, field.name)
            is_told = (one and other) or name == "producer_id"  # 0 is one
            if name == "topic_id" and not _name(ours):
                continue  # topics without a name may stand in another order
            if name in LEARNED and is_told and isinstance(one, str | int | bytes):
                self._theirs[name, one] = other
            if isinstance(one, list) and isinstance(other, list):
                for each, same in _matched(one, other):
                    self.learn(each, same)
            elif isinstance(one, Message) and isinstance(other, Message):
                self.learn(one, other)

    def translated(self, message: Message) -> Message:
        values = {}
        for field in message.__schema__.fields:
            value = getattr(message, field.name)
            name = SHARED.get(field.name, field.name)
            if isinstance(value, list):
                value = [self.translated(each) if isinstance(each, Message) else each for each in value]
            elif isinstance(value, Message):
                value = self.translated(value)
            elif name in LEARNED and isinstance(value, str | int | bytes):
                value = self._theirs.get((name, value), value)
            values[field.name] = value
        return type(message)(**values)
