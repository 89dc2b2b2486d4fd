"""Choice of the next log, times and outcomes of runs: the cleaner inside the log manager."""

from __future__ import annotations

import errno
import mmap
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from barnabas.config.log_config import LogConfig
from barnabas.core.files import RealFiles
from barnabas.core.ids import TopicPartition
from barnabas.core.reporting.metrics import Metrics, render_prometheus
from barnabas.core.scheduler import InlineBackground
from barnabas.records.builder import build_batch
from barnabas.storage.cleaner import offset_map
from barnabas.storage.cleaner.cleanable import log_to_clean
from barnabas.storage.files.checkpoints import CLEANED_OFFSETS, read_offsets
from barnabas.storage.files.environment import Environment
from barnabas.storage.files.names import CLEANED, LOG
from barnabas.storage.log.log import Log
from barnabas.storage.log.retention import delete_old_segments
from barnabas.storage.log_manager import LogManager
from tests.support.manual_time import ManualClock, ManualScheduler
from tests.support.settings import broker_config, log_config
from tests.unit.storage.cleaner.support import pairs, put, settle
from tests.unit.storage.support import NOW_MS

COMPACTED = log_config(cleanup_policy=("compact",))
BACKOFF_MS = 15_000


class HeldBackground:
    """Keeps the work until the test runs it, so that the test decides what happens meanwhile."""

    def __init__(self) -> None:
        self.held: list[Callable[[], None]] = []

    def submit(self, work: Any, then: Any, failed: Any) -> None:
        self.held.append(lambda: InlineBackground().submit(work, then, failed))

    def step(self) -> bool:
        if not self.held:
            return False
        self.held.pop(0)()
        return True

    def run(self) -> None:
        while self.step():
            pass


class Broker:
    """A log manager with its cleaner, moved by hand."""

    def __init__(self, root: Path, background: Any = None, **settings: Any) -> None:
        self.root = root
        self.clock = ManualClock(NOW_MS)
        self.scheduler = ManualScheduler(self.clock)
        self.background = background or InlineBackground()
        self.metrics = Metrics()
        self.configs: dict[str, LogConfig] = {}
        self.settings = broker_config(log_dirs=root, log_cleaner_backoff_ms=BACKOFF_MS, **settings)
        self.manager = LogManager(
            self.settings,
            Environment(
                RealFiles(), self.clock, random.Random(7), self.scheduler, self.background, broker_config()
            ),
            lambda topic: self.configs.get(topic, COMPACTED),
            metrics=self.metrics,
        )
        self.manager.open()
        self.manager.start()

    def log(self, topic: str = "topic") -> Log:
        return self.manager.get_or_create(TopicPartition(topic, 0))

    def tick(self) -> None:
        self.clock.advance(BACKOFF_MS)
        self.scheduler.run_due()

    def checkpoint(self) -> dict[TopicPartition, int]:
        return read_offsets(RealFiles(), f"{self.root}/{CLEANED_OFFSETS}")

    def metric(self, name: str) -> float:
        lines = render_prometheus(self.metrics).splitlines()
        return float(next(line for line in lines if line.startswith(f"{name} ")).split()[1])


class RefusingBackground(InlineBackground):
    """Takes no work for a moment."""

    refusals = 0

    def submit(self, work: Any, then: Any, failed: Any) -> None:
        if self.refusals:
            self.refusals -= 1
            raise RuntimeError("can't start new thread")
        super().submit(work, then, failed)


def size_bytes(log: Log) -> int:
    return sum(segment.size_bytes for segment in log.segments)


def fill(log: Log, values: int = 3, key: str = "k") -> None:
    for number in range(values):
        put(log, (key, str(number)))
    settle(log)


@pytest.mark.parametrize("after", range(4))
def test_a_background_that_takes_no_work_for_a_moment_ends_the_run_and_not_compaction(
    tmp_path: Path, after: int
) -> None:
    background = RefusingBackground()
    broker = Broker(tmp_path, background)
    log = broker.log()
    fill(log)
    submits = 0
    submit = background.submit

    def refuse_one(work: Any, then: Any, failed: Any) -> None:
        nonlocal submits
        background.refusals = 1 if submits == after else 0
        submits += 1
        submit(work, then, failed)

    background.submit = refuse_one  # type: ignore[method-assign]
    broker.tick()
    assert not broker.manager.cleaner.is_cleaning(log), "retention leaves out a log that is being compacted"
    broker.tick()
    assert pairs(log) == [(2, "k", "2")]


