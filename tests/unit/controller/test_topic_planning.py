"""Placement of the replicas of new topics and of added partitions: Kafka's starting points."""

from __future__ import annotations

import random
from typing import Any

import pytest

from barnabas.administration.topic_planning import TopicPlanner
from barnabas.administration.topic_rules import Assignment, TopicSpec
from barnabas.config.broker_config import BrokerConfig

BROKERS = 5


class Configs:
    broker_config = BrokerConfig.load({})

    def resolve(self, overrides: dict[str, str]) -> Any:
        return None


class Metadata:
    def racks(self) -> dict[int, str | None]:
        return dict.fromkeys(range(1, BROKERS + 1))


def planner(seed: int) -> TopicPlanner:
    configs: Any = Configs()
    metadata: Any = Metadata()
    return TopicPlanner(configs, metadata, random.Random(seed))


def placed(seed: int) -> Assignment:
    spec = TopicSpec("t", num_partitions=1, replication_factor=2)
    return planner(seed).new_topic(spec).assignment


def test_the_follower_of_a_leader_differs_from_topic_to_topic() -> None:
    """One partition each, on five brokers: leaders and distances are drawn apart from each other."""
    pairs = {placed(seed)[0] for seed in range(400)}
    assert len(pairs) == BROKERS * (BROKERS - 1)


@pytest.mark.parametrize(
    ("leader", "added"),
    [(1, [(4, 5), (5, 1)]), (3, [(1, 4), (2, 5)]), (6, [(4, 5), (5, 1)])],
)
def test_added_partitions_continue_at_the_leader_of_the_first(leader: int, added: list[Any]) -> None:
    """As `AdminUtils.assignReplicasToBrokers` places them with a fixed start index."""
    present = [(leader, 2), (2, 3), (3, 4)]
    for seed in range(3):
        assignment = planner(seed).more_partitions("t", present, 5, None)
        assert assignment == {3: added[0], 4: added[1]}
