"""`barnabas group` against a running broker."""

from __future__ import annotations

import json
import time

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.scenario.cli.command import Barnabas
from tests.support.fixtures import TopicFactory

DEADLINE_S = 60.0


@pytest.fixture
def barnabas(bootstrap: str) -> Barnabas:
    return Barnabas(bootstrap)


def produce(bootstrap: str, topic: str, count: int, timestamp: int) -> None:
    sender = Producer({"bootstrap.servers": bootstrap})
    for number in range(count):
        sender.produce(topic, str(number).encode(), partition=number % 2, timestamp=timestamp + number)
    assert sender.flush(DEADLINE_S) == 0


def offsets(table: str) -> list[tuple[str, ...]]:
    return [tuple(line.split()[1:]) for line in table.splitlines()[1:]]


def test_a_group_is_looked_at_moved_and_deleted(
    bootstrap: str, barnabas: Barnabas, new_topic: TopicFactory
) -> None:
    topic = new_topic(partitions=2)
    now_ms = int(time.time() * 1_000)
    produce(bootstrap, topic, 20, now_ms)
    group = f"group-of-{topic}"
    member = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    member.subscribe([topic])
    deadline = time.monotonic() + DEADLINE_S
    while len(member.assignment()) < 2:
        assert time.monotonic() < deadline
        member.poll(0.1)
    member.commit(offsets=[TopicPartition(topic, 0, 4)], asynchronous=False)

    assert group in barnabas("group", "list")
    (about,) = json.loads(barnabas("group", "describe", group, "--json"))
    assert (about["state"], about["type"], len(about["members"])) == ("Stable", "classic", 1)
    assert about["offsets"] == [
        {"topic": topic, "partition": 0, "offset": 4, "end": 10, "lag": 6},
        {"topic": topic, "partition": 1, "offset": None, "end": 10, "lag": None},
    ]
    assert "group" in barnabas("group", "delete", group, code=1).lower()
    member.close()

    def reset(*arguments: str) -> list[tuple[str, ...]]:
        return offsets(barnabas("group", "reset-offsets", group, "--topic", topic, *arguments))

    assert reset("--to-latest", "--dry-run") == [("0", "4", "10"), ("1", "-", "10")]
    assert reset("--to-offset", "3") == [("0", "4", "3"), ("1", "-", "3")]
    assert reset("--shift-by", "-2") == [("0", "3", "1"), ("1", "3", "1")]
    assert reset("--to-datetime", str(now_ms + 10)) == [("0", "1", "5"), ("1", "1", "5")]
    assert reset("--to-earliest") == [("0", "5", "0"), ("1", "5", "0")]
    assert reset("--to-latest") == [("0", "0", "10"), ("1", "0", "10")]
    shown = barnabas("group", "describe", group)
    assert " Empty " in shown
    assert barnabas("group", "delete", group) == f"deleted group {group}\n"
    assert group not in barnabas("group", "list")
    barnabas("group", "describe", group, code=4)


def test_one_way_of_moving_is_chosen(barnabas: Barnabas) -> None:
    with barnabas.start("group", "reset-offsets", "g", "--to-latest", "--to-earliest") as process:
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 2
    assert b"exactly one" in stderr


def test_a_group_that_is_not_there_is_named(barnabas: Barnabas) -> None:
    for command in ("describe", "delete"):
        assert barnabas("group", command, "nobody", code=4) == "barnabas: there is no group nobody\n"
    refused = barnabas("group", "reset-offsets", "nobody", "--to-earliest", code=4)
    assert refused.startswith("barnabas: group nobody has no offsets to reset")
