"""Looking for the last batch of a pipeline where it is kept for long."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

from barnabas.core.ids import TopicPartition
from barnabas.protocol.offset_numbers import EARLIEST, READ_COMMITTED, READ_UNCOMMITTED
from barnabas.records.batch import RecordBatch
from barnabas.records.builder import build_batch, build_end_transaction_marker
from barnabas.records.record import EndTransactionMarker
from pyspark_barnabas.readers.fetch import FetchOptions, OffsetRange
from pyspark_barnabas.shared.cluster import Cluster
from pyspark_barnabas.shared.options import OptionError
from pyspark_barnabas.writers.attempts import markers
from pyspark_barnabas.writers.attempts.markers import Decided, decide
from pyspark_barnabas.writers.sink import TRANSACTION_TIMEOUT_MS

MINE, OTHER = 7, 8


class Topic:
    """Committed offset of one partition, and the batches above its last stable offset in the log."""

    def __init__(self, stable: int | None, committed: Mapping[str, str], *above: RecordBatch) -> None:
        self.stable = stable
        self.committed = committed
        self.above = above
        self.waited_for: list[OffsetRange] = []

    def list_offsets(
        self, asked: Mapping[TopicPartition, int], *, isolation: int = READ_UNCOMMITTED
    ) -> dict[TopicPartition, int]:
        if self.stable is None:
            return {}
        end = self.stable if isolation == READ_COMMITTED else self.stable + len(self.above)
        return {topic_partition: 0 if what == EARLIEST else end for topic_partition, what in asked.items()}

    def read_range(self, _: Any, wanted: OffsetRange, options: FetchOptions) -> Iterator[pa.RecordBatch]:
        assert options.isolation == READ_COMMITTED
        if wanted.end > (self.stable or 0):
            assert options.poll_timeout_ms > TRANSACTION_TIMEOUT_MS
            self.waited_for.append(wanted)
        keys, values = [key.encode() for key in self.committed], [*map(str.encode, self.committed.values())]
        yield pa.record_batch({"key": keys, "value": values})

    def read_batches(self, _: Any, wanted: OffsetRange, options: FetchOptions) -> Iterator[RecordBatch]:
        assert (wanted.start, options.isolation) == (self.stable, READ_UNCOMMITTED)
        yield from self.above


@pytest.fixture
def last_kept(monkeypatch: pytest.MonkeyPatch) -> Any:
    def look(topic: Topic) -> str:
        monkeypatch.setattr(markers, "read_range", topic.read_range)
        monkeypatch.setattr(markers, "read_batches", topic.read_batches)
        return markers.last_kept(cast("Cluster", topic), "batches", "p")

    return look


def marker(group: str, text: str, producer_id: int = MINE) -> RecordBatch:
    rows = [(group.encode(), text.encode(), (), 0)]
    return RecordBatch(build_batch(rows, producer_id=producer_id, producer_epoch=0, is_transactional=True))


def ending(producer_id: int = MINE, *, commit: bool = True) -> RecordBatch:
    end = EndTransactionMarker(commit, 0)
    return RecordBatch(
        build_end_transaction_marker(end, producer_id=producer_id, producer_epoch=0, timestamp=0)
    )


def test_a_marker_topic_that_does_not_exist_is_named(last_kept: Any) -> None:
    with pytest.raises(OptionError, match="there is no topic batches; create it"):
        last_kept(Topic(None, {}))


def test_what_is_stable_is_believed(last_kept: Any) -> None:
    assert last_kept(Topic(3, {"p": "3", "q": "2"})) == "3"
    assert last_kept(Topic(3, {"q": "2"})) == ""


def test_an_open_transaction_of_another_pipeline_is_not_waited_for(last_kept: Any) -> None:
    """Its driver died: the markers of all others stand behind it for a quarter of an hour."""
    topic = Topic(3, {"p": "3"}, marker("q", "9", OTHER), marker("p", "4"), ending())
    assert last_kept(topic) == "4"
    assert topic.waited_for == []


def test_an_open_transaction_with_a_marker_of_its_own_is_waited_for(last_kept: Any) -> None:
    topic = Topic(3, {"p": "5"}, marker("p", "5", OTHER), marker("p", "4"), ending())
    assert last_kept(topic) == "5"
    assert topic.waited_for == [OffsetRange("batches", 0, 3, 6)]


def test_a_marker_counts_when_its_transaction_was_committed() -> None:
    assert decide([marker("p", "1"), ending()], "p") == Decided("1", is_open=False)
    assert decide([marker("p", "1"), ending(commit=False)], "p") == Decided(None, is_open=False)
    assert decide([marker("p", "1")], "p") == Decided(None, is_open=True)
    assert decide([marker("p", "1"), ending(OTHER)], "p") == Decided(None, is_open=True)


def test_the_last_that_was_committed_counts_and_one_that_was_aborted_hides_none() -> None:
    log = [marker("p", "1"), ending(), marker("q", "7"), ending(), marker("p", "2"), ending(commit=False)]
    assert decide(log, "p") == Decided("1", is_open=False)
    assert decide([*log, marker("p", "3"), ending()], "p") == Decided("3", is_open=False)
