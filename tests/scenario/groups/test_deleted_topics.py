"""A topic that comes back under the name of a deleted one has no offsets, however many there were."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas.client.admin.calls.per_resource import SomeFailed
from barnabas.client.sync.admin import Admin
from barnabas.core.errors import UnknownTopicOrPartition
from barnabas.core.ids import TopicPartition
from barnabas.testing.broker import RunningBroker, run_broker

TOPIC = "orders"
PARTITIONS = 60
OFFSETS = {TopicPartition(TOPIC, each): 100 + each for each in range(PARTITIONS)}
SETTINGS = {"offsets.topic.num.partitions": "1", "message.max.bytes": "1000"}
"""A batch holds no more than a fourth of the tombstones."""


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    with run_broker(SETTINGS) as running:
        running.create_topic(TOPIC, partitions=PARTITIONS)
        yield running


@pytest.fixture
def admin(broker: RunningBroker) -> Iterator[Admin]:
    with Admin(broker.bootstrap) as admin:
        yield admin


def commit(broker: RunningBroker, admin: Admin, *groups: str) -> None:
    for group in groups:
        for first in range(0, PARTITIONS, 5):
            some = list(OFFSETS)[first : first + 5]
            admin.alter_group_offsets(group, {each: OFFSETS[each] for each in some})
        assert broker.committed(group) == OFFSETS


def test_many_offsets_of_a_deleted_topic_do_not_apply_to_its_successor(
    broker: RunningBroker, admin: Admin
) -> None:
    commit(broker, admin, "g", "h")
    admin.delete_topics([TOPIC])
    broker.create_topic(TOPIC, partitions=PARTITIONS)
    assert broker.committed("g") == broker.committed("h") == {}


def test_a_group_with_many_offsets_can_be_deleted(broker: RunningBroker, admin: Admin) -> None:
    commit(broker, admin, "g")
    admin.delete_groups(["g"])
    assert broker.committed("g") == {}


def test_an_offset_of_a_partition_that_does_not_exist_cannot_be_deleted(
    broker: RunningBroker, admin: Admin
) -> None:
    commit(broker, admin, "g")
    exists, *others = (TopicPartition(TOPIC, each) for each in (0, PARTITIONS, -1))
    with pytest.raises(SomeFailed) as refused:
        admin.delete_group_offsets("g", [exists, *others])
    assert refused.value.results == {exists: None}
    assert {at: type(error) for at, error in refused.value.errors.items()} == dict.fromkeys(
        others, UnknownTopicOrPartition
    )
    assert broker.committed("g") == {at: offset for at, offset in OFFSETS.items() if at.partition}
