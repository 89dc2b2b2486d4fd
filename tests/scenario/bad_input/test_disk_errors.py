"""A disk that takes no more: a clear error, nothing acknowledged lost.

The limit on file sizes of a running process (RLIMIT_FSIZE) stands in for a full disk: a write
past it fails with an error of the operating system in the middle of an append.
"""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from tests.support.broker import partition_directory, running
from tests.support.fixtures import chosen_broker, create_topic
from tests.support.wire import WireConnection, batch
from tests.support.workload import read_all

KAFKA_STORAGE_ERROR = 56
TOPIC = "full"


def values() -> list[bytes]:
    return [bytes([65 + i % 26]) * 3_000 for i in range(200)]


def test_a_write_error_is_told_and_loses_nothing(pytestconfig: pytest.Config, tmp_path: Path) -> None:
    broker = chosen_broker(pytestconfig, tmp_path)
    if broker.name == "kafka":
        pytest.skip("the JVM's index files are past any limit that the log would meet")
    acknowledged: list[bytes] = []
    with running(broker):
        create_topic(broker, TOPIC)
        with WireConnection(broker.host, broker.port) as connection:
            for value in values()[:50]:
                assert connection.produce(TOPIC, batch([value])) == (0, len(acknowledged))
                acknowledged.append(value)
            log = min(partition_directory(broker, TOPIC).glob("*.log"))
            limit = log.stat().st_size + 10_000
            _, hard = resource.prlimit(broker.pid, resource.RLIMIT_FSIZE)
            resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (limit, hard))
            error = 0
            for value in values()[50:]:
                try:
                    error, offset = connection.produce(TOPIC, batch([value]))
                except (EOFError, ConnectionError):
                    pytest.fail(f"closed without a word:\n{broker.output_text()}")
                if error:
                    break
                assert offset == len(acknowledged)
                acknowledged.append(value)
            assert error == KAFKA_STORAGE_ERROR
        broker.kill()
    with running(broker):
        read = [record.value for record in read_all(broker.bootstrap, TOPIC)]
        assert read[: len(acknowledged)] == acknowledged
        with WireConnection(broker.host, broker.port) as connection:
            assert connection.produce(TOPIC, batch([b"again"])) == (0, len(read))
