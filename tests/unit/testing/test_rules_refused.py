"""Rules that could never match or have an effect are refused, with what to write instead."""

from __future__ import annotations

import pytest

from barnabas.protocol.api_keys import ApiKey
from barnabas.requests.served_versions import SERVED_VERSIONS
from barnabas.testing.faults.request_log import RequestLog
from barnabas.testing.faults.rules import Faults


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"api": "Heartbeat", "topic": "t"}, "topic matches no request: Heartbeat names group, member"),
        ({"api": "Produce", "group": "g"}, "Produce names partition, topic, transactional_id"),
        ({"api": "Metadata", "partition": 0}, "partition matches no request: Metadata names topic"),
        ({"api": "Fetch", "transactional_id": "x"}, "transactional_id matches no request"),
        ({"api": "DescribeConfigs", "topic": "t"}, "DescribeConfigs names resource"),
        ({"api": "ListGroups", "resource": "t"}, "ListGroups names nothing that a rule selects"),
        ({"api": "Produce", "version": 99}, "the broker serves Produce from 0 to 13"),
        ({"api": "Vote"}, "the broker serves no Vote"),
        ({"api": "produce"}, "did you mean Produce"),
        ({"error": "not_leader_or_folower"}, "did you mean NOT_LEADER_OR_FOLLOWER"),
        ({"error": True}, "there is no error True"),
        ({"topic": ""}, "it is empty"),
        ({"partition": "0"}, "write a whole number"),
        ({"partition": True}, "write a whole number"),
        ({"times": 1.5}, "write whole numbers"),
        ({"times": 0}, "a rule hits once or more"),
        ({"after": "1"}, "write whole numbers"),
        ({"probability": "0.5"}, "write a number above 0"),
        ({"delay": None}, "is not a duration"),
        ({"when": 3}, "write a function"),
        ({"throttle": "30d"}, "a response says at most 2147483 seconds"),
        ({"applied": "false"}, "write true or false"),
        ({"seed": None}, "write a whole number"),
    ],
)
def test_a_rule_without_reach_is_refused(wrong: dict[str, object], told: str) -> None:
    faults = Faults()
    with pytest.raises(ValueError, match=told):
        faults.add(**{"error": "NOT_COORDINATOR", **wrong})  # type: ignore[arg-type]
    assert list(faults) == []


@pytest.mark.parametrize(
    ("action", "api", "told"),
    [
        ("fence-member", "Produce", "needs a member"),
        ("rebalance", "Produce", "needs a group"),
        ("fence-producer", "Heartbeat", "needs a transactional_id"),
        ("move-leader", "Heartbeat", "needs a topic"),
    ],
)
def test_an_action_needs_what_it_is_about(action: str, api: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Faults(in_cluster=True).add(api=api, action=action)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("api", "selected"),
    [
        ("OffsetFetch", {"topic": "t", "partition": 0, "group": "g"}),
        ("AddPartitionsToTxn", {"topic": "t", "partition": 0, "transactional_id": "x"}),
        ("TxnOffsetCommit", {"topic": "t", "group": "g", "transactional_id": "x"}),
        ("FindCoordinator", {"group": "g"}),
        ("ConsumerGroupHeartbeat", {"topic": "t", "group": "g"}),
        ("DeleteTopics", {"topic": "t"}),
        ("CreateTopics", {"topic": "t"}),
    ],
)
def test_a_rule_with_reach_is_added(api: str, selected: dict[str, object]) -> None:
    assert Faults().add(api=api, error="NOT_COORDINATOR", **selected).hits == 0  # type: ignore[arg-type]


@pytest.mark.parametrize("api", SERVED_VERSIONS, ids=lambda api: api.camel_name)
def test_every_version_that_is_served_has_its_rule(api: ApiKey) -> None:
    for version in SERVED_VERSIONS[api]:
        assert Faults().add(api=api.camel_name, version=version, drop="before").version == version


def test_a_wrong_name_finds_no_requests() -> None:
    with pytest.raises(ValueError, match="did you mean Fetch"):
        RequestLog().seen("Feth")
