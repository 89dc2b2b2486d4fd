from __future__ import annotations

import asyncio
import json
from pathlib import Path

from barnabas.core.errors import UnknownTopicOrPartition
from barnabas.core.ids import TopicPartition
from barnabas.pipelines.service.declarative.positions import Reached, reached, read_since, unread_records
from barnabas.protocol.offset_numbers import EARLIEST

ORDERS = TopicPartition("orders", 0)


def write_checkpoint(
    storage: Path, flow: str, offsets: object, *, number: int = 0, batch: int = 0, is_done: bool = True
) -> None:
    """A micro-batch of a flow, as Spark's declarative pipelines keep it."""
    directory = storage / "_checkpoints" / "spark_catalog" / "default" / flow / flow / str(number)
    for name in ("offsets", "commits"):
        (directory / name).mkdir(parents=True, exist_ok=True)
    (directory / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{json.dumps(offsets)}")
    if is_done:
        (directory / "commits" / str(batch)).write_text("v1\n{}")


class Cluster:
    """Log ends of topics: topic to its id and the begin and end of its partitions."""

    def __init__(self, **topics: tuple[str, dict[int, tuple[int, int]]]) -> None:
        self.topics = topics

    async def topic_id(self, topic: str) -> str:
        return self._topic(topic)[0]

    async def offsets(self, topic: str, timestamp: int) -> dict[TopicPartition, int]:
        at = 0 if timestamp == EARLIEST else 1
        return {TopicPartition(topic, each): range_[at] for each, range_ in self._topic(topic)[1].items()}

    def _topic(self, topic: str) -> tuple[str, dict[int, tuple[int, int]]]:
        if topic not in self.topics:
            raise UnknownTopicOrPartition(topic)
        return self.topics[topic]


def unread(found: Reached, cluster: Cluster, *named: str) -> int | None:
    return asyncio.run(unread_records(found, named, cluster))


def test_the_positions_are_those_of_the_last_finished_micro_batch(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, "orders", {"orders": {"0": 5, "1": 2}, "@topic_ids": {"orders": "id"}})
    write_checkpoint(tmp_path, "orders", {"orders": {"0": 9, "1": 4}}, batch=1, is_done=False)
    found = reached(tmp_path.as_uri())
    assert found == Reached({ORDERS: 5, TopicPartition("orders", 1): 2}, {"orders": "id"}, 1)


def test_a_full_refresh_begins_a_checkpoint_that_counts(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, "orders", {"orders": {"0": 5}}, number=9)
    write_checkpoint(tmp_path, "orders", {"orders": {"0": 1}}, number=10)
    assert reached(tmp_path.as_uri()).positions == {ORDERS: 1}


def test_of_two_flows_the_slower_one_counts(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, "orders", {"orders": {"0": 5}})
    write_checkpoint(tmp_path, "counts", {"orders": {"0": 3}})
    found = reached(tmp_path.as_uri())
    assert (found.positions, found.flows) == ({ORDERS: 3}, 2)
    assert unread(found, Cluster(orders=("id", {0: (0, 8)}))) == 5


def test_storage_that_is_elsewhere_or_empty_has_no_positions(tmp_path: Path) -> None:
    assert reached("s3a://bucket/state") == Reached()
    assert reached(tmp_path.as_uri()) == Reached()
    assert unread(Reached(), Cluster()) is None


def test_unread_records_include_those_of_new_partitions() -> None:
    found = Reached({ORDERS: 5}, {"orders": "id"}, 1)
    assert unread(found, Cluster(orders=("id", {0: (0, 5)}))) == 0
    assert unread(found, Cluster(orders=("id", {0: (0, 7), 1: (3, 4)}))) == 3


def test_a_topic_of_another_cluster_is_not_counted() -> None:
    assert unread(Reached({ORDERS: 5}, {"orders": "id"}, 1), Cluster(orders=("other", {0: (0, 7)}))) is None
    assert unread(Reached({ORDERS: 5}, {"orders": "id"}, 1), Cluster()) is None
    assert unread(Reached({ORDERS: 5}, {}, 1), Cluster(orders=("id", {0: (0, 7)}))) == 2


def test_a_topic_that_is_named_and_not_read_yet_counts_from_its_begin() -> None:
    cluster = Cluster(orders=("id", {0: (2, 5)}), empty=("e", {0: (0, 0)}))
    assert unread(Reached(), cluster, "orders") == 3
    assert unread(Reached(), cluster, "empty") == 0
    assert unread(Reached(), cluster, "elsewhere") is None
    assert unread(Reached({ORDERS: 4}, {"orders": "id"}, 1), cluster, "empty", "elsewhere") == 1


def test_records_of_an_update_are_those_between_two_readings() -> None:
    cluster = Cluster(orders=("id", {0: (2, 9), 1: (3, 9)}))
    after = Reached({ORDERS: 9, TopicPartition("orders", 1): 9}, {}, 1)
    assert asyncio.run(read_since(Reached(), after, cluster)) == 13
    assert asyncio.run(read_since(Reached({ORDERS: 4}, {}, 1), after, cluster)) == 11
    assert asyncio.run(read_since(after, Reached({ORDERS: 1}, {}, 1), cluster)) == 0
