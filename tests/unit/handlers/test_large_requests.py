"""Requests with a hundred thousand elements are handled in slices."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.core.errors import InvalidRequest
from barnabas.core.limits import ANSWER_ELEMENTS_MAX, TURN_MS_MAX
from barnabas.handlers import APIS
from barnabas.handlers.describe_configs import DESCRIBE_CONFIGS
from barnabas.handlers.fetch import handle_fetch
from barnabas.handlers.metadata import METADATA
from barnabas.handlers.offset_fetch import (
    PARTITIONS_AT_ONCE_MAX,
    fetch_in_pieces,
    handle_offset_fetch,
)
from barnabas.handlers.shared.chunked_queries import CHUNK, ask_in_chunks
from barnabas.network.transport.exchange import Exchange
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages import request_class
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from barnabas.requests.context import RequestContext
from barnabas.security.acl.authorizer import AllowAll
from tests.support.manual_time import ManualClock
from tests.unit.handlers.support import Broker, FakePeer, Finisher

INLINE = {
    ApiKey.PRODUCE: "in slices when there are several partitions",
    ApiKey.FETCH: "in slices when there are many partitions",
    ApiKey.JOIN_GROUP: "one decision about one group",
    ApiKey.SYNC_GROUP: "one decision about one group",
    ApiKey.LEAVE_GROUP: "one decision about one group",
    ApiKey.LIST_TRANSACTIONS: "the elements are filters",
    ApiKey.UPDATE_METADATA: "of the controller",
}
"""Handlers of requests with arrays that do their work in one turn, and why they may."""


def has_array(key: ApiKey) -> bool:
    return any(field.kind.element is not None for field in request_class(key).__schema__.fields)


@pytest.mark.parametrize("api", [api for api in APIS if has_array(api.key)], ids=lambda api: api.key.name)
def test_handlers_of_many_elements_stand_aside(api: Any) -> None:
    assert (api.is_sliced or api.is_async) != (api.key in INLINE)


class Sliced(Finisher):
    """Counts what is left to be done in slices, and does none of it."""

    count = 0

    def finish_in_slices(self, *_: object) -> None:
        self.count += 1


@pytest.mark.parametrize(("topics", "partitions"), [(1, 101), (101, 0), (100, 2), (2, 51)])
def test_a_fetch_of_many_partitions_stands_aside_however_they_are_spread(
    topics: int, partitions: int
) -> None:
    asks = [FetchPartition(partition=each) for each in range(partitions)]
    request = FetchRequest(topics=[FetchTopic(topic=f"t{each}", partitions=asks) for each in range(topics)])
    broker: Any = SimpleNamespace()
    exchange = Exchange(FakePeer(), 0.0)
    finisher: Any = Sliced()
    handle_fetch(request, RequestContext(broker, exchange, request, 12, 1, "test", 0.0, finisher))
    assert finisher.count == 1


class Asked:
    """A context whose clock moves by hand, and a coordinator that counts what it is asked at once."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.breaths = 0
        finisher: Any = Finisher()
        finisher.later = self._later
        broker: Any = SimpleNamespace(clock=self.clock, groups=self, authorizer=AllowAll())
        exchange = Exchange(FakePeer(), 0.0)
        self.context = RequestContext(broker, exchange, None, 1, 1, "test", 0.0, finisher)
        self.sizes: list[int] = []

    async def _later(self) -> None:
        self.breaths += 1

    def ask(self, item: int, respond: Callable[[int], None]) -> None:
        if len(self.sizes) == self.breaths:
            self.sizes.append(0)
        self.sizes[-1] += 1
        self.clock.advance(ms=TURN_MS_MAX + 1)
        asyncio.get_running_loop().call_soon(respond, -item)

    def run(self, _: str, decide: Callable[[Any], Any], respond: Any, __: Any) -> None:
        respond(decide(SimpleNamespace(offset_requests=self)))

    def fetch(self, group: OffsetFetchRequestGroup, *, require_stable: bool) -> OffsetFetchResponseGroup:
        assert require_stable
        self.clock.advance(ms=TURN_MS_MAX + 1)
        self.sizes.append(sum(1 + len(topic.partition_indexes) for topic in group.topics or ()))
        if group.group_id == "loading":
            return OffsetFetchResponseGroup(group_id=group.group_id, error_code=14)
        return OffsetFetchResponseGroup(
            group_id=group.group_id,
            topics=[
                OffsetFetchResponseTopics(
                    name=topic.name,
                    partitions=[
                        OffsetFetchResponsePartitions(
                            partition_index=each, committed_offset=each, metadata=""
                        )
                        for each in topic.partition_indexes
                    ],
                )
                for topic in group.topics or ()
            ],
        )


async def test_a_coordinator_is_asked_in_chunks_with_a_breath_between() -> None:
    asked = Asked()
    items = list(range(10 * CHUNK + 3))
    assert await ask_in_chunks(items, asked.ask, asked.context) == [-item for item in items]
    assert asked.sizes == [CHUNK] * 10 + [3]
    assert asked.breaths == 11


