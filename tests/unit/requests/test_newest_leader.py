"""Newest leader: from this broker's LeaderAndIsr or from the metadata cache."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.errors import NotLeaderOrFollower
from barnabas.handlers.shared.leader_hints import add_leader_hints
from barnabas.protocol.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from barnabas.requests.context import RequestContext
from tests.support.slices import in_one_go


def context_with(told: tuple[int, int] | None, ordered: tuple[int, int] | None) -> RequestContext:
    """`told` and `ordered` are leader and epoch: in the metadata, and of our own replica."""
    metadata = SimpleNamespace(
        partition=lambda *_: told and SimpleNamespace(leader=told[0], leader_epoch=told[1]),
        broker=lambda _: SimpleNamespace(rack=None),
        endpoint=lambda *_: Endpoint("host", 9),
    )
    replicas = SimpleNamespace(
        find=lambda _: (
            ordered
            and SimpleNamespace(leadership=SimpleNamespace(leader_id=ordered[0], leader_epoch=ordered[1]))
        )
    )
    broker = SimpleNamespace(broker_id=0, metadata=metadata, replicas=replicas)
    return cast(
        "RequestContext",
        SimpleNamespace(
            broker=broker, exchange=SimpleNamespace(connection=SimpleNamespace(listener_name="PLAINTEXT"))
        ),
    )


@pytest.mark.parametrize(
    ("told", "ordered", "expected"),
    [
        ((1, 4), (2, 5), (2, 5)),
        ((3, 6), (2, 5), (3, 6)),
        ((1, 4), None, (1, 4)),
        (None, (2, 5), (2, 5)),
        ((1, 4), (-1, 5), None),
        (None, None, None),
    ],
)
def test_the_newer_of_both_views_is_named(
    told: tuple[int, int] | None, ordered: tuple[int, int] | None, expected: tuple[int, int] | None
) -> None:
    answer = PartitionProduceResponse(index=0, error_code=NotLeaderOrFollower.code)
    response = ProduceResponse(
        responses=[TopicProduceResponse(name="topic", partition_responses=[answer])], node_endpoints=[]
    )
    in_one_go(add_leader_hints(response, context_with(told, ordered)))
    hint = answer.current_leader
    assert (None if hint is None else (hint.leader_id, hint.leader_epoch)) == expected
    assert [node.node_id for node in response.node_endpoints] == ([] if expected is None else [expected[0]])
