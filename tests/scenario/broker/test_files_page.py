"""Files of a data directory: all are in docs/FILES.md, and indexes may be deleted as it says."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from tests.support.broker import BarnabasBroker, running
from tests.support.topics import consume
from tests.support.waiting import PATIENCE_S
from tests.support.wire import WireConnection, batch

PAGE = Path(__file__).resolve().parents[3] / "docs" / "FILES.md"


def patterns() -> list[str]:
    section = PAGE.read_text(encoding="utf-8").partition("## In a data directory")[2]
    first_cells = re.findall(r"^\| ([^|]+) \|", section, re.MULTILINE)
    return [each for cell in first_cells for each in re.findall(r"`([^`]+)`", cell)]


def files_of(broker: BarnabasBroker) -> list[Path]:
    """Files and sockets below the data directory."""
    found = [each for each in broker.data_directory.rglob("*") if not each.is_dir()]
    return [each.relative_to(broker.data_directory) for each in found]


def test_every_file_is_on_the_page_and_indexes_are_made_again(tmp_path: Path) -> None:
    broker = BarnabasBroker(tmp_path / "data")
    with running(broker), WireConnection(broker.host, broker.port) as connection:
        assert connection.create_topic("orders") == 0
        connection.produce("orders", batch([b"one", b"two"]))
        committing = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "readers"})
        committing.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
        committing.close()
        while_it_runs = files_of(broker)
    known = patterns()
    assert len(known) > 20
    files = files_of(broker)
    assert len(files) > 10
    for file in {*files, *while_it_runs}:
        assert any(fnmatch(str(file), each) for each in known), f"{file} is not in {PAGE.name}"

    indexes = [each for each in files if each.suffix in (".index", ".timeindex")]
    assert indexes
    for each in indexes:
        (broker.data_directory / each).unlink()
    with running(broker):
        assert [each.value for each in consume(broker.bootstrap, "orders")] == [b"one", b"two"]
        reader = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "readers"})
        (found,) = reader.committed([TopicPartition("orders", 0)], timeout=PATIENCE_S)
        reader.close()
        assert found.offset == 1
