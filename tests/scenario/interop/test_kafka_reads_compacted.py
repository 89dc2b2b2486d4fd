"""Apache Kafka's DumpLogSegments reads what compaction has written, and so does Kafka's format.

With `--broker kafka` the log is one that Kafka itself has compacted.
"""

from __future__ import annotations

import random
import re
import struct
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer

from barnabas.records.batch import iterate_whole_batches
from tests.scenario.interop.test_kafka_dump_log import complaints, dump, segment_files
from tests.support.broker import partition_directory, running
from tests.support.fixtures import chosen_broker, create_topic
from tests.support.workload import CODECS, SEGMENT_BYTES, TIMEOUT_S

pytestmark = pytest.mark.java

KEYS = 50
MISMATCH = "Found timestamp mismatch in :"
TIME_ENTRY = struct.Struct(">qi")
RECORD = re.compile(r"^\| offset: (\d+) .* key: (\S+)", re.MULTILINE)
CONFIGS = {
    "cleanup.policy": "compact",
    "segment.bytes": str(SEGMENT_BYTES),
    "index.interval.bytes": "512",
    "min.cleanable.dirty.ratio": "0.01",
    "file.delete.delay.ms": "0",
}


@pytest.fixture(scope="module")
def compacted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A partition of many segments, all codecs, tombstones and an idempotent producer, compacted."""
    broker = chosen_broker(request.config, tmp_path_factory.mktemp("compacted"), log_cleaner_backoff_ms=100)
    chance = random.Random(1)
    with running(broker):
        create_topic(broker, "compacted", configs=CONFIGS)
        for number, codec in enumerate(CODECS * 2):
            settings = {"bootstrap.servers": broker.bootstrap, "compression.type": codec, "linger.ms": 5}
            producer = Producer({**settings, "enable.idempotence": number % 2 == 0})
            for value in range(400):
                content = None if value % 17 == 0 else chance.randbytes(1_000)
                producer.produce("compacted", content, f"key-{value % KEYS}")
            assert producer.flush(TIMEOUT_S) == 0
        directory = partition_directory(broker, "compacted")
        deadline = time.monotonic() + TIMEOUT_S
        while clean_to(directory) < max(int(path.stem) for path in directory.glob("*.log")):
            assert time.monotonic() < deadline, "not everything was compacted"
            time.sleep(0.05)
    return directory


def clean_to(directory: Path) -> int:
    """Up to where the broker says that the partition is compacted."""
    checkpoint = directory.parent / "cleaner-offset-checkpoint"
    lines = checkpoint.read_text().splitlines()[2:] if checkpoint.exists() else []
    return next((int(line.split()[2]) for line in lines if line.startswith("compacted 0 ")), 0)


def unexplained(text: str) -> list[str]:
    """A batch that lost all its records is kept where it is the last of its producer, with its largest
    timestamp, and its segment's time index names it, Kafka's as ours. The tool looks for a record there."""
    return [
        line
        for line in complaints(text)
        if not (line.startswith(MISMATCH) and _names_batches_without_records(line.removeprefix(MISMATCH)))
    ]


def _names_batches_without_records(time_index: str) -> bool:
    """Whether the index says of every batch what its header says, and names some of which nothing is left."""
    log = memoryview(bytearray(Path(time_index).with_suffix(".log").read_bytes()))
    batches = {batch.last_offset: batch for batch in iterate_whole_batches(log)}
    base_offset = int(Path(time_index).stem)
    named = [
        (batches[base_offset + relative], timestamp)
        for timestamp, relative in TIME_ENTRY.iter_unpack(Path(time_index).read_bytes())
        if timestamp
    ]
    agree = all(batch.max_timestamp == timestamp for batch, timestamp in named)
    return agree and any(not batch.record_count for batch, _ in named)


def test_the_log_is_read_record_by_record(compacted: Path) -> None:
    text = dump(segment_files(compacted), "--deep-iteration", "--print-data-log")
    assert unexplained(text) == []
    offsets = [int(offset) for offset, _ in RECORD.findall(text)]
    assert offsets == sorted(set(offsets))
    assert len(offsets) < 10 * 400
    assert {key for _, key in RECORD.findall(text)} == {f"key-{number}" for number in range(KEYS)}
    assert "deleteHorizonMs: OptionalLong[" in text, "tombstones have their horizon"


@pytest.mark.parametrize("option", ["--index-sanity-check", "--verify-index-only"])
def test_the_indexes_agree_with_the_log(compacted: Path, option: str) -> None:
    files = [path for path in segment_files(compacted) if path.suffix in {".index", ".timeindex"}]
    text = dump(files, option)
    assert unexplained(text) == []
