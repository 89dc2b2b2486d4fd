"""Topics of one broker in another: the same records in the same places, once, and groups that can move."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic

from tests.spark.pipelines.conftest import RunSpec
from tests.support.broker import BarnabasBroker, barnabas_broker

PATIENCE_S = 60.0
EXAMPLE = Path(__file__).parents[3] / "examples" / "mirror_of_east.yaml"


@pytest.fixture
def east(tmp_path: Path) -> Iterator[BarnabasBroker]:
    with barnabas_broker(tmp_path / "east") as broker:
        yield broker


def create(bootstrap: str, name: str, partitions: int, **configs: str) -> None:
    topic = NewTopic(
        name, partitions, config={key.replace("_", "."): value for key, value in configs.items()}
    )
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([topic])[name].result(PATIENCE_S)


def send(bootstrap: str, topic: str, rows: list[dict[str, Any]], *, abort: bool | None = None) -> None:
    """`abort` makes it a transaction, which leaves gaps in the offsets."""
    settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "message.max.bytes": 4_000_000}
    if abort is not None:
        settings["transactional.id"] = "gaps"
    producer = Producer(settings)
    if abort is not None:
        producer.init_transactions()
        producer.begin_transaction()
    for row in rows:
        producer.produce(topic, **row)
        producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0
    if abort is not None:
        (producer.abort_transaction if abort else producer.commit_transaction)()


def records(bootstrap: str, topic: str) -> dict[int, list[tuple[Any, ...]]]:
    """Key, value, headers, timestamp and offset of all committed records, by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False,
            "isolation.level": "read_committed", "enable.partition.eof": True,
            "fetch.message.max.bytes": 4_000_000,
        }
    )  # fmt: skip
    try:
        partitions = sorted(consumer.list_topics(topic, PATIENCE_S).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, each, 0) for each in partitions])
        found: dict[int, list[tuple[Any, ...]]] = {each: [] for each in partitions}
        ended: set[int] = set()
        while len(ended) < len(partitions):
            message = consumer.poll(PATIENCE_S)
            assert message is not None
            number = message.partition()
            assert number is not None
            if message.error() is not None:
                ended.add(number)
            else:
                row = (
                    message.key(),
                    message.value(),
                    message.headers(),
                    message.timestamp(),
                    message.offset(),
                )
                found[number].append(row)
        return found
    finally:
        consumer.close()


def content(found: dict[int, list[tuple[Any, ...]]]) -> dict[int, list[tuple[Any, ...]]]:
    return {partition: [row[:-1] for row in rows] for partition, rows in found.items()}


