"""Reading a range from a broker that refuses it."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.client.cluster_state import ClusterState
from barnabas.core.clock import SystemClock
from barnabas.core.errors import UnknownTopicOrPartition
from barnabas.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from pyspark_barnabas.fetch import FetchOptions, OffsetRange, read_range


class Refusing:
    """A leader that does not know what it leads."""

    def __init__(self) -> None:
        self.asked = 0

    def post(self, *_: object, **__: object) -> None:
        self.asked += 1
        assert self.asked < 20, "asked for ever"

    def take(self) -> FetchResponse:
        refused = PartitionData(error_code=UnknownTopicOrPartition.code)
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[refused])])


def test_a_partition_that_its_leader_never_hears_of_is_given_up() -> None:
    leader = Refusing()
    cluster: Any = SimpleNamespace(
        state=ClusterState(SystemClock(), random.Random(7)),
        leader=lambda _: leader,
        partitions=lambda _: {"t": 1},
    )
    options = FetchOptions(columns=("value",), isolation=0, poll_timeout_ms=150)
    with pytest.raises(UnknownTopicOrPartition):
        list(read_range(cluster, OffsetRange("t", 0, 0, 10), options))
    assert leader.asked > 1, "it may pass"
