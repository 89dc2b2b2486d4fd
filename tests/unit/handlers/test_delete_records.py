"""DeleteRecords: rights, and internal topics."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.core.errors import InvalidTopicException
from barnabas.core.ids import INTERNAL_TOPICS, TopicPartition
from barnabas.handlers.delete_records import handle_delete_records
from barnabas.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tests.support.slices import in_one_go
from tests.unit.replication.support import Replicas


@pytest.mark.parametrize("topic", sorted(INTERNAL_TOPICS))
def test_records_of_internal_topics_stay(tmp_path: Path, topic: str) -> None:
    replicas = Replicas(str(tmp_path))
    partition = replicas.lead(TopicPartition(topic, 0))
    replicas.append(partition, b"state")
    context: Any = SimpleNamespace(broker=SimpleNamespace(replicas=replicas), require=lambda *_: None)
    ask = DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=1)])
    answer = in_one_go(handle_delete_records(DeleteRecordsRequest(topics=[ask], timeout_ms=0), context))
    assert answer is not None
    assert answer.topics[0].partitions[0].error_code == InvalidTopicException.code
    assert partition.log.log_start_offset == 0
