"""Apache Kafka's own DumpLogSegments reads our files and has nothing to complain about.

With `--broker kafka` the files are Kafka's own, which shows that the expectations are fair.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.peers.kafka import DUMP_LOG_SEGMENTS, run_kafka_tool
from tests.support.broker import partition_directory, running
from tests.support.fixtures import chosen_broker, create_topic
from tests.support.workload import SEGMENT_BYTES, Stored, write_mixture

pytestmark = pytest.mark.java

SUFFIXES = {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}
COMPLAINT = re.compile(
    r"mismatch|out of order|not found in|invalid bytes|is followed by|isvalid: false"
    r"|error|exception|skipping|unknown file",
    re.IGNORECASE,
)
TOOLS_OWN_SLIP = re.compile(r"^\s*-1 is followed by \d+$")
"""The tool takes every segment's first offset but 0 for a gap; its heading above gaps matches nothing."""

BATCH = re.compile(r"^baseOffset: (\d+) lastOffset: (\d+) count: (\d+) ", re.MULTILINE)


@pytest.fixture(scope="module")
def written(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[Stored]]:
    """The directory of a partition with several segments, its broker stopped cleanly, and what it holds."""
    broker = chosen_broker(request.config, tmp_path_factory.mktemp("dump-log"))
    with running(broker):
        configs = {"segment.bytes": str(SEGMENT_BYTES), "index.interval.bytes": "1024"}
        create_topic(broker, "mixture", configs=configs)
        stored = write_mixture(broker.bootstrap, "mixture")
    return partition_directory(broker, "mixture"), stored


def segment_files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.iterdir() if path.suffix in SUFFIXES)


def dump(files: Iterable[Path], *options: str) -> str:
    done = run_kafka_tool(DUMP_LOG_SEGMENTS, "--files", ",".join(map(str, files)), *options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def complaints(text: str) -> list[str]:
    return [line for line in text.splitlines() if COMPLAINT.search(line) and not TOOLS_OWN_SLIP.match(line)]


def test_every_segment_is_read_record_by_record(written: tuple[Path, list[Stored]]) -> None:
    directory, stored = written
    files = segment_files(directory)
    logs = [path for path in files if path.suffix == ".log"]
    assert len(logs) > 2, "the log was meant to roll"
    text = dump(files, "--deep-iteration")
    assert complaints(text) == []
    next_offset = 0
    for base, last, count in (map(int, found) for found in BATCH.findall(text)):
        assert (base, last) == (next_offset, base + count - 1)
        next_offset = last + 1
    assert next_offset == len(stored)
    assert text.count("isvalid: true") == len(BATCH.findall(text))


@pytest.mark.parametrize("option", ["--index-sanity-check", "--verify-index-only"])
def test_the_indexes_agree_with_the_log(written: tuple[Path, list[Stored]], option: str) -> None:
    directory, _ = written
    files = [path for path in segment_files(directory) if path.suffix in {".index", ".timeindex"}]
    assert files
    text = dump(files, option)
    assert complaints(text) == []
    if option == "--index-sanity-check":
        assert text.count("passed sanity check.") == len(files)


def test_the_producers_are_in_the_snapshot(written: tuple[Path, list[Stored]]) -> None:
    directory, _ = written
    snapshots = [path for path in segment_files(directory) if path.suffix == ".snapshot"]
    assert snapshots
    text = dump(snapshots[-1:])
    assert complaints(text) == []
    producers = set(re.findall(r"producerId: (\d+)", text))
    assert len(producers) == 10, "five codecs, two rounds, an idempotent producer in each"


def test_damage_would_have_been_noticed(written: tuple[Path, list[Stored]], tmp_path: Path) -> None:
    directory, _ = written
    damaged = tmp_path / directory.name
    shutil.copytree(directory, damaged)
    first_log = min(damaged.glob("*.log"))
    data = bytearray(first_log.read_bytes())
    data[100] ^= 0xFF
    first_log.write_bytes(data)
    first_index = min(damaged.glob("*.index"))
    entries = bytearray(first_index.read_bytes())
    entries[3] ^= 0x01
    first_index.write_bytes(entries)
    assert complaints(dump([first_log], "--deep-iteration"))
    assert complaints(dump([first_index], "--verify-index-only"))
