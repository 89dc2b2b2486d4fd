"""Large appends that a thread writes: the state of the log meanwhile, and the order of its changes."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from barnabas.core.errors import (
    KafkaError,
    KafkaStorageError,
    OutOfOrderSequenceNumber,
    UnknownServerError,
)
from barnabas.core.scheduler import BoundedBackground
from barnabas.storage.log.log import Log
from barnabas.storage.log.parts.append import AppendInfo, Outcome
from barnabas.storage.log.retention import delete_old_segments
from barnabas.storage.log.threaded_append import append_elsewhere, when_written
from barnabas.storage.log.truncation import truncate_fully_and_start_at, truncate_to
from barnabas.storage.segment import sparse_index
from barnabas.storage.segment.segment import Segment
from barnabas.storage.segment.sparse_index import CorruptIndex
from tests.support.power_cut_files import PowerCutFiles
from tests.unit.storage.support import Bench, batch, end_transaction, offsets, produce, read_batches

T = TypeVar("T")


class Threads:
    """Background in two steps: `write` runs the submitted work, `deliver` delivers its outcome."""

    def __init__(self) -> None:
        self.submitted: list[tuple[Callable[[], object], Callable[[], None]]] = []
        self.done: list[Callable[[], None]] = []
        self.refuses = False

    def submit(
        self, work: Callable[[], T], done: Callable[[T], None], failed: Callable[[BaseException], None]
    ) -> None:
        if self.refuses:
            raise RuntimeError("can't start new thread")
        self.submitted.append((work, lambda: done(None)))  # type: ignore[arg-type]

    def write(self) -> None:
        for work, deliver in self.submitted:
            work()
            self.done.append(deliver)
        self.submitted.clear()

    def deliver(self) -> None:
        done, self.done = self.done, []
        for each in done:
            each()

    def finish(self) -> None:
        while self.submitted:
            self.write()
            self.deliver()


@pytest.fixture
def threads(bench: Bench) -> Threads:
    threads = Threads()
    bench.environment.background = threads
    return threads


class Appends:
    """Reported outcomes, in order."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.outcomes: list[Outcome] = []

    def begin(self, count: int = 1, *, epoch: int = 0, **fields: Any) -> None:
        def go_on() -> None:
            try:
                append_elsewhere(self.log, records, epoch, self.outcomes.append)
            except KafkaError as error:
                self.outcomes.append(error)

        records = batch([bytes(20)] * count, **fields)
        when_written(self.log, go_on)

    @property
    def first_offsets(self) -> list[int]:
        return [each.first_offset for each in self.outcomes if isinstance(each, AppendInfo)]


def test_readers_see_nothing_of_an_append_before_its_bytes_are_there(bench: Bench, threads: Threads) -> None:
    log = bench.open()
    produce(log, 2)
    appends = Appends(log)
    appends.begin(3)
    assert (log.log_end_offset, offsets(read_batches(log))) == (2, [(0, 1)])
    threads.write()
    assert (log.log_end_offset, offsets(read_batches(log)), appends.outcomes) == (2, [(0, 1)], [])
    threads.deliver()
    assert (log.log_end_offset, offsets(read_batches(log))) == (5, [(0, 1), (2, 4)])
    assert appends.first_offsets == [2]


def test_appends_wait_in_line(bench: Bench, threads: Threads) -> None:
    log = bench.open()
    appends = Appends(log)
    assert not log.is_being_written
    for count in (1, 2, 3):
        appends.begin(count)
    assert log.is_being_written, "a small one must not overtake"
    assert len(threads.submitted) == 1, "one write at a time"
    threads.finish()
    assert appends.first_offsets == [0, 1, 3]
    assert offsets(read_batches(log)) == [(0, 0), (1, 2), (3, 5)]
    assert not log.is_being_written


def test_sequences_are_checked_in_turn(bench: Bench, threads: Threads) -> None:
    log = bench.open()
    appends = Appends(log)
    for sequence in (0, 1, 1, 5):
        appends.begin(producer_id=7, producer_epoch=0, base_sequence=sequence)
    threads.finish()
    assert appends.first_offsets == [0, 1, 1], "the third is a retry of the second"
    assert isinstance(appends.outcomes[3], OutOfOrderSequenceNumber)
    assert log.log_end_offset == 2


