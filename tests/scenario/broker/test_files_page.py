"""Files of a data directory: all are in docs/FILES.md, and indexes may be deleted as it says."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from tests.support.broker import BarnabasBroker, running
from tests.support.files_page import unlisted
from tests.support.topics import consume
from tests.support.waiting import PATIENCE_S
from tests.support.wire import WireConnection, batch


def test_every_file_is_on_the_page_and_indexes_are_made_again(tmp_path: Path) -> None:
    broker = BarnabasBroker(tmp_path / "data")
    with running(broker), WireConnection(broker.host, broker.port) as connection:
        assert connection.create_topic("orders") == 0
        connection.produce("orders", batch([b"one", b"two"]))
        committing = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "readers"})
        committing.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
        committing.close()
        assert unlisted(broker.data_directory) == []
    assert unlisted(broker.data_directory) == []

    indexes = [each for each in broker.data_directory.rglob("*") if each.suffix in (".index", ".timeindex")]
    assert indexes
    for each in indexes:
        each.unlink()
    with running(broker):
        assert [each.value for each in consume(broker.bootstrap, "orders")] == [b"one", b"two"]
        reader = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "readers"})
        (found,) = reader.committed([TopicPartition("orders", 0)], timeout=PATIENCE_S)
        reader.close()
        assert found.offset == 1
