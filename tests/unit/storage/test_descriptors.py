"""Shortage of file descriptors at every open: the request is refused, and a retry succeeds.

Nothing is lost by it, nothing is there twice, and no directory goes offline that could go on.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from barnabas.core.errors import KafkaStorageError
from barnabas.storage.files.open_files import OpenFiles
from barnabas.storage.log.aborted_transactions import aborted_transactions
from barnabas.storage.log.log import Log
from barnabas.storage.log_manager import LogManager
from tests.support.power_cut_files import PowerCutFiles
from tests.unit.storage.support import Bench, batch, end_transaction, produce, read_batches
from tests.unit.storage.test_log_manager import Broker, partition

ZERO, ONE = partition(0), partition(1)
MOST = 16
NEEDS_DESCRIPTOR = frozenset({"open", "list", "sync_directory"})


class Shortage:
    """Refuses one descriptor: the `number`th that is asked for once it is armed."""

    def __init__(self, files: PowerCutFiles) -> None:
        self.left = -1
        files.before = self

    def __call__(self, operation: str, path: str) -> None:
        if operation in NEEDS_DESCRIPTOR and self.left >= 0:
            self.left -= 1
            if self.left < 0:
                raise OSError(errno.EMFILE, "Too many open files", path)


class Story:
    """A broker with two logs, driven step by step; a refused step is repeated."""

    def __init__(self) -> None:
        self.files = PowerCutFiles()
        self.shortage = Shortage(self.files)
        self.broker = Broker("/disk", files=self.files, segment_bytes=600, index_interval_bytes=0)
        self.manager = self.broker.start()
        self.sequence = 0
        self.refusals = 0

    def steps(self) -> Iterator[Callable[[], object]]:
        manager = self.manager
        yield lambda: manager.get_or_create(ZERO)
        yield lambda: manager.get_or_create(ONE)
        for number in range(8):
            yield self.write
            if number % 3 == 2:
                yield self.abort
        yield manager.maintenance.flush_dirty_logs
        yield lambda: self.log.read(0, 100, upper_offset=self.log.log_end_offset)
        yield lambda: aborted_transactions(self.log, 0, self.log.log_end_offset)
        yield lambda: manager.truncate_to({ZERO: 9})
        yield self.write
        yield self.raise_start
        yield lambda: produce(manager.get_or_create(ONE))
        yield lambda: manager.delete(ONE)
        yield lambda: produce(manager.get_or_create(ONE))
        yield self.write
        yield self.abort
        yield manager.maintenance.checkpoint_recovery_points
        yield manager.maintenance.apply_retention

    @property
    def log(self) -> Log:
        found = self.manager.get(ZERO)
        assert found is not None
        return found

    def write(self) -> None:
        produce(self.log, 2, epoch=self.log.log_end_offset // 7, producer_id=9, **self.transactional())

    def abort(self) -> None:
        end_transaction(self.log, 9, commit=False, epoch=self.log.log_end_offset // 7)

    def transactional(self) -> dict[str, int]:
        entries = [entry for entry in self.log.active_producers() if entry.producer_id == 9]
        sequence = entries[0].last_sequence + 1 if entries else 0
        return {"producer_epoch": 0, "base_sequence": sequence, "is_transactional": True}

    def raise_start(self) -> None:
        self.log.advance_high_watermark(self.log.log_end_offset)
        self.log.maybe_increment_log_start_offset(5, "test")

    def tell(self) -> None:
        for step in self.steps():
            while True:
                try:
                    step()
                    break
                except KafkaStorageError:
                    self.refusals += 1
                    assert self.refusals < 3, "a refusal that does not pass"
            self.broker.clock.advance(1_000)
            self.broker.scheduler.run_due()


def facts(manager: LogManager) -> list[object]:
    found: list[object] = []
    for log in sorted(manager.logs(), key=lambda log: log.topic_partition):
        log.advance_high_watermark(log.log_end_offset)
        found += (
            [bytes(batch.view()) for batch in read_batches(log)],
            (log.log_start_offset, log.log_end_offset, log.producers.first_unstable_offset),
            sorted(map(repr, log.active_producers())),
            aborted_transactions(log, log.log_start_offset, log.log_end_offset),
            log.leader_epochs.entries,
        )
    return found


def untroubled() -> list[object]:
    story = Story()
    story.tell()
    return facts(story.manager)


EXPECTED = untroubled()


@pytest.mark.parametrize("number", range(110))
def test_a_refused_descriptor_is_a_refused_request(number: int) -> None:
    story = Story()
    story.shortage.left = number
    story.tell()
    story.shortage.left = -1
    assert story.broker.failed == []
    assert facts(story.manager) == EXPECTED
    story.manager.close()
    manager = story.broker.start()
    assert story.broker.failed == []
    assert manager.had_clean_shutdown == {"/disk": True}
    assert facts(manager) == EXPECTED


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("number", range(40))
def test_a_log_that_cannot_be_opened_at_once_is_opened_later(number: int, is_clean: bool) -> None:
    story = Story()
    story.tell()
    if is_clean:
        story.manager.close()
    else:
        story.log.flush()
        story.manager.maintenance.checkpoint_log_start_offsets()
        story.manager.abandon()
    story.shortage.left = number
    try:
        manager = story.broker.start()
    except KafkaStorageError:
        assert story.broker.failed == ["/disk"], "a start that cannot be told is no start"
        story.shortage.left = -1
        story.files.locks.clear()
        manager = story.broker.start()
    story.shortage.left = -1
    assert facts(manager) == EXPECTED


@pytest.mark.parametrize("is_leader", [True, False])
@pytest.mark.parametrize("number", range(3))
def test_the_first_append_after_a_start_is_refused_like_any_other(number: int, is_leader: bool) -> None:
    """It looks into the file for the age of the segment: nothing is open, and nothing is known of it yet."""
    files = PowerCutFiles()
    shortage = Shortage(files)
    broker = Broker("/disk", files=files)
    manager = broker.start()
    produce(manager.get_or_create(ZERO))
    manager.close()
    log = broker.start().get(ZERO)
    assert log is not None

    def append() -> None:
        if is_leader:
            produce(log)
        else:
            log.append_as_follower(batch(base_offset=1))

    shortage.left = number
    try:
        append()
    except KafkaStorageError:
        append()
    assert shortage.left < 0, "a descriptor was refused"
    assert (log.log_end_offset, broker.failed) == (2, [])


def test_segments_of_a_log_share_a_bounded_number_of_descriptors(tmp_path: Path) -> None:
    """A topic with small segments must not take the descriptors of all connections."""
    bench = Bench(str(tmp_path), segment_bytes=100)
    bench.environment.open_files = OpenFiles(MOST)
    log = bench.open()
    for _ in range(4 * MOST):
        produce(log)
    assert len(log.segments) == 4 * MOST
    assert open_logs(tmp_path) <= MOST

    assert len(read_batches(log)) == 4 * MOST
    assert open_logs(tmp_path) <= MOST

    work = log.plan_flush()
    assert work is not None
    assert sum(not isinstance(file, str) for file in work.data_files) <= MOST
    log.flush_completed(work())
    assert log.flush_state.recovery_point == log.log_end_offset

    del work
    log.close()
    assert open_logs(tmp_path) == 0
    assert len(read_batches(bench.open())) == 4 * MOST


def open_logs(directory: Path) -> int:
    """Files of segments below the directory that this process has open."""
    names = []
    for each in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            names.append(str(each.readlink()))
    return sum(name.startswith(str(directory)) and name.endswith(".log") for name in names)