CHANGES: dict[str, Callable[[Log], object]] = {
    "an append of the broker's own": lambda log: produce(log, 1, epoch=0),
    "a roll": lambda log: log.roll(),
    "a truncation": lambda log: truncate_to(log, 99),
    "a marker": lambda log: end_transaction(log, 1, commit=True),
    "a batch of a leader": lambda log: log.append_as_follower(memoryview(batch(base_offset=4))),
    "the end": lambda log: log.plan_close(),
}


@pytest.mark.parametrize("is_written", [True, False])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_every_change_of_the_log_settles_the_write_first(
    bench: Bench, threads: Threads, change: Callable[[Log], object], *, is_written: bool
) -> None:
    log = bench.open()
    appends = Appends(log)
    appends.begin(4)
    if is_written:
        threads.write()
    change(log)
    assert offsets(read_batches(log))[0] == (0, 3)
    assert appends.outcomes == [], "the producer gets its answer from the thread"
    end_offset = log.log_end_offset
    threads.finish()
    threads.deliver()
    assert appends.first_offsets == [0]
    assert log.log_end_offset == end_offset, "it counts once"


def test_a_truncation_takes_what_was_being_written_along(bench: Bench, threads: Threads) -> None:
    log = bench.open()
    produce(log, 2)
    appends = Appends(log)
    appends.begin(3)
    assert truncate_to(log, 1)
    threads.finish()
    produce(log, 1)
    assert log.log_end_offset == log.segments.active.read_next_offset()


def test_a_log_that_starts_over_takes_what_was_being_written_along(bench: Bench, threads: Threads) -> None:
    log = bench.open()
    appends = Appends(log)
    appends.begin(3)
    truncate_fully_and_start_at(log, 9)
    threads.finish()
    assert appends.first_offsets == [0]
    assert (log.log_start_offset, log.log_end_offset) == (9, 9)
    produce(log, 1)
    assert offsets(read_batches(log)) == [(9, 9)]


def test_retention_leaves_the_segment_that_is_being_written(bench: Bench, threads: Threads) -> None:
    log = bench.open()
    produce(log, 2)
    log.advance_high_watermark(2)
    bench.clock.advance(ms=8 * 24 * 3_600_000)
    appends = Appends(log)
    appends.begin(1)
    assert delete_old_segments(log) == 0
    threads.finish()
    assert offsets(read_batches(log))[-1] == (2, 2)


def test_a_failed_write_takes_the_directory_offline_and_leaves_nothing() -> None:
    files = PowerCutFiles()
    bench, threads = Bench("data", files), Threads()
    bench.environment.background = threads
    log = bench.open()
    produce(log, 1)
    appends = Appends(log)
    appends.begin(5)
    appends.begin(1)

    def fail(operation: str, path: str) -> None:
        if operation == "write" and path.endswith(".log"):
            raise OSError(errno.EIO, "the disk is gone")

    files.before = fail
    threads.finish()
    assert [type(each) for each in appends.outcomes] == [KafkaStorageError, KafkaStorageError]
    assert bench.log_directory.failure is not None
    assert log.log_end_offset == 1
    files.before = None
    assert bench.open().log_end_offset == 1


def test_a_short_write_is_a_failed_one() -> None:
    files = PowerCutFiles()
    bench, threads = Bench("data", files), Threads()
    bench.environment.background = threads
    log = bench.open()
    appends = Appends(log)
    appends.begin(5)
    files.write_limit_bytes = 70
    threads.finish()
    assert isinstance(appends.outcomes[0], KafkaStorageError)
    assert log.log_end_offset == 0
    assert bench.open().log_end_offset == 0


@pytest.mark.parametrize("seed", range(20))
def test_reported_and_synced_appends_survive_a_power_cut(seed: int) -> None:
    files = PowerCutFiles(seed)
    files.make_lasting_directory("data")
    bench, threads = Bench("data", files), Threads()
    bench.environment.background = threads
    log = bench.open()
    appends = Appends(log)
    appends.begin(3)
    threads.finish()
    log.flush()
    appends.begin(40)
    if seed % 2:
        threads.write()
    files.cut_power()
    again = bench.open()
    assert again.log_end_offset in {3, 43}
    assert offsets(read_batches(again))[0] == (0, 2)


