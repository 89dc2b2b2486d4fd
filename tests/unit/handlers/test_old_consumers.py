"""Down-conversion: bytes read for an old consumer, and the errors of a failed conversion."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.core.bounds.budget import Budget
from barnabas.core.errors import UnknownServerError
from barnabas.core.ids import ZERO_UUID
from barnabas.core.regions import FileRegion
from barnabas.handlers.shared.down_conversion import CONVERTED_BYTES_MAX, fit_for_old_consumer
from barnabas.protocol.messages.fetch import PartitionData
from barnabas.records.builder import build_batch
from barnabas.replication.partition.fetching import PartitionFetch
from tests.support.settings import log_config
from tests.support.slices import in_one_go
from tests.support.wire import content


class Recorded:
    """A file that remembers how much was read of it; without content every read fails."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.read_bytes = 0

    def fileno(self) -> int:
        raise AssertionError("nothing is sent here")

    def read_at(self, position: int, length: int) -> bytes:
        if not self.content:
            raise OSError(5, "Input/output error")
        found = self.content[position : position + length]
        self.read_bytes += len(found)
        return found

    def read_now(self, position: int, length: int) -> bytes:
        return self.read_at(position, length)


def converted(file: Recorded, length: int) -> PartitionData:
    partition = SimpleNamespace(
        log=SimpleNamespace(config=log_config()),
        metrics=SimpleNamespace(fetch_conversions=SimpleNamespace(value=0)),
    )
    replicas = SimpleNamespace(partition=lambda *_: partition)
    context: Any = SimpleNamespace(broker=SimpleNamespace(replicas=replicas), api_version=3, budget=Budget())
    data = PartitionData(partition_index=0, records=FileRegion(file, 0, length))
    in_one_go(fit_for_old_consumer(data, PartitionFetch("topic", ZERO_UUID, 0, 0, length), context, 0))
    return data


@pytest.mark.parametrize("value_bytes", [1_000, CONVERTED_BYTES_MAX])
def test_no_more_is_read_than_is_converted(value_bytes: int) -> None:
    one = bytes(build_batch([(None, bytes(value_bytes), (), 0)]))
    file = Recorded(one * (1 + 3 * CONVERTED_BYTES_MAX // len(one)))
    data = converted(file, len(file.content))
    assert data.error_code == 0
    assert len(content(data.records)) > value_bytes
    if len(one) < CONVERTED_BYTES_MAX:
        assert file.read_bytes == CONVERTED_BYTES_MAX


def test_a_conversion_that_fails_is_told_to_the_consumer() -> None:
    data = converted(Recorded(b""), 100)
    assert (data.error_code, data.records) == (UnknownServerError.code, b"")
