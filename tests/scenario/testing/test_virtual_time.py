"""Time of a broker that a test moves: what takes minutes happens at once, with real clients."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, Producer

from barnabas.testing.broker import run_broker


def test_a_silent_member_leaves_its_group_when_its_session_ends() -> None:
    with run_broker(time="virtual") as broker:
        topic = broker.create_topic()
        reader = Consumer(
            {"bootstrap.servers": broker.bootstrap, "group.id": "g", "session.timeout.ms": 45_000}
        )
        reader.subscribe([topic])
        reader.poll(0)
        while not reader.assignment():
            reader.poll(0.1)
        broker.wait_for(group="g", state="Stable", members=1)
        rule = broker.faults.add(api="Heartbeat", drop="before")  # the member falls silent
        broker.time.advance("46s")
        broker.wait_for(group="g", members=0)
        rule.remove()
        reader.close()


def test_records_are_deleted_when_their_retention_is_over() -> None:
    settings = {"log.retention.check.interval.ms": "300000", "log.initial.task.delay.ms": "1000"}
    with run_broker(settings, time="virtual") as broker:
        topic = broker.create_topic(retention_ms="3600000")
        writer = Producer({"bootstrap.servers": broker.bootstrap})
        writer.produce(topic, b"old")
        assert writer.flush(30) == 0
        broker.time.advance("50m")
        assert [each.value for each in broker.records(topic)] == [b"old"]
        broker.time.advance("20m")
        assert broker.records(topic) == []


def test_an_open_transaction_times_out() -> None:
    with run_broker(time="virtual") as broker:
        topic = broker.create_topic()
        writer = Producer({
            "bootstrap.servers": broker.bootstrap, "transactional.id": "t", "transaction.timeout.ms": 60_000,
        })  # fmt: skip
        writer.init_transactions(30)
        writer.begin_transaction()
        writer.produce(topic, b"open")
        assert writer.flush(30) == 0
        plain = Producer({"bootstrap.servers": broker.bootstrap})
        plain.produce(topic, b"behind")
        assert plain.flush(30) == 0
        assert broker.records(topic, committed=True) == []  # the open transaction holds them back
        broker.time.advance("2m")
        assert [each.value for each in broker.records(topic, committed=True)] == [b"behind"]


def test_a_broker_on_real_time_has_no_time_to_move() -> None:
    with run_broker() as broker, pytest.raises(RuntimeError, match="virtual"):
        broker.time.advance("1s")