def commit(bootstrap: str, group: str, offsets: dict[tuple[str, int], int]) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    places = [TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


def end_of(bootstrap: str, topic: str, partition: int) -> int:
    """End of the log, to which a consumer comes that has read all."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader"})
    found: tuple[int, int] = consumer.get_watermark_offsets(TopicPartition(topic, partition), PATIENCE_S)
    consumer.close()
    return found[1]


def committed(bootstrap: str, group: str) -> dict[tuple[str, int], int]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    places = asked[group].result(PATIENCE_S).topic_partitions or []
    return {(each.topic, each.partition): each.offset for each in places}


def test_the_example_copies_topics_as_they_are_and_moves_groups(
    run_spec: RunSpec, bootstrap: str, east: BarnabasBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    from barnabas.pipelines.spec.yaml_source import read_yaml

    monkeypatch.setenv("EAST", east.bootstrap)
    spec: dict[str, Any] = dict(read_yaml(EXAMPLE.read_text(), "mirror_of_east.yaml").document)
    spec["trigger"] = "available_now"
    spec["source"] = {**spec["source"], "max_offsets_per_trigger": 8}
    create(east.bootstrap, "shop-orders", 2, cleanup_policy="compact", message_timestamp_type="CreateTime")
    create(east.bootstrap, "other", 1)
    send(east.bootstrap, "other", [{"value": b"not wanted"}])
    headers = [("a", b"1"), ("a", b"\xff"), ("", b""), ("none", None)]
    rows = [
        {"key": f"k{at}".encode(), "value": b"v" * at, "partition": at % 2, "timestamp": 1_000 + at}
        for at in range(20)
    ]
    send(east.bootstrap, "shop-orders", rows)
    odd = {"value": None, "key": b"", "headers": headers, "timestamp": 5, "partition": 0}
    send(east.bootstrap, "shop-orders", [odd])
    send(east.bootstrap, "shop-orders", [{"key": b"n", "value": b"never", "partition": 0}], abort=True)
    send(east.bootstrap, "shop-orders", [{"key": b"b", "value": b"\x00\xff", "partition": 0}], abort=False)
    run_spec(spec)
    there, here = records(east.bootstrap, "shop-orders"), records(bootstrap, "east.shop-orders")
    assert content(here) == content(there)
    assert len(there[0]) == 12
    admin = AdminClient({"bootstrap.servers": bootstrap})
    assert "east.other" not in admin.list_topics(timeout=PATIENCE_S).topics
    resource = ConfigResource(ConfigResource.Type.TOPIC, "east.shop-orders")
    assert (
        admin.describe_configs([resource])[resource].result(PATIENCE_S)["cleanup.policy"].value == "compact"
    )

    ends = {("shop-orders", part): end_of(east.bootstrap, "shop-orders", part) for part in there}
    commit(east.bootstrap, "billing-end", ends)
    commit(east.bootstrap, "billing-gaps", {("shop-orders", 0): there[0][11][-1]})
    commit(east.bootstrap, "billing-half", {("shop-orders", 1): there[1][7][-1]})
    commit(east.bootstrap, "unwanted", ends)
    source = AdminClient({"bootstrap.servers": east.bootstrap})
    source.create_partitions([NewPartitions("shop-orders", 3)])["shop-orders"].result(PATIENCE_S)
    create(east.bootstrap, "shop-new", 1)
    send(east.bootstrap, "shop-orders", [{"key": b"t", "value": b"third", "partition": 2}])
    send(east.bootstrap, "shop-new", [{"value": b"new"}])
    run_spec(spec)
    for topic in ("shop-orders", "shop-new"):
        assert content(records(bootstrap, f"east.{topic}")) == content(records(east.bootstrap, topic))
    moved = committed(bootstrap, "billing-end")
    assert set(moved) == {("east.shop-orders", 0), ("east.shop-orders", 1)}
    for (_, partition), offset in moved.items():
        assert offset > here[partition][-1][-1], "records would be read again"
    (near,) = committed(bootstrap, "billing-gaps").values()
    assert here[0][8][-1] <= near <= here[0][11][-1], "a record is left out, or a whole batch read again"
    (half,) = committed(bootstrap, "billing-half").values()
    assert half == here[1][7][-1], "partition 1 has no gaps"
    assert committed(bootstrap, "unwanted") == {}

    commit(bootstrap, "billing-half", {("east.shop-orders", 1): here[1][9][-1]})  # the group has moved
    run_spec(spec)
    assert set(committed(bootstrap, "billing-half").values()) == {here[1][9][-1]}


@pytest.mark.parametrize(
    ("point", "row_bytes"),
    [("before-write", 100), ("mid-commit", 100), ("after-end", 100), ("mid-commit", 1_000_000)],
)  # fmt: skip
def test_a_driver_that_dies_anywhere_leaves_every_record_once(
    run_spec: RunSpec, bootstrap: str, east: BarnabasBroker, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, point: str, row_bytes: int,
) -> None:  # fmt: skip
    from barnabas.pipelines.spark import runner
    from barnabas.pipelines.spark.context.run_context import PipelineFailed
    from barnabas.pipelines.spark.sinks import mirror
    from pyspark_barnabas.shared.options import Options
    from pyspark_barnabas.source import BarnabasDataSource
    from pyspark_barnabas.writers.sink import ExactlyOnceBatchWriter

    name, flag = f"crash-{uuid.uuid4().hex[:8]}", tmp_path / "reached"

    def reach(here: str) -> None:
        if here == point and not flag.exists():
            flag.touch()
            if here in ("mid-commit", "after-end"):
                os.kill(os.getpid(), signal.SIGKILL)  # the process in which the driver commits
            raise RuntimeError(f"the driver ends {here}")

    class Dying(ExactlyOnceBatchWriter):
        def _commit_offsets(self, *arguments: Any) -> None:
            ExactlyOnceBatchWriter._commit_offsets(self, *arguments)
            reach("mid-commit")

        def _end(self, *arguments: Any) -> None:
            ExactlyOnceBatchWriter._end(self, *arguments)
            reach("after-end")

    class DyingSource(BarnabasDataSource):
        def writer(self, schema: Any, overwrite: bool) -> Any:
            return Dying(Options(self.options), schema)

    ensure = mirror._Copies.ensure

    def ensuring(self: Any, partitions: Any) -> None:
        ensure(self, partitions)
        reach("before-write")

    monkeypatch.setattr(runner, "DefaultSource", DyingSource)
    monkeypatch.setattr(mirror._Copies, "ensure", ensuring)
    create(east.bootstrap, name, 2, max_message_bytes="4000000")
    rows = [{"value": f"{at}".encode().ljust(row_bytes, b"."), "partition": at % 2} for at in range(12)]
    send(east.bootstrap, name, rows)
    spec = {
        "name": name,
        "source": {
            "type": "topic", "bootstrap": east.bootstrap, "topics": name, "format": "raw",
            "max_offsets_per_trigger": 6,
        },
        "sink": {"type": "mirror"},
    }  # fmt: skip
    with pytest.raises(PipelineFailed):
        run_spec(spec)
    assert flag.exists()
    monkeypatch.undo()
    run_spec(spec)
    assert content(records(bootstrap, name)) == content(records(east.bootstrap, name))
