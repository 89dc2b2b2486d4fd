"""Reading a range from a broker that refuses it."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.client.core.cluster_state import ClusterState
from barnabas.core.clock import SystemClock
from barnabas.core.errors import KafkaError, UnknownTopicId, UnknownTopicOrPartition
from barnabas.core.ids import Uuid
from barnabas.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from pyspark_barnabas.readers.fetch import VERSION_BY_ID, DataLoss, FetchOptions, OffsetRange, read_range


class Refusing:
    """A leader that does not know what it leads."""

    def __init__(self, error: type[KafkaError] = UnknownTopicOrPartition) -> None:
        self.asked = 0
        self._error = error
        self.requests: list[tuple[Any, int | None]] = []

    def post(self, request: Any, _: object, *, version_max: int | None = None) -> None:
        self.asked += 1
        self.requests.append((request, version_max))
        assert self.asked < 20, "asked for ever"

    def take(self) -> FetchResponse:
        refused = PartitionData(error_code=self._error.code)
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[refused])])


def test_a_partition_that_its_leader_never_hears_of_is_given_up() -> None:
    leader = Refusing()
    cluster: Any = SimpleNamespace(
        state=ClusterState(SystemClock(), random.Random(7)),
        leader=lambda _: leader,
        partitions=lambda _: {"t": 1},
        topic_ids=lambda _: {},
    )
    options = FetchOptions(columns=("value",), isolation=0, poll_timeout_ms=150)
    with pytest.raises(UnknownTopicOrPartition):
        list(read_range(cluster, OffsetRange("t", 0, 0, 10), options))
    assert leader.asked > 1, "it may pass"


FIRST, SECOND = (str(Uuid(bytes([number]) * 16)) for number in (1, 2))


@pytest.mark.parametrize("fails", [True, False])
def test_a_range_of_a_topic_that_was_created_again_since_is_not_read(fails: bool) -> None:
    """By its id the leader knows it; by its name it would answer with other records."""
    leader = Refusing(UnknownTopicId)
    cluster: Any = SimpleNamespace(
        state=ClusterState(SystemClock(), random.Random(7)),
        leader=lambda _: leader,
        partitions=lambda _: {"t": 1},
        topic_ids=lambda _: {"t": SECOND},
    )
    options = FetchOptions(columns=("value",), isolation=0, fail_on_data_loss=fails, poll_timeout_ms=150)
    reading = read_range(cluster, OffsetRange("t", 0, 0, 10, FIRST), options)
    if fails:
        with pytest.raises(DataLoss, match="topic t was deleted and created again"):
            list(reading)
    else:
        assert list(reading) == []
    ((request, version_max),) = leader.requests
    assert (str(request.topics[0].topic_id), version_max) == (FIRST, VERSION_BY_ID)
