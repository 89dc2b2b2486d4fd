"""The synchronous face: the same clients, from threads without a loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.support.reading import read_values

from barnabas.client import NewTopic, SerializationError, TopicPartition
from barnabas.client.sync import Admin, Producer
from barnabas.client.sync.loop_thread import SHARED
from barnabas.core.errors import TopicAlreadyExists

NewName = Callable[[str], str]


@pytest.fixture(autouse=True)
def stopped_thread() -> Iterator[None]:
    yield
    SHARED.stop()


def test_records_are_sent_and_acknowledged(address: str, new_name: NewName) -> None:
    topic = new_name("orders")
    with Producer(address) as producer:
        assert producer.publish(topic, b"0", key=b"k", headers={"a": "b"}).offset == 0
        assert producer.send(topic, b"1").result(30).offset == 1
        found = producer.send_many(topic, [b"%d" % number for number in range(2, 500)])
        assert [each.offset for each in found] == list(range(2, 500))
        assert len(producer.partitions_for(topic)) == 1
        with pytest.raises(SerializationError):
            producer.send(topic, "text")
        left = producer.send(topic, b"500")
        producer.flush()
        assert left.done()
        assert producer.metrics.snapshot()["producer_record_send_total"] == 501
    assert asyncio.run(read_values(address, topic)) == [b"%d" % number for number in range(501)]


def test_threads_share_a_producer(address: str, new_name: NewName) -> None:
    topic = new_name("orders")
    with Producer(address) as producer, ThreadPoolExecutor(8) as pool:
        sent = list(pool.map(lambda number: producer.publish(topic, b"%d" % number).offset, range(100)))
        assert sorted(sent) == list(range(100))
        assert sum(thread.name == "barnabas-client" for thread in threading.enumerate()) == 1


def test_a_transaction_commits_or_aborts(address: str, new_name: NewName) -> None:
    topic, group = new_name("orders"), new_name("group")
    with Producer(address, transactional_id=new_name("txn")) as producer, Admin(address) as admin:
        producer.init_transactions()
        with producer.transaction():
            producer.publish(topic, b"a")
            producer.send_offsets_to_transaction({TopicPartition(topic, 0): 1}, group)

        def fail() -> None:
            with producer.transaction():
                producer.publish(topic, b"lost")
                raise ValueError("stop")

        with pytest.raises(ValueError, match="stop"):
            fail()
        producer.begin_transaction()
        producer.send(topic, b"b")
        producer.commit_transaction()
        producer.begin_transaction()
        producer.abort_transaction()
        assert admin.list_group_offsets(group, require_stable=True) == {TopicPartition(topic, 0): 1}
    assert asyncio.run(read_values(address, topic, read_committed=True)) == [b"a", b"b"]


def test_the_admin_client_has_every_method(address: str, new_name: NewName) -> None:
    topic = new_name("orders")
    with Admin(address) as admin:
        assert admin.create_topics([NewTopic(topic, 2)])[topic].partitions == 2
        with pytest.raises(TopicAlreadyExists):
            admin.create_topics([NewTopic(topic, 2)])
        assert "describe_cluster" in dir(admin)
        with pytest.raises(AttributeError, match="no method frobnicate"):
            admin.frobnicate()