def test_a_dirty_log_is_compacted_and_checkpointed(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    log = broker.log()
    fill(log)
    before_bytes = size_bytes(log)
    broker.tick()
    assert pairs(log) == [(2, "k", "2")]
    assert broker.checkpoint() == {log.topic_partition: 3}
    assert (tmp_path / CLEANED_OFFSETS).read_text() == "0\n1\ntopic 0 3\n"
    assert broker.metric("kafka_log_cleaner_runs_total") == 1
    assert broker.metric("kafka_log_cleaner_cleaned_bytes_total") == before_bytes - size_bytes(log) > 0
    written_bytes = broker.metric("kafka_log_cleaner_written_bytes_total")
    assert broker.metric("kafka_log_cleaner_read_bytes_total") > written_bytes > 0
    assert broker.metric("kafka_log_cleaner_running") == 0
    assert 0 < broker.metric("kafka_log_cleaner_map_utilization_percent") <= 100
    assert broker.metric("kafka_log_cleaner_time_since_last_run_ms") == 0
    broker.tick()
    assert broker.metric("kafka_log_cleaner_runs_total") == 1, "nothing is dirty"
    assert broker.metric("kafka_log_cleaner_time_since_last_run_ms") == BACKOFF_MS


def test_a_restart_goes_on_from_the_checkpoint(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    fill(broker.log())
    broker.tick()
    broker.manager.close()
    again = Broker(tmp_path)
    again.log().advance_high_watermark(again.log().log_end_offset)
    assert again.manager.cleaner.clean_to(TopicPartition("topic", 0)) == 3
    again.tick()
    assert again.metric("kafka_log_cleaner_runs_total") == 0


def test_a_topic_that_is_not_compacted_is_left_alone(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.configs["plain"] = log_config()
    fill(broker.log("plain"))
    broker.tick()
    assert len(pairs(broker.log("plain"))) == 3


def test_a_disabled_cleaner_does_nothing(tmp_path: Path) -> None:
    broker = Broker(tmp_path, log_cleaner_enable=False)
    fill(broker.log())
    broker.tick()
    assert len(pairs(broker.log())) == 3


def test_a_log_must_be_dirty_enough(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    log = broker.log()
    for number in range(10):
        put(log, (f"key-{number}", "v" * 100))
    settle(log)
    broker.tick()
    put(log, ("key-0", "new"))
    settle(log)
    broker.tick()
    assert len(pairs(log)) == 11
    assert 0 < broker.metric("kafka_log_cleaner_max_dirty_percent") < 50
    broker.manager.update_config("topic", replace(COMPACTED, min_cleanable_dirty_ratio=0.01))
    broker.tick()
    assert len(pairs(log)) == 10


def test_the_filthiest_log_comes_first(tmp_path: Path) -> None:
    background = HeldBackground()
    broker = Broker(tmp_path, background)
    for topic, dirty in (("little", 1), ("much", 5), ("some", 3)):
        log = broker.log(topic)
        log.flush = lambda: None  # type: ignore[method-assign]
        for number in range(4):
            put(log, (f"clean-{number}", "v" * 100))
        settle(log)
        broker.manager.cleaner.load({log.topic_partition: log.log_end_offset})
        for number in range(dirty):
            put(log, (f"dirty-{number}", "v" * 1000))
        settle(log)
    background.run()
    order = []
    broker.tick()
    while background.held:
        running = [
            log.topic_partition.topic
            for log in broker.manager.logs()
            if broker.manager.cleaner.is_cleaning(log)
        ]
        assert len(running) <= 1, "there is one place"
        if running and running[-1] not in order:
            order += running
        background.step()
    assert order == ["much", "some", "little"]


def test_young_records_are_left_for_min_compaction_lag(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.configs["topic"] = replace(COMPACTED, min_compaction_lag_ms=60_000)
    log = broker.log()
    fill(log)
    put(log, ("k", "young"), timestamp=NOW_MS + 40_000)
    settle(log)
    broker.tick()
    assert len(pairs(log)) == 4
    broker.clock.advance(46_000)
    broker.tick()
    assert [value for _, _, value in pairs(log)] == ["2", "young"]


def test_old_records_are_compacted_at_any_dirty_ratio(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.configs["topic"] = replace(COMPACTED, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=60_000)
    log = broker.log()
    fill(log)
    broker.tick()
    assert len(pairs(log)) == 3
    broker.clock.advance(60_000)
    broker.tick()
    assert len(pairs(log)) == 1


def test_retention_deletes_old_segments_of_a_compacted_topic_that_asks_for_both(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.configs["topic"] = log_config(cleanup_policy=("compact", "delete"), retention_ms=60_000)
    log = broker.log()
    fill(log, key="old")
    broker.tick()
    assert len(pairs(log)) == 1
    broker.clock.advance(60_000)
    put(log, ("new", "1"), timestamp=broker.clock.now_ms())
    log.advance_high_watermark(log.log_end_offset)
    broker.manager.maintenance.apply_retention()
    assert [key for _, key, _ in pairs(log)] == ["new"]
    assert log.log_start_offset == 3


def held_run(tmp_path: Path) -> tuple[Broker, HeldBackground, Log]:
    """A run whose first slice is under way."""
    background = HeldBackground()
    broker = Broker(tmp_path, background)
    log = broker.log()
    fill(log)
    background.run()
    broker.tick()
    assert broker.manager.cleaner.is_cleaning(log)
    return broker, background, log


def names(log: Log) -> list[str]:
    return sorted(path.name for path in Path(log.directory).iterdir() if path.name.endswith(CLEANED))


@pytest.mark.parametrize("slices", range(4))
def test_a_truncated_log_is_left_as_it_is(tmp_path: Path, slices: int) -> None:
    broker, background, log = held_run(tmp_path)
    for _ in range(slices):
        background.step()
    was_swapped = len(pairs(log)) == 1
    broker.manager.truncate_to({log.topic_partition: 2})
    background.run()
    assert not broker.manager.cleaner.is_cleaning(log)
    assert [offset for offset, _, _ in pairs(log)] == ([] if was_swapped else [0, 1])
    assert log.log_end_offset == 2
    assert broker.checkpoint() == {}
    assert broker.metric("kafka_log_cleaner_uncleanable_partitions") == 0
    assert names(log) == []


def test_appends_after_a_truncation_are_dirty(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    log = broker.log()
    fill(log)
    broker.tick()
    broker.manager.truncate_to({log.topic_partition: 1})
    assert broker.checkpoint() == {log.topic_partition: 1}
    fill(log, 5)
    broker.tick()
    assert pairs(log) == [(5, "k", "4")]


@pytest.mark.parametrize("slices", range(4))
def test_a_deleted_log_takes_its_run_along(tmp_path: Path, slices: int) -> None:
    broker, background, log = held_run(tmp_path)
    for _ in range(slices):
        background.step()
    broker.manager.delete(log.topic_partition)
    fresh = broker.log()
    put(fresh, ("other", "life"))
    background.run()
    broker.clock.advance(log.config.file_delete_delay_ms)
    broker.scheduler.run_due()
    background.run()
    assert broker.manager.directories[0].failure is None
    assert pairs(fresh) == [(0, "other", "life")]
    assert broker.checkpoint() == {}
    assert not Path(log.directory).exists()
    assert not broker.manager.cleaner.is_cleaning(log)


def test_a_change_of_its_settings_ends_a_run_and_the_next_obeys_them(tmp_path: Path) -> None:
    broker, background, log = held_run(tmp_path)
    broker.manager.update_config("topic", log_config())
    background.run()
    assert len(pairs(log)) == 3
    broker.manager.update_config("topic", COMPACTED)
    broker.tick()
    background.run()
    assert len(pairs(log)) == 1


def test_retention_waits_for_a_run(tmp_path: Path) -> None:
    broker, background, log = held_run(tmp_path)
    log.maybe_increment_log_start_offset(3, "test")
    broker.manager.maintenance.apply_retention()
    assert len(log.segments) == 2
    background.run()
    assert len(log.segments) == 1, "the cleaner has made up for it"


@pytest.mark.parametrize("slices", range(5))
def test_a_run_aborts_when_its_segments_are_deleted(tmp_path: Path, slices: int) -> None:
    background = HeldBackground()
    broker = Broker(tmp_path, background)
    log = broker.log()
    fill(log, 2)
    fill(log, 1)
    log.segments.release_idle()
    background.run()
    broker.tick()
    for _ in range(slices):
        background.step()
    log.maybe_increment_log_start_offset(3, "test")
    delete_old_segments(log)
    background.run()
    assert [segment.base_offset for segment in log.segments] == [3]
    assert broker.manager.directories[0].failure is None
    assert names(log) == []
    assert broker.metric("kafka_log_cleaner_runs_total") == 0
    assert broker.metric("kafka_log_cleaner_uncleanable_partitions") == 0


def test_a_stopped_cleaner_gives_up_its_run(tmp_path: Path) -> None:
    broker, background, log = held_run(tmp_path)
    broker.manager.close()
    background.run()
    assert not broker.manager.cleaner.is_cleaning(log)
    again = Broker(tmp_path)
    assert len(pairs(again.log())) == 3
    assert names(again.log()) == []


@pytest.mark.parametrize("position", [7, 70, 100])
def test_a_damaged_log_is_reported_and_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, position: int
) -> None:
    broker = Broker(tmp_path)
    damaged, sound = broker.log("damaged"), broker.log("sound")
    fill(damaged)
    fill(sound)
    path = Path(damaged.segments.first.path(LOG))
    content = bytearray(path.read_bytes())
    content[position] ^= 0xFF
    path.write_bytes(content)
    for _ in range(3):
        broker.tick()
    assert broker.metric("kafka_log_cleaner_uncleanable_partitions") == 1
    assert caplog.text.count("damaged-0: the log is uncleanable") == 1
    assert len(pairs(sound)) == 1
    broker.manager.delete(damaged.topic_partition)
    assert broker.metric("kafka_log_cleaner_uncleanable_partitions") == 0


def test_a_disk_error_takes_the_directory_offline(tmp_path: Path) -> None:
    broker, background, log = held_run(tmp_path)

    def fail(*_: object, **__: object) -> None:
        raise OSError("no space left on device")

    background.step()
    log.segments.first.file.__class__.read_at, original = fail, log.segments.first.file.__class__.read_at  # type: ignore[method-assign, assignment]
    try:
        background.run()
    finally:
        log.segments.first.file.__class__.read_at = original  # type: ignore[method-assign]
    assert broker.manager.directories[0].failure is not None


def test_reading_and_writing_are_throttled(tmp_path: Path) -> None:
    broker = Broker(tmp_path, log_cleaner_io_max_bytes_per_second=100.0)
    log = broker.log()
    fill(log)
    broker.tick()
    assert broker.manager.cleaner.is_cleaning(log)
    before_bytes = log.segments.size_bytes
    began_ms = broker.clock.monotonic_ms()
    while broker.manager.cleaner.is_cleaning(log):
        broker.clock.advance(100)
        broker.scheduler.run_due()
    assert len(pairs(log)) == 1
    assert broker.clock.monotonic_ms() - began_ms >= 1_000 * 2 * before_bytes / 100


def test_settings_may_change_while_it_runs(tmp_path: Path) -> None:
    broker = Broker(tmp_path, log_cleaner_threads=0)
    fill(broker.log())
    broker.tick()
    assert len(pairs(broker.log())) == 3
    broker.settings.put({**broker.settings.values, "log.cleaner.threads": 1, "log.cleaner.backoff.ms": 5})
    broker.manager.cleaner.reconfigure()
    broker.clock.advance(5)
    broker.scheduler.run_due()
    assert len(pairs(broker.log())) == 1


def test_a_checkpoint_beyond_the_log_means_to_start_over(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    log = broker.log()
    fill(log)
    assert log_to_clean(log, 4, NOW_MS).first_dirty_offset == 0
    assert log_to_clean(log, 2, NOW_MS).first_dirty_offset == 2
    log.maybe_increment_log_start_offset(2, "test")
    assert log_to_clean(log, 1, NOW_MS).first_dirty_offset == 2


def test_a_new_log_does_not_inherit_the_checkpoint_of_a_namesake(tmp_path: Path) -> None:
    (tmp_path / CLEANED_OFFSETS).write_text("0\n1\ntopic 0 2\n")
    broker = Broker(tmp_path)
    fill(broker.log())
    broker.tick()
    assert len(pairs(broker.log())) == 1


class Memory:
    """The `mmap` module of a machine with so much memory to give."""

    def __init__(self, left_bytes: int) -> None:
        self.left_bytes = left_bytes

    def mmap(self, fileno: int, length: int) -> mmap.mmap:
        if length > self.left_bytes:
            raise OSError(errno.ENOMEM, "Cannot allocate memory")
        return mmap.mmap(fileno, length)


def test_a_run_takes_the_memory_that_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Want of memory is no failure of a disk: the map is smaller, or the run comes later."""
    broker = Broker(tmp_path)
    log = broker.log()
    fill(log)
    far = build_batch([(b"k", b"far", (), NOW_MS)], base_offset=9_000_000, leader_epoch=0)
    log.append_as_follower(far)
    settle(log)
    memory = Memory(1 << 10)
    monkeypatch.setattr(offset_map, "mmap", memory)
    broker.tick()
    assert log.log_directory.failure is None
    assert broker.metric("kafka_log_cleaner_uncleanable_partitions") == 0
    assert len(pairs(log)) == 4
    memory.left_bytes = 1 << 20
    broker.tick()
    assert pairs(log) == [(9_000_000, "k", "far")]