def group_of(topics: dict[str, int], group_id: str = "g") -> OffsetFetchRequestGroup:
    return OffsetFetchRequestGroup(
        group_id=group_id,
        topics=[
            OffsetFetchRequestTopics(name=name, partition_indexes=list(range(count)))
            for name, count in topics.items()
        ],
    )


@pytest.mark.parametrize(
    "topics",
    [{"wide": 25_000}, {f"t{each}": 1 for each in range(5_000)}, {f"t{each}": 999 for each in range(9)}],
    ids=["one wide topic", "many topics", "topics that nearly fill a piece"],
)
async def test_offsets_of_many_partitions_are_fetched_in_pieces(topics: dict[str, int]) -> None:
    asked = Asked()
    group = group_of(topics)
    (answer,) = await fetch_in_pieces([group], asked.context, require_stable=True)
    assert max(asked.sizes) <= PARTITIONS_AT_ONCE_MAX + 1
    assert asked.breaths == len(asked.sizes) > 1
    found = {topic.name: [each.partition_index for each in topic.partitions] for topic in answer.topics}
    assert found == {name: list(range(count)) for name, count in topics.items()}
    assert len(answer.topics) == len(topics)


async def test_all_offsets_of_a_group_are_read_once_however_often_it_is_named() -> None:
    asked = Asked()
    asked.context.api_version = 8
    groups = [OffsetFetchRequestGroup(group_id="g", topics=None) for _ in range(500)]
    answer = await handle_offset_fetch(OffsetFetchRequest(groups=groups, require_stable=True), asked.context)
    assert len(answer.groups) == 1
    assert len(asked.sizes) == 1


async def test_all_offsets_of_one_group_spend_no_budget() -> None:
    """A group may have more offsets than a request may name."""
    asked = Asked()
    asked.context.budget.spend_elements(ANSWER_ELEMENTS_MAX)
    group = OffsetFetchRequestGroup(group_id="g", topics=None)
    asked.fetch = lambda group, *, require_stable: OffsetFetchResponseGroup(  # type: ignore[method-assign]
        topics=[OffsetFetchResponseTopics(partitions=[None] * 8)]  # type: ignore[list-item]
    )
    (answer,) = await fetch_in_pieces([group], asked.context, require_stable=True)
    assert len(answer.topics[0].partitions) == 8


async def test_groups_of_which_all_offsets_are_asked_share_one_budget() -> None:
    """One group may be named under many members, each of which would get all its offsets."""
    asked = Asked()
    asked.context.budget.spend_elements(ANSWER_ELEMENTS_MAX - 10)
    answer = OffsetFetchResponseGroup(topics=[OffsetFetchResponseTopics(partitions=[None] * 8)])  # type: ignore[list-item]
    asked.fetch = lambda group, *, require_stable: answer  # type: ignore[method-assign]
    groups = []
    for member_id in "ab":
        groups.append(OffsetFetchRequestGroup(group_id="g", member_id=member_id, topics=None))
        groups.append(group_of({}))
    with pytest.raises(InvalidRequest):
        await fetch_in_pieces(groups, asked.context, require_stable=True)


async def test_a_request_without_groups_gets_no_answers() -> None:
    assert await fetch_in_pieces([], Asked().context, require_stable=True) == []


async def test_small_groups_are_asked_together() -> None:
    asked = Asked()
    in_flight: list[Any] = []

    def run(_: str, decide: Callable[[Any], Any], respond: Any, __: Any) -> None:
        in_flight.append(lambda: respond(decide(SimpleNamespace(offset_requests=asked))))
        if len(in_flight) == 5:
            for each in reversed(in_flight):
                each()

    asked.run = run  # type: ignore[method-assign]
    groups = [group_of({"t": 3}, f"g{each}") for each in range(5)]
    async with asyncio.timeout(10):
        answers = await fetch_in_pieces(groups, asked.context, require_stable=True)
    assert [each.group_id for each in answers] == [each.group_id for each in groups]


async def test_the_error_of_a_group_is_its_answer() -> None:
    asked = Asked()
    (answer,) = await fetch_in_pieces(
        [group_of({"wide": 5_000}, "loading")], asked.context, require_stable=True
    )
    assert answer.error_code == 14
    assert len(asked.sizes) == 1


async def test_a_resource_that_is_named_again_is_answered_again_and_read_once(broker: Broker) -> None:
    resource = DescribeConfigsResource(resource_type=4, resource_name="", configuration_keys=None)
    request = DescribeConfigsRequest(resources=[resource] * 1_000)
    calls = []
    describe = broker.configs.describe
    broker.configs.describe = lambda resource: calls.append(resource) or describe(resource)  # type: ignore[method-assign, func-returns-value]
    answer = await broker.ask(DESCRIBE_CONFIGS, request)
    assert len(answer.results) == 1_000, "as in Apache Kafka"
    assert len(calls) == 1


async def test_metadata_of_ten_thousand_topics_is_legal(broker: Broker) -> None:
    names = [f"topic-{each}" for each in range(10_000)]
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=False
    )
    answer = await broker.ask(METADATA, request, version=8)
    assert [topic.name for topic in answer.topics] == names
