"""Attempts at the tasks of a batch, one after the other and side by side, without Spark.

The test plays the part of Spark: it hands the writer to the tasks, runs each any number of times, and commits
with one result for each task. The rows of an attempt come in an order of its own, as they do from a shuffle,
and two attempts need not even compute the same rows.
"""

from __future__ import annotations

import pickle
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

pytest.importorskip("pyspark", reason="PySpark is not installed")

from pyspark import TaskContext
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructType

from barnabas.client.core import transaction_steps as txn
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.errors import InvalidProducerEpoch, KafkaError, ProducerFenced, UnsupportedVersion
from barnabas.core.ids import TopicPartition
from barnabas.protocol.offset_numbers import LATEST, READ_COMMITTED
from barnabas.testing.broker import run_broker
from pyspark_barnabas.produce import rows
from pyspark_barnabas.produce.lanes import Stretch
from pyspark_barnabas.readers.fetch import FetchOptions, OffsetRange, read_range
from pyspark_barnabas.shared.cluster import Cluster
from pyspark_barnabas.shared.cluster_config import ClusterConfig
from pyspark_barnabas.shared.options import OptionError, Options
from pyspark_barnabas.writers.attempts import copy_attempts
from pyspark_barnabas.writers.attempts.copy_attempts import RowsNotFound
from pyspark_barnabas.writers.batch_names import BATCH_ID, QUERY_ID
from pyspark_barnabas.writers.sink import ExactlyOnceStreamWriter, TransactionPart

SCHEMA = StructType().add("value", BinaryType()).add("topic", StringType()).add("partition", IntegerType())
PARTITIONS = 3


class TaskDied(Exception):
    pass


class Batch:
    """One micro-batch: a writer that was sent to the tasks."""

    def __init__(self, bootstrap: str, topic: str, **options: str) -> None:
        self.topic = topic
        self._options = {
            "kafka.bootstrap.servers": bootstrap,
            "pipelineId": f"{topic}-pipeline",
            **options,
        }
        host, _, port = bootstrap.rpartition(":")
        self.config = ClusterConfig((Endpoint(host, int(port)),))
        self._sent = pickle.dumps(self._writer())

    def _writer(self) -> ExactlyOnceStreamWriter:
        return ExactlyOnceStreamWriter(Options(self._options), SCHEMA)

    def attempt(self, values: Iterator[pa.RecordBatch], *, number: int = 0, task: int = 0) -> TransactionPart:
        context = TaskContext(
            stageId=1,
            partitionId=task,
            attemptNumber=number,
            taskAttemptId=random.getrandbits(40),
            localProperties={QUERY_ID: f"query-{self.topic}", BATCH_ID: "0"},
        )
        TaskContext._setTaskContext(context)
        try:
            part = pickle.loads(self._sent).write(values)
        finally:
            TaskContext._setTaskContext(None)
        assert isinstance(part, TransactionPart)
        return pickle.loads(pickle.dumps(part))  # type: ignore[no-any-return]

    def commit(self, *parts: TransactionPart) -> None:
        self._writer().commit(list(parts), 0)

    def abort(self, *parts: TransactionPart) -> None:
        self._writer().abort(list(parts), 0)

    def arrow(
        self, values: Sequence[bytes], *, partition: int = 0, piece: int = 8
    ) -> Iterator[pa.RecordBatch]:
        for first in range(0, len(values), piece):
            some = values[first : first + piece]
            yield pa.record_batch(
                {
                    "value": list(some),
                    "topic": [self.topic] * len(some),
                    "partition": pa.array([partition] * len(some), pa.int32()),
                }
            )


def dying(batches: Iterator[pa.RecordBatch], *, after: int) -> Iterator[pa.RecordBatch]:
    for number, batch in enumerate(batches):
        if number == after:
            raise TaskDied
        yield batch
    raise TaskDied


def values_of(size: int, count: int) -> list[bytes]:
    return [b"%08d" % number + bytes(size - 8) for number in range(count)]


FLUSHED = values_of(rows.FLUSH_BYTES // 4, 5)
"""Enough to be written before the attempt is over."""


def shuffled(values: Sequence[bytes], seed: int) -> list[bytes]:
    again = list(values)
    random.Random(seed).shuffle(again)
    return again


@pytest.fixture(scope="module")
def pipelines_broker() -> Iterator[str]:
    """One for all tests of this file, which have a topic each."""
    with run_broker() as broker:
        yield broker.bootstrap


@pytest.fixture
def topic(pipelines_broker: str, request: pytest.FixtureRequest) -> str:
    return topic_of(request, pipelines_broker)


def topic_of(request: pytest.FixtureRequest, bootstrap: str) -> str:
    name = re.sub("[^a-z0-9]+", "-", request.node.name)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, PARTITIONS)])[name].result()
    return name


