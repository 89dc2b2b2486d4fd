"""Transaction markers: every partition of a transaction gets one, unless it is deleted."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Collection
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from barnabas.cluster.coordination.contract import ConnectionLoss, Coordination, Operation
from barnabas.cluster.embedded.session import open_embedded
from barnabas.cluster.metadata.cache import MetadataCache, PartitionMetadata
from barnabas.cluster.stores.deleted_partitions import DeletedPartitions
from barnabas.cluster.stores.registration import make_persistent_paths
from barnabas.cluster.stores.topics import create_topic, mark_for_deletion
from barnabas.cluster.znodes.brokers import BrokerInfo
from barnabas.cluster.znodes.layout import TopicZnode
from barnabas.coordinator.transaction.markers.cluster import ClusterMarkers, FindDeleted
from barnabas.coordinator.transaction.markers.local import LocalMarkers
from barnabas.coordinator.transaction.markers.outcome import MarkerErrors, TransactionMarker
from barnabas.core.addressing.endpoints import Endpoint, ListenerEndpoint
from barnabas.core.errors import (
    BrokerNotAvailable,
    CoordinatorLoadInProgress,
    KafkaError,
    LeaderNotAvailable,
    NotLeaderOrFollower,
    UnknownServerError,
    UnknownTopicOrPartition,
)
from barnabas.core.ids import NO_LEADER, BrokerId, TopicPartition, Uuid
from barnabas.core.limits import MARKERS_PER_TURN_MAX, MARKERS_UNWRITTEN_MAX
from barnabas.core.scheduler import InlineBackground
from barnabas.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tests.support.manual_time import ManualClock

MARKER = TransactionMarker(7, 0, 1, True, 2)
HERE = TopicPartition("topic", 0)
THERE = TopicPartition("topic", 1)
THERE_TOO = TopicPartition("topic", 2)
ME, OTHER = BrokerId(1), BrokerId(2)
FIRST_ID, SECOND_ID = Uuid.parse("AAAAAAAAAAAAAAAAAAAAAQ"), Uuid.parse("AAAAAAAAAAAAAAAAAAAAAg")


class Partitions:
    """Marker writer whose outcome is `errors`."""

    def __init__(self, errors: dict[TopicPartition, KafkaError] | None = None) -> None:
        self.errors = errors or {}
        self.asked: list[TopicPartition] = []

    def write(
        self,
        marker: TransactionMarker,
        partitions: Collection[TopicPartition],
        done: Callable[[MarkerErrors], None],
    ) -> None:
        self.asked.extend(partitions)
        done({each: self.errors[each] for each in partitions if each in self.errors})


async def told(writer: Any, *partitions: TopicPartition) -> MarkerErrors:
    """Errors that the coordinator receives."""
    answer: asyncio.Future[MarkerErrors] = asyncio.get_running_loop().create_future()
    writer.write(MARKER, partitions, answer.set_result)
    return await asyncio.wait_for(answer, 10)


# Deleted, or only unheard of


@pytest.fixture
async def znodes(tmp_path: Path) -> AsyncIterator[Coordination]:
    async with open_embedded(tmp_path, ManualClock(), InlineBackground()) as opened:
        await make_persistent_paths(opened)
        yield opened


def coordinator_markers(
    znodes: Coordination, error: KafkaError, *, is_deletion_enabled: bool = True
) -> ClusterMarkers:
    deleted = DeletedPartitions(znodes, is_deletion_enabled=is_deletion_enabled)
    return here({HERE: error, THERE: error}, deleted.find)


def here(errors: dict[TopicPartition, KafkaError], find_deleted: FindDeleted) -> ClusterMarkers:
    """Both partitions are led by this broker."""
    local, metadata = cast("Any", Partitions(errors)), cluster(ME, ME)
    return ClusterMarkers(ME, local, metadata, None, asyncio.ensure_future, find_deleted)


UNHEARD_OF = UnknownTopicOrPartition("nobody knows it")
DOUBTFUL = [UNHEARD_OF, LeaderNotAvailable("-"), BrokerNotAvailable("-"), NotLeaderOrFollower("-")]


@pytest.mark.parametrize("error", DOUBTFUL, ids=lambda error: type(error).__name__)
async def test_a_partition_that_the_store_has_is_not_gone_whatever_is_heard_of_it(
    znodes: Coordination, error: KafkaError
) -> None:
    await create_topic(znodes, "topic", FIRST_ID, {0: [1], 1: [1]}, {})
    assert await told(coordinator_markers(znodes, error), HERE, THERE) == {HERE: error, THERE: error}


@pytest.mark.parametrize("error", DOUBTFUL, ids=lambda error: type(error).__name__)
async def test_a_partition_that_the_store_has_not_needs_no_marker(
    znodes: Coordination, error: KafkaError
) -> None:
    await create_topic(znodes, "topic", FIRST_ID, {0: [1], 1: [1]}, {})
    await znodes.delete(TopicZnode.path("topic"))
    assert await told(coordinator_markers(znodes, error), HERE, THERE) == {}


async def test_a_smaller_topic_of_the_same_name_is_another_one(znodes: Coordination) -> None:
    await create_topic(znodes, "topic", FIRST_ID, {0: [1], 1: [1]}, {})
    await znodes.delete(TopicZnode.path("topic"))
    await create_topic(znodes, "topic", SECOND_ID, {0: [1]}, {})
    errors = await told(coordinator_markers(znodes, UNHEARD_OF), HERE, THERE)
    assert errors == {HERE: UNHEARD_OF}, "partition 0 exists again and has to be told; 1 does not"


async def test_a_topic_that_is_to_be_deleted_needs_no_marker(znodes: Coordination) -> None:
    await create_topic(znodes, "topic", FIRST_ID, {0: [1], 1: [1]}, {})
    await mark_for_deletion(znodes, "topic")
    assert await told(coordinator_markers(znodes, UNHEARD_OF), HERE, THERE) == {}
    writer = coordinator_markers(znodes, UNHEARD_OF, is_deletion_enabled=False)
    assert await told(writer, HERE, THERE) == {HERE: UNHEARD_OF, THERE: UNHEARD_OF}


async def test_what_says_nothing_about_the_topic_asks_no_broker() -> None:
    async def ask(_: object) -> frozenset[TopicPartition]:
        raise AssertionError("the store was asked")

    error = CoordinatorLoadInProgress("-")
    assert await told(here({HERE: error}, ask), HERE, THERE) == {HERE: error}


async def test_a_store_that_does_not_answer_has_not_said_that_anything_is_gone() -> None:
    class Store:
        async def multi(self, _: object) -> None: ...

    class Gone(Store):
        async def get_many(self, _: object) -> None:
            raise ConnectionLoss("/brokers/topics/topic")

    class Broken(Store):
        async def get_many(self, _: object) -> None:
            raise RuntimeError("nobody expected this")

    for store in (Gone(), Broken()):
        writer = coordinator_markers(cast("Coordination", store), UNHEARD_OF)
        assert await told(writer, HERE) == {HERE: UNHEARD_OF}
        assert await told(writer, HERE) == {HERE: UNHEARD_OF}, "the next question is asked again"


async def test_an_unreadable_node_is_not_gone(znodes: Coordination) -> None:
    await znodes.create(TopicZnode.path("topic"), b"{", make_parents=True)
    assert await told(coordinator_markers(znodes, UNHEARD_OF), HERE) == {HERE: UNHEARD_OF}


async def test_questions_that_come_meanwhile_are_asked_together(znodes: Coordination) -> None:
    await create_topic(znodes, "topic", FIRST_ID, {0: [1]}, {})
    asked: list[int] = []

    class Counting:
        async def multi(self, operations: list[Operation]) -> Any:
            return await znodes.multi(operations)

        async def get_many(self, paths: list[str]) -> Any:
            asked.append(len(paths))
            return await znodes.get_many(paths)

    deleted = DeletedPartitions(cast("Coordination", Counting()), is_deletion_enabled=True)
    answers = await asyncio.gather(*(deleted.find([HERE, THERE]) for _ in range(100)))
    assert set(answers) == {frozenset({THERE})}
    assert asked == [1, 1], "one topic: its node and its mark, once"


# To every leader


class Peer:
    """The other broker: `answer` makes its answer, or fails."""

    def __init__(self, answer: Callable[[WriteTxnMarkersRequest], WriteTxnMarkersResponse]) -> None:
        self.answer = answer
        self.asked: list[tuple[int, WriteTxnMarkersRequest]] = []

    async def send(self, broker: int, request: WriteTxnMarkersRequest, _: object) -> WriteTxnMarkersResponse:
        self.asked.append((broker, request))
        return self.answer(request)


def cluster(*leaders: int) -> MetadataCache:
    """A topic whose partitions are led by these."""
    metadata = MetadataCache("cluster")
    metadata.put_brokers(
        BrokerInfo(each, (ListenerEndpoint("PLAINTEXT", Endpoint("localhost", 9092 + each)),))
        for each in (ME, OTHER)
    )
    metadata.put_topic(
        "topic",
        FIRST_ID,
        [PartitionMetadata(number, (1, 2), leader=leader) for number, leader in enumerate(leaders)],
    )
    return metadata


async def nothing_deleted(_: object) -> frozenset[TopicPartition]:
    return frozenset()


def everywhere(metadata: MetadataCache, peer: Peer, local: Partitions | None = None) -> ClusterMarkers:
    """Markers of a cluster whose store has no deleted partition."""
    return ClusterMarkers(
        ME,
        cast("Any", local or Partitions()),
        metadata,
        cast("Any", peer),
        asyncio.ensure_future,
        nothing_deleted,
    )


def answered(codes: dict[int, int]) -> WriteTxnMarkersResponse:
    results = [
        WritableTxnMarkerPartitionResult(partition_index=number, error_code=code)
        for number, code in codes.items()
    ]
    topic = WritableTxnMarkerTopicResult(name="topic", partitions=results)
    return WriteTxnMarkersResponse(markers=[WritableTxnMarkerResult(producer_id=7, topics=[topic])])


async def test_each_leader_is_told_of_its_own() -> None:
    peer, local = Peer(lambda _: answered({1: 0, 2: 0})), Partitions()
    errors = await told(everywhere(cluster(ME, OTHER, OTHER), peer, local), HERE, THERE, THERE_TOO)
    assert errors == {}
    assert local.asked == [HERE]
    ((broker, request),) = peer.asked
    assert broker == OTHER
    (marker,) = request.markers
    assert (marker.producer_id, marker.transaction_result, marker.transaction_version) == (7, True, 2)
    assert [(each.name, each.partition_indexes) for each in marker.topics] == [("topic", [1, 2])]


async def test_a_leader_of_very_many_partitions_is_told_in_several_requests() -> None:
    count = MARKERS_UNWRITTEN_MAX + 5
    peer = Peer(lambda request: answered(dict.fromkeys(request.markers[0].topics[0].partition_indexes, 0)))
    wanted = [TopicPartition("topic", number) for number in range(count)]
    assert await told(everywhere(cluster(*[OTHER] * count), peer), *wanted) == {}
    sizes = [len(request.markers[0].topics[0].partition_indexes) for _, request in peer.asked]
    assert sizes == [MARKERS_UNWRITTEN_MAX, 5]


async def test_a_turn_of_the_loop_writes_few_markers() -> None:
    asked: list[int] = []
    turns: list[int] = []

    def missing(*_: object) -> None:
        asked.append(1)
        raise UNHEARD_OF

    async def watch() -> None:
        while True:
            turns.append(len(asked))
            await asyncio.sleep(0)

    wanted = [TopicPartition("topic", number) for number in range(3 * MARKERS_PER_TURN_MAX + 1)]
    local = LocalMarkers(
        cast("Any", SimpleNamespace(partition=missing)),
        cast("Any", SimpleNamespace(topic="__consumer_offsets")),
        ManualClock(),
        asyncio.ensure_future,
    )
    watching = asyncio.ensure_future(watch())
    errors = await told(local, *wanted)
    watching.cancel()
    assert errors.keys() == set(wanted)
    steps = [later - sooner for sooner, later in itertools.pairwise([0, *turns, len(asked)])]
    assert max(steps) == MARKERS_PER_TURN_MAX


async def test_a_partition_without_a_leader_is_told_again_later() -> None:
    errors = await told(everywhere(cluster(ME, NO_LEADER), Peer(answered)), HERE, THERE)  # type: ignore[arg-type]
    assert {each: type(error) for each, error in errors.items()} == {THERE: LeaderNotAvailable}
    alone = await told(everywhere(cluster(ME, NO_LEADER), Peer(answered)), THERE)  # type: ignore[arg-type]
    assert set(alone) == {THERE}, "also where it is the only one"


async def test_a_partition_without_a_name_yet_is_told_again_later() -> None:
    errors = await told(everywhere(cluster(ME), Peer(answered)), HERE, THERE)  # type: ignore[arg-type]
    assert {each: type(error) for each, error in errors.items()} == {THERE: UnknownTopicOrPartition}


async def test_a_partition_that_the_answer_leaves_out_is_told_again_later() -> None:
    peer = Peer(lambda _: answered({1: 0}))
    assert set(await told(everywhere(cluster(ME, OTHER, OTHER), peer), THERE, THERE_TOO)) == {THERE_TOO}
    silent = Peer(lambda _: WriteTxnMarkersResponse())
    assert set(await told(everywhere(cluster(ME, OTHER, OTHER), silent), THERE, THERE_TOO)) == {
        THERE,
        THERE_TOO,
    }


async def test_each_partition_has_its_own_error() -> None:
    peer = Peer(lambda _: answered({1: NotLeaderOrFollower.code, 2: CoordinatorLoadInProgress.code}))
    errors = await told(everywhere(cluster(ME, OTHER, OTHER), peer), HERE, THERE, THERE_TOO)
    assert {each: type(error) for each, error in errors.items()} == {
        THERE: NotLeaderOrFollower,
        THERE_TOO: CoordinatorLoadInProgress,
    }


@pytest.mark.parametrize(
    ("failure", "heard"),
    [
        (BrokerNotAvailable("it is down"), BrokerNotAvailable),
        (RuntimeError("nobody expected this"), UnknownServerError),
    ],
)
async def test_a_leader_that_cannot_be_asked_leaves_all_its_partitions_untold(
    failure: Exception, heard: type[KafkaError]
) -> None:
    def fail(_: object) -> WriteTxnMarkersResponse:
        raise failure

    errors = await told(everywhere(cluster(ME, OTHER, OTHER), Peer(fail)), HERE, THERE, THERE_TOO)
    assert {each: type(error) for each, error in errors.items()} == {THERE: heard, THERE_TOO: heard}
