"""Looking for the last batch of a pipeline where it is kept for long."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

from barnabas.client.cluster_state import EARLIEST
from barnabas.core.ids import TopicPartition
from pyspark_barnabas import markers
from pyspark_barnabas.cluster import Cluster
from pyspark_barnabas.fetch import FetchOptions, OffsetRange
from pyspark_barnabas.options import OptionError
from pyspark_barnabas.sink import TRANSACTION_TIMEOUT_MS


class Topic:
    def __init__(self, *ends: int) -> None:
        self.ends = ends

    def list_offsets(self, asked: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return {
            place: 0 if what == EARLIEST else self.ends[place.partition]
            for place, what in asked.items()
            if place.partition < len(self.ends)
        }


def last_kept(topic: Topic) -> str:
    return markers.last_kept(cast("Cluster", topic), "batches", "p")


def test_a_marker_topic_that_does_not_exist_is_named() -> None:
    with pytest.raises(OptionError, match="there is no topic batches; create it"):
        last_kept(Topic())


def test_a_transaction_that_a_dead_driver_left_open_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[FetchOptions] = []

    def read_range(_: Any, wanted: OffsetRange, options: FetchOptions) -> Iterator[pa.RecordBatch]:
        asked.append(options)
        yield pa.record_batch({"key": [b"p", b"q", b"p"], "value": [b"1", b"2", b"3"]})

    monkeypatch.setattr(markers, "read_range", read_range)
    assert last_kept(Topic(3)) == "3"
    assert asked[0].poll_timeout_ms > TRANSACTION_TIMEOUT_MS