def test_an_index_that_cannot_be_written_is_a_failed_write_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse_index, "TAIL_BYTES_MAX", 8)
    files = PowerCutFiles()
    bench, threads = Bench("data", files, index_interval_bytes=1), Threads()
    bench.environment.background = threads
    log = bench.open()
    produce(log, 1)
    appends = Appends(log)
    appends.begin(5)
    appends.begin(1)

    def fail(operation: str, path: str) -> None:
        if operation == "write" and path.endswith(".index"):
            raise OSError(errno.ENOSPC, "No space left on device")

    files.before = fail
    threads.finish()
    assert [type(each) for each in appends.outcomes] == [KafkaStorageError, KafkaStorageError]
    assert bench.log_directory.failure is not None
    files.before = None
    assert bench.open().log_end_offset == 1


def test_every_error_after_the_write_is_reported(
    bench: Bench, threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = bench.open()
    appends = Appends(log)
    appends.begin(1)
    appends.begin(2)

    def unforeseen(*_: object) -> None:
        raise CorruptIndex("it contradicts itself")

    monkeypatch.setattr(Segment, "appended", unforeseen)
    threads.write()
    log.settle()
    threads.deliver()
    monkeypatch.undo()
    threads.finish()
    assert isinstance(appends.outcomes[0], UnknownServerError)
    assert appends.first_offsets == [0], "the queued append comes first"


def report(_: Outcome) -> None:
    raise ValueError("the answer cannot be made")


def test_a_duplicate_is_reported_once_and_not_refused(bench: Bench, threads: Threads) -> None:
    log = bench.open()
    fields: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    produce(log, 1, **fields)
    append_elsewhere(log, batch([bytes(20)], **fields), 0, report)
    assert not log.is_being_written


def test_a_report_that_fails_holds_up_no_other_append(bench: Bench, threads: Threads) -> None:
    log = bench.open()
    append_elsewhere(log, batch([b"first"]), 0, report)
    appends = Appends(log)
    appends.begin(1)
    threads.finish()
    assert appends.first_offsets == [1]
    assert not log.is_being_written


def test_a_log_that_was_closed_meanwhile_refuses(bench: Bench, threads: Threads) -> None:
    log = bench.open()
    appends = Appends(log)
    appends.begin(1)
    log.release()
    threads.finish()
    assert isinstance(appends.outcomes[0], KafkaStorageError)


def test_without_a_thread_the_loop_writes(bench: Bench, threads: Threads) -> None:
    log = bench.open()
    threads.refuses = True
    appends = Appends(log)
    appends.begin(2)
    assert appends.first_offsets == [0]
    assert log.log_end_offset == 2


def test_a_long_line_is_no_deep_stack(bench: Bench, threads: Threads) -> None:
    """Without threads each that waited is written at once, and so is the next."""
    log = bench.open()
    appends = Appends(log)
    for _ in range(1_000):
        appends.begin(1)
    threads.write()
    threads.refuses = True
    threads.deliver()
    assert appends.first_offsets == list(range(1_000))
    assert not log.is_being_written


def test_many_works_without_a_thread_are_no_deep_stack(threads: Threads) -> None:
    background = BoundedBackground(threads, 1)
    failed: list[BaseException] = []
    done: list[object] = []
    for _ in range(1_001):
        background.submit(lambda: None, done.append, failed.append)
    threads.write()
    threads.refuses = True
    threads.deliver()
    assert (len(done), len(failed)) == (1, 1_000)
    threads.refuses = False
    background.submit(lambda: None, done.append, failed.append)
    threads.finish()
    assert len(done) == 2


def test_work_is_reported_as_done_even_if_the_next_one_fails(threads: Threads) -> None:
    background = BoundedBackground(threads, 1)
    done: list[object] = []

    def failed(error: BaseException) -> None:
        raise error

    background.submit(lambda: None, done.append, failed)
    background.submit(lambda: None, done.append, failed)
    threads.write()
    threads.refuses = True
    with pytest.raises(RuntimeError, match="can't start new thread"):
        threads.deliver()
    assert len(done) == 1


def test_a_directory_has_few_threads(threads: Threads) -> None:
    background = BoundedBackground(threads, 2)
    done: list[int] = []
    for number in range(5):
        background.submit(lambda: None, lambda _, number=number: done.append(number), lambda _: None)  # type: ignore[misc]
    assert len(threads.submitted) == 2
    threads.finish()
    assert done == [0, 1, 2, 3, 4]