def committed(bootstrap: str, topic: str) -> Counter[bytes]:
    """Up to the end of the log, once all that is there is decided."""
    host, _, port = bootstrap.rpartition(":")
    found: Counter[bytes] = Counter()
    options = FetchOptions(columns=("value",), isolation=READ_COMMITTED, poll_timeout_ms=30_000)
    with Cluster(ClusterConfig((Endpoint(host, int(port)),))) as cluster:
        topic_partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        ends = cluster.list_offsets(dict.fromkeys(topic_partitions, LATEST))
        for topic_partition, end in ends.items():
            for batch in read_range(cluster, OffsetRange(topic, topic_partition.partition, 0, end), options):
                found.update(batch.column("value").to_pylist())
    return found


def open_transactions(batch: Batch) -> set[TopicPartition]:
    """Partitions of which readers of committed data cannot see the end."""
    with Cluster(batch.config) as cluster:
        wanted = {TopicPartition(batch.topic, number): LATEST for number in range(PARTITIONS)}
        ends = cluster.list_offsets(wanted)
        stable = cluster.list_offsets(wanted, isolation=READ_COMMITTED)
    return {topic_partition for topic_partition in wanted if stable[topic_partition] != ends[topic_partition]}


@pytest.fixture(params=[100, 5_000, 50_000, 400_000, 1_000_000])
def values(request: pytest.FixtureRequest) -> list[bytes]:
    """Eight megabytes, so that there are several flushes, of rows of each size."""
    return values_of(request.param, max(8_000_000 // request.param, 12))


@pytest.mark.parametrize("after", [0, 3, 10_000], ids=["before", "between", "after"])
@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_an_attempt_that_died_leaves_nothing_behind(
    pipelines_broker: str, topic: str, values: list[bytes], after: int, compression: str
) -> None:
    batch = Batch(pipelines_broker, topic, compression=compression)
    piece = max(1, len(values) // 6)
    with pytest.raises(TaskDied):
        batch.attempt(dying(batch.arrow(values, piece=piece), after=after))
    with pytest.raises(TaskDied):
        batch.attempt(dying(batch.arrow(shuffled(values, 1), piece=piece), after=after), number=1)
    batch.commit(batch.attempt(batch.arrow(shuffled(values, 2), piece=piece), number=2))
    assert committed(pipelines_broker, topic) == Counter(values)


@pytest.mark.parametrize("winner", [0, 1])
def test_of_two_attempts_that_both_finish_one_counts(
    pipelines_broker: str, topic: str, values: list[bytes], winner: int
) -> None:
    """Even if they did not compute the same."""
    batch = Batch(pipelines_broker, topic)
    other = [value[:-1] + b"!" for value in values]
    parts = [batch.attempt(batch.arrow(values)), batch.attempt(batch.arrow(other), number=1)]
    batch.commit(parts[winner])
    assert committed(pipelines_broker, topic) == Counter([values, other][winner])


@pytest.mark.parametrize("winner", [0, 1])
def test_a_stage_that_is_run_again_numbers_its_attempts_from_0_again(
    pipelines_broker: str, topic: str, winner: int
) -> None:
    batch = Batch(pipelines_broker, topic)
    some, other = [b"a" * 100] * 10, [b"b" * 100] * 10
    parts = [batch.attempt(batch.arrow(some)), batch.attempt(batch.arrow(other))]
    batch.commit(parts[winner])
    assert committed(pipelines_broker, topic) == Counter([some, other][winner])


def test_attempts_side_by_side_are_never_mixed(pipelines_broker: str, topic: str) -> None:
    """Two that believe to be the first take turns with every flush."""
    batch = Batch(pipelines_broker, topic)
    some, other = values_of(400_000, 30), [value[:-1] + b"!" for value in values_of(400_000, 30)]
    parts: list[TransactionPart] = []

    def interrupted() -> Iterator[pa.RecordBatch]:
        for number, piece in enumerate(batch.arrow(some)):
            if number == 2:
                parts.append(batch.attempt(batch.arrow(other)))
            yield piece

    parts.append(batch.attempt(interrupted()))
    batch.commit(parts[0])
    assert committed(pipelines_broker, topic) == Counter(other)


def test_an_attempt_may_own_one_partition_and_not_the_next(pipelines_broker: str, topic: str) -> None:
    batch = Batch(pipelines_broker, topic)
    with pytest.raises(TaskDied):
        batch.attempt(dying(batch.arrow(FLUSHED, partition=1), after=99))

    def several() -> Iterator[pa.RecordBatch]:
        for partition in (0, 1, 0):
            yield from batch.arrow(FLUSHED, partition=partition)

    part = batch.attempt(several())
    assert part.direct is not None
    assert part.staged is not None
    assert list(part.direct.stretches) == [TopicPartition(topic, 0)]
    batch.commit(part)
    assert committed(pipelines_broker, topic) == Counter(3 * FLUSHED)


def test_rows_that_an_attempt_computed_and_the_one_that_counts_did_not_are_not_committed(
    pipelines_broker: str, topic: str
) -> None:
    """The first attempt wrote to a partition to which the second has nothing to write."""
    batch = Batch(pipelines_broker, topic)
    with pytest.raises(TaskDied):
        batch.attempt(dying(batch.arrow(FLUSHED, partition=2), after=99))
    batch.commit(batch.attempt(batch.arrow([b"y"] * 3, partition=1)))
    assert committed(pipelines_broker, topic) == Counter([b"y"] * 3)


def test_a_batch_without_a_retry_is_not_copied(
    pipelines_broker: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copy_attempts, "copy", None)
    batch = Batch(pipelines_broker, topic)
    batch.commit(*(batch.attempt(batch.arrow([b"x"], partition=n), task=n) for n in range(PARTITIONS)))
    assert committed(pipelines_broker, topic).total() == PARTITIONS


def test_two_tasks_for_one_partition_are_refused(pipelines_broker: str, topic: str) -> None:
    batch = Batch(pipelines_broker, topic)
    parts = [batch.attempt(batch.arrow([b"x"]), task=task) for task in range(2)]
    with pytest.raises(OptionError, match="two tasks wrote to"):
        batch.commit(*parts)


def test_a_driver_that_was_replaced_cannot_copy_its_batch(pipelines_broker: str, topic: str) -> None:
    batch = Batch(pipelines_broker, topic)
    batch.attempt(batch.arrow([b"x"]))
    part = batch.attempt(batch.arrow([b"x"]), number=1)
    successor = Batch(pipelines_broker, topic)
    with pytest.raises((ProducerFenced, InvalidProducerEpoch)):
        batch.commit(part)
    successor.commit(successor.attempt(successor.arrow([b"x"])))
    with pytest.raises((ProducerFenced, InvalidProducerEpoch)):
        batch.commit(part)
    assert committed(pipelines_broker, topic) == Counter([b"x"])


def test_the_first_attempt_can_write_no_more_when_the_batch_was_copied(
    pipelines_broker: str, topic: str
) -> None:
    batch = Batch(pipelines_broker, topic)

    def overtaken() -> Iterator[pa.RecordBatch]:
        yield from batch.arrow(FLUSHED)
        batch.commit(batch.attempt(batch.arrow([b"x"]), number=1))
        yield from batch.arrow(FLUSHED)

    with pytest.raises((ProducerFenced, InvalidProducerEpoch)):
        batch.attempt(overtaken())
    assert committed(pipelines_broker, topic) == Counter([b"x"])


def test_rows_that_are_gone_fail_the_commit(pipelines_broker: str, topic: str) -> None:
    batch = Batch(pipelines_broker, topic)
    part = batch.attempt(batch.arrow([b"x"]), number=1)
    assert part.staged is not None
    part.staged.stretches[TopicPartition(topic, 0)] = [Stretch(0, 2)]
    with pytest.raises(RowsNotFound):
        batch.commit(part)
    assert committed(pipelines_broker, topic) == Counter()


def test_where_transactions_cannot_be_described_every_batch_is_copied(
    pipelines_broker: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> Any:
        raise UnsupportedVersion("DescribeTransactions")

    monkeypatch.setattr(txn, "_describe", refuse)
    batch = Batch(pipelines_broker, topic)
    part = batch.attempt(batch.arrow([b"x"]))
    assert part.staged is not None
    batch.commit(part)
    assert committed(pipelines_broker, topic) == Counter([b"x"])


def test_offsets_of_a_topic_that_the_cluster_does_not_have_are_left_out(
    pipelines_broker: str, topic: str, tmp_path: Any
) -> None:
    (tmp_path / "offsets").mkdir()
    journal = f'{{"of-another-cluster":{{"0":42}},"{topic}":{{"0":7,"{PARTITIONS}":1}}}}'
    (tmp_path / "offsets" / "0").write_text(f"v1\n{{}}\n{journal}\n")
    batch = Batch(pipelines_broker, topic, checkpointLocation=str(tmp_path))
    batch.commit(batch.attempt(batch.arrow([b"x"])))
    assert committed(pipelines_broker, topic) == Counter([b"x"])
    with Cluster(batch.config) as cluster:
        found = cluster.run(txn.committed_metadata(cluster.state, f"{topic}-pipeline"))
    assert {topic_partition: offset for topic_partition, (offset, _) in found.items()} == {
        TopicPartition(topic, 0): 7
    }


def test_a_source_that_is_all_elsewhere_leaves_the_name_of_the_batch(
    pipelines_broker: str, topic: str, tmp_path: Any
) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text('v1\n{}\n{"of-another-cluster":{"0":42}}\n')
    batch = Batch(pipelines_broker, topic, checkpointLocation=str(tmp_path))
    batch.commit(batch.attempt(batch.arrow([b"x"])))
    again = Batch(pipelines_broker, topic, checkpointLocation=str(tmp_path))
    part = again.attempt(again.arrow([b"x"]))
    assert part.is_done_before
    again.commit(part)
    assert committed(pipelines_broker, topic) == Counter([b"x"])


def test_a_failed_attempt_is_an_error_that_says_what_happened(pipelines_broker: str, topic: str) -> None:
    batch = Batch(pipelines_broker, topic)
    Batch(pipelines_broker, topic)
    with pytest.raises(KafkaError):
        batch.attempt(batch.arrow([b"x"]))


def test_a_commit_that_fails_after_the_copying_leaves_no_transaction_open(
    pipelines_broker: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark then aborts the writer, and the query may never run again."""
    batch = Batch(pipelines_broker, topic)
    batch.attempt(batch.arrow([b"x"]))
    part = batch.attempt(batch.arrow([b"x"]), number=1)

    def refuse(*_: object) -> None:
        raise KafkaError("the group's coordinator is away")

    monkeypatch.setattr(txn, "commit_offsets", refuse)
    with pytest.raises(KafkaError, match="is away"):
        batch.commit(part)
    batch.abort(part)
    assert open_transactions(batch) == set()


def test_brokers_may_allow_short_transactions_only(request: pytest.FixtureRequest) -> None:
    with run_broker({"transaction.max.timeout.ms": "20000"}) as broker:
        name = topic_of(request, broker.bootstrap)
        batch = Batch(broker.bootstrap, name, transactionTimeoutMs="20000")
        batch.attempt(batch.arrow([b"x"]))
        batch.commit(batch.attempt(batch.arrow([b"y"]), number=1))
        assert committed(broker.bootstrap, name) == Counter([b"y"])


def test_a_batch_without_rows_leaves_nothing_open_of_an_attempt_that_had_some(
    pipelines_broker: str, topic: str
) -> None:
    batch = Batch(pipelines_broker, topic)
    with pytest.raises(TaskDied):
        batch.attempt(dying(batch.arrow(FLUSHED), after=99))
    batch.commit(batch.attempt(batch.arrow([]), number=1))
    assert open_transactions(batch) == set()
    assert committed(pipelines_broker, topic) == Counter()


@pytest.mark.parametrize("is_copied", [False, True], ids=["plain", "copied"])
def test_a_transaction_lasts_as_long_as_the_brokers_allow(
    request: pytest.FixtureRequest, *, is_copied: bool
) -> None:
    """Where their limit is below the default of the sink, which is the limit's own default."""
    with run_broker({"transaction.max.timeout.ms": "60000"}) as broker:
        batch = Batch(broker.bootstrap, topic_of(request, broker.bootstrap))
        if is_copied:
            with pytest.raises(TaskDied):
                batch.attempt(dying(batch.arrow(FLUSHED), after=99))
        part = batch.attempt(batch.arrow(FLUSHED), number=int(is_copied))
        assert 30_000 < part.transaction.timeout_ms <= 60_000
        batch.commit(part)
        assert committed(broker.bootstrap, batch.topic) == Counter(FLUSHED)


def test_a_timeout_that_is_asked_for_is_the_transactions(
    pipelines_broker: str, topic: str, request: pytest.FixtureRequest
) -> None:
    wanted = {"kafka.transaction.timeout.ms": "30000"}
    batch = Batch(pipelines_broker, topic, **wanted)
    assert batch.attempt(batch.arrow(FLUSHED)).transaction.timeout_ms == 30_000
    with (
        run_broker({"transaction.max.timeout.ms": "20000"}) as broker,
        pytest.raises(OptionError, match=r"30000 is more than transaction\.max\.timeout\.ms"),
    ):
        Batch(broker.bootstrap, topic_of(request, broker.bootstrap), **wanted)
