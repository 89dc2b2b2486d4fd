"""All logs of a broker: where they live, how they start, end and go."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from barnabas.core.errors import InconsistentTopicId, InvalidTopicException, KafkaStorageError
from barnabas.core.files import Files, RealFiles
from barnabas.core.ids import TopicPartition, Uuid
from barnabas.core.reporting.metrics import Metrics
from barnabas.core.scheduler import InlineBackground
from barnabas.storage import log_maintenance
from barnabas.storage.files.checkpoints import (
    CLEANED_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
)
from barnabas.storage.files.environment import Environment, LogDirectory
from barnabas.storage.log.log import Log
from barnabas.storage.log.parts.append import Outcome
from barnabas.storage.log.retention import delete_old_segments
from barnabas.storage.log.threaded_append import append_elsewhere
from barnabas.storage.log_maintenance import SEGMENTS_DELETED_PER_STEP
from barnabas.storage.log_manager import DuplicateLog, LogManager
from tests.support.background import ManualBackground
from tests.support.manual_time import ManualClock, ManualScheduler
from tests.support.power_cut_files import PowerCutFiles
from tests.support.settings import broker_config, log_config
from tests.unit.storage.support import NOW_MS, batch, offsets, produce, read_batches

T = TypeVar("T")


class Broker:
    """A log manager that can be started again and again on the same directories."""

    def __init__(self, *directories: str, files: Files | None = None, **config: object) -> None:
        self.directories = directories
        self.files: Files = files or RealFiles()
        self.config = log_config(**config)
        self.clock = ManualClock(NOW_MS)
        self.failed: list[str] = []
        self.flushed: list[Log] = []
        self.unusable: dict[str, OSError] = {}

    def start(self) -> LogManager:
        self.scheduler = ManualScheduler(self.clock)
        environment = Environment(
            self.files, self.clock, random.Random(1), self.scheduler, InlineBackground(), broker_config()
        )
        manager = LogManager(
            broker_config(
                log_dirs=",".join(self.directories),
                log_initial_task_delay_ms=0,
                log_flush_scheduler_interval_ms=3_000,
            ),
            environment,
            lambda _: self.config,
            metrics=Metrics(),
        )
        manager.on_flushed.append(self.flushed.append)
        manager.on_directory_failed.append(self.note_failure)
        manager.open(self.unusable)
        manager.start()
        return manager

    def note_failure(self, directory: LogDirectory) -> None:
        self.failed.append(directory.path)


def partition(number: int, topic: str = "topic") -> TopicPartition:
    return TopicPartition(topic, number)


def test_new_logs_go_where_the_fewest_are(tmp_path: Path) -> None:
    manager = Broker(str(tmp_path / "a"), str(tmp_path / "b")).start()
    homes = [manager.get_or_create(partition(n)).log_directory.path for n in range(4)]
    assert sorted(homes) == sorted([str(tmp_path / "a"), str(tmp_path / "b")] * 2)
    wanted = manager.get_or_create(partition(9), directory=str(tmp_path / "b"))
    assert wanted.directory == f"{tmp_path}/b/topic-9"
    assert manager.get_or_create(partition(9)) is wanted
    manager.abandon()


def test_a_log_that_was_opened_before_its_settings_were_known_gets_them(tmp_path: Path) -> None:
    broker = Broker(str(tmp_path), retention_ms=1_000)
    manager = broker.start()
    produce(manager.get_or_create(partition(0)), 1)
    manager.close()
    manager = broker.start()
    broker.config = log_config(retention_ms=-1)
    log = manager.get_or_create(partition(0))
    broker.clock.advance(ms=1_000_000)
    log.advance_high_watermark(1)
    broker.scheduler.run_due()
    assert log.log_start_offset == 0
    manager.abandon()


def test_whether_retention_by_age_would_delete_something(tmp_path: Path) -> None:
    broker = Broker(str(tmp_path))
    manager = broker.start()
    produce(manager.get_or_create(partition(0, "old")), 1)
    manager.get_or_create(partition(0, "empty"))
    broker.clock.advance(ms=10_000_000)
    assert manager.would_delete("old", 1_000)
    assert not manager.would_delete("old", 1_000_000_000)
    assert not manager.would_delete("empty", 1_000)
    manager.abandon()


@pytest.mark.parametrize("name", ["", "..", "a/b", "x" * 250])
def test_a_log_stays_inside_its_directory(tmp_path: Path, name: str) -> None:
    manager = Broker(str(tmp_path)).start()
    with pytest.raises(InvalidTopicException):
        manager.get_or_create(partition(0, name))
    manager.abandon()


def test_a_clean_shutdown_needs_no_recovery(tmp_path: Path) -> None:
    broker = Broker(str(tmp_path))
    manager = broker.start()
    log = manager.get_or_create(partition(0))
    produce(log, 5)
    log.advance_high_watermark(5)
    log.maybe_increment_log_start_offset(2, "test")
    manager.close(broker_epoch=17)
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    assert (tmp_path / RECOVERY_POINTS).read_text() == "0\n1\ntopic 0 5\n"
    assert (tmp_path / HIGH_WATERMARKS).read_text() == "0\n1\ntopic 0 5\n"
    assert (tmp_path / LOG_START_OFFSETS).read_text() == "0\n1\ntopic 0 2\n"
    manager = broker.start()
    assert manager.had_clean_shutdown == {str(tmp_path): True}
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    again = manager.get(partition(0))
    assert again is not None
    assert (again.log_start_offset, again.log_end_offset, again.flush_state.recovery_point) == (2, 5, 5)
    assert manager.high_watermarks() == {partition(0): 5}
    manager.abandon()


def test_an_unclean_shutdown_is_recovered_in_threads(tmp_path: Path) -> None:
    broker = Broker(str(tmp_path), segment_bytes=500)
    manager = broker.start()
    expected = {}
    for number in range(8):
        log = manager.get_or_create(partition(number))
        for _ in range(10):
            produce(log, number + 1)
        expected[number] = offsets(read_batches(log))
    manager.maintenance.checkpoint_recovery_points()
    manager.abandon()
    manager = broker.start()
    assert manager.had_clean_shutdown == {str(tmp_path): False}
    assert {n: offsets(read_batches(manager.get(partition(n)))) for n in range(8)} == expected  # type: ignore[arg-type]
    manager.abandon()


def test_a_directory_is_used_by_one_broker_at_a_time() -> None:
    files = PowerCutFiles()
    manager = Broker("/disk", files=files).start()
    with pytest.raises(KafkaStorageError, match="already uses"):
        Broker("/disk", files=files).start()
    manager.close()
    Broker("/disk", files=files).start()


def test_foreign_directories_are_left_alone(tmp_path: Path) -> None:
    for name in ("__cluster_metadata-0", "lost+found", "notes", "topic-0.0123abc-future"):
        (tmp_path / name).mkdir()
    manager = Broker(str(tmp_path)).start()
    assert list(manager.logs()) == []
    manager.abandon()
    assert (tmp_path / "__cluster_metadata-0").exists()


def test_a_deleted_log_is_gone_by_name_at_once_and_from_disk_later(tmp_path: Path) -> None:
    broker = Broker(str(tmp_path), file_delete_delay_ms=1_000)
    manager = broker.start()
    log = manager.get_or_create(partition(0))
    produce(log, 5)
    data = log.read(0, 1 << 20, upper_offset=5)
    manager.delete(partition(0))
    assert manager.get(partition(0)) is None
    (renamed,) = [p.name for p in tmp_path.iterdir() if p.name.startswith("topic")]
    assert renamed.endswith("-delete")
    assert manager.get_or_create(partition(0)).log_end_offset == 0, "the name is free again"
    broker.clock.advance(1_000)
    broker.scheduler.run_due()
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith("topic")] == ["topic-0"]
    assert not isinstance(data.records, bytes)
    assert data.records.read()
    with pytest.raises(KafkaStorageError):
        produce(log)
    manager.abandon()


def test_a_late_reader_of_a_deleted_log_does_no_harm(tmp_path: Path) -> None:
    broker = Broker(str(tmp_path), file_delete_delay_ms=0)
    manager = broker.start()
    log = manager.get_or_create(partition(0))
    produce(log, 5)
    manager.delete(partition(0))
    broker.scheduler.run_due()
    with pytest.raises(KafkaStorageError):
        log.read(0, 100, upper_offset=5)
    log.write_epochs_soon()
    assert broker.failed == []
    manager.abandon()


def test_the_largest_producer_id_is_known(tmp_path: Path) -> None:
    manager = Broker(str(tmp_path)).start()
    assert manager.largest_producer_id() == -1
    for number in range(3):
        log = manager.get_or_create(partition(number))
        produce(log, producer_id=10 * number, producer_epoch=0, base_sequence=0)
    assert manager.largest_producer_id() == 20
    manager.abandon()


def test_a_deletion_that_a_crash_interrupted_is_finished(tmp_path: Path) -> None:
    broker = Broker(str(tmp_path))
    manager = broker.start()
    manager.get_or_create(partition(0))
    manager.delete(partition(0))
    manager.abandon()
    manager = broker.start()
    broker.scheduler.run_due()
    assert [p.name for p in tmp_path.iterdir() if p.is_dir()] == []
    assert manager.get(partition(0)) is None
    manager.abandon()


def test_a_stray_log_is_kept_under_another_name(tmp_path: Path) -> None:
    manager = Broker(str(tmp_path)).start()
    manager.get_or_create(partition(0))
    manager.set_aside_stray(partition(0))
    (left,) = [p.name for p in tmp_path.iterdir() if p.is_dir()]
    assert left.endswith("-stray")
    manager.abandon()


def test_a_failed_directory_takes_only_its_own_logs_with_it() -> None:
    files = PowerCutFiles()
    broker = Broker("/a", "/b", files=files)
    manager = broker.start()
    on_a = manager.get_or_create(partition(0), directory="/a")
    on_b = manager.get_or_create(partition(1), directory="/b")

    def before(operation: str, path: str) -> None:
        if operation == "write" and path.startswith("/a/"):
            raise OSError(5, "Input/output error")

    files.before = before
    with pytest.raises(KafkaStorageError):
        produce(on_a)
    assert broker.failed == ["/a"]
    assert manager.get(partition(0)) is None
    assert [directory.path for directory in manager.offline_directories] == ["/a"]
    assert produce(on_b).first_offset == 0
    assert manager.get_or_create(partition(2)).log_directory.path == "/b"
    with pytest.raises(KafkaStorageError):
        manager.get_or_create(partition(3), directory="/a")
    manager.close()
    files.before = None
    assert not files.exists("/a/.kafka_cleanshutdown")
    assert files.exists("/b/.kafka_cleanshutdown")


def test_a_directory_that_fails_at_the_last_write_was_not_shut_down_cleanly() -> None:
    """A large append is on its way to the disk when the broker stops, and does not arrive."""
    files = PowerCutFiles()
    broker = Broker("/a", files=files)
    manager = broker.start()
    log, other = manager.get_or_create(partition(0)), manager.get_or_create(partition(1))
    produce(other, 3)
    other.advance_high_watermark(3)
    other.maybe_increment_log_start_offset(2, "test")
    manager.maintenance.checkpoint_log_start_offsets()
    log.environment.background = ManualBackground()
    outcomes: list[Outcome] = []
    append_elsewhere(log, batch(), 0, outcomes.append)

    def fail(operation: str, path: str) -> None:
        if operation == "write" and path.endswith("topic-0/00000000000000000000.log"):
            raise OSError(errno.EIO, "Input/output error", path)

    files.before = fail
    manager.close()
    files.before = None
    assert broker.failed == ["/a"]
    manager = broker.start()
    assert manager.had_clean_shutdown == {"/a": False}
    again = manager.get(partition(1))
    assert again is not None
    assert (again.log_start_offset, again.log_end_offset) == (2, 3)


def test_a_log_in_an_offline_directory_is_not_created_elsewhere(tmp_path: Path) -> None:
    """Though the controller calls the replica new: it does so until a reassignment is done."""
    broker = Broker(str(tmp_path / "a"), str(tmp_path / "b"))
    for each in broker.directories:
        Path(each).mkdir()
    manager = broker.start()
    topic_id, other_id = Uuid(bytes(15) + b"1"), Uuid(bytes(15) + b"2")
    home = manager.get_or_create(partition(0), topic_id).log_directory
    home.take_offline(OSError(errno.EIO, "Input/output error"))
    for asked in (topic_id, None):
        with pytest.raises(KafkaStorageError, match="which is offline"):
            manager.get_or_create(partition(0), asked)
    assert not any(
        other.joinpath(str(partition(0))).exists()
        for other in map(Path, broker.directories)
        if str(other) != home.path
    )
    manager.get_or_create(partition(1), topic_id)
    manager.get_or_create(partition(0), other_id)  # of a topic that has only the name in common
    manager.abandon()


def test_a_directory_that_cannot_be_read_at_start_is_offline() -> None:
    files = PowerCutFiles()

    def before(operation: str, path: str) -> None:
        if path.startswith("/a"):
            raise OSError(5, "Input/output error")

    files.before = before
    broker = Broker("/a", "/b", files=files)
    manager = broker.start()
    assert broker.failed == ["/a"]
    assert [directory.path for directory in manager.live_directories] == ["/b"]
    with pytest.raises(KafkaStorageError, match="no log directory"):
        Broker("/a", files=files).start()


def test_one_partition_in_two_directories_is_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name / "topic-0").mkdir(parents=True)
    with pytest.raises(DuplicateLog):
        Broker(str(tmp_path / "a"), str(tmp_path / "b")).start()


@pytest.mark.parametrize("is_damaged", [False, True])
@pytest.mark.parametrize("is_same_topic", [True, False])
def test_a_log_made_while_a_directory_is_offline_counts_when_that_is_back(
    tmp_path: Path, is_damaged: bool, is_same_topic: bool
) -> None:
    """Of a replica that the controller still calls new, or of a topic that was deleted and created again."""
    first, second = (Uuid.generate(random.Random(number)) for number in (1, 2))
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    broker = Broker(a, b)
    manager = broker.start()
    produce(manager.get_or_create(partition(0), first, directory=a), 5)
    manager.close()
    if is_damaged:
        (tmp_path / "a" / "topic-0" / f"{0:020d}.log").write_bytes(b"\xff" * 500)
    broker.unusable = {a: OSError(errno.EIO, "Input/output error")}
    for _ in range(2):  # still offline at the next start
        manager = broker.start()
        log = manager.get_or_create(partition(0), first if is_same_topic else second)
        assert log.directory == f"{b}/topic-0"
        produce(log, 2)
        manager.close()
    broker.unusable = {}
    for _ in range(2):
        manager = broker.start()
        again = manager.get(partition(0))
        assert again is not None
        assert (again.directory, again.log_end_offset) == (f"{b}/topic-0", 4)
        assert manager.damaged == {}
        manager.close()
    (stray,) = (tmp_path / "a").glob("topic-0*")
    assert stray.name.endswith("-stray")
    assert not (tmp_path / "b" / "topic-0" / "made-anew").exists()


def half_made(*directories: str) -> tuple[Broker, LogManager, PowerCutFiles]:
    """A log that got a directory in the first of two, and no file: there was no descriptor for one."""
    files = PowerCutFiles()
    broker = Broker(*directories, files=files)
    manager = broker.start()

    def starve(operation: str, path: str) -> None:
        if operation == "open":
            raise OSError(errno.EMFILE, "Too many open files", path)

    files.before = starve
    with pytest.raises(KafkaStorageError):
        manager.get_or_create(partition(0))
    files.before = None
    assert files.exists(f"{directories[0]}/topic-0")
    assert broker.failed == []
    return broker, manager, files


def test_a_log_that_was_begun_is_completed_where_it_was_begun() -> None:
    broker, manager, _ = half_made("/a", "/b")
    manager.get_or_create(partition(1), directory="/a")  # so that another one would go to /b
    produce(manager.get_or_create(partition(0)))
    manager.abandon()
    log = broker.start().get(partition(0))
    assert log is not None
    assert (log.directory, log.log_end_offset) == ("/a/topic-0", 1)


def test_a_log_that_was_begun_is_deleted_like_any_other() -> None:
    broker, manager, files = half_made("/a", "/b")
    manager.delete(partition(0))
    assert not files.exists("/a/topic-0")
    manager.get_or_create(partition(1), directory="/a")
    assert manager.get_or_create(partition(0)).directory == "/b/topic-0"
    manager.abandon()
    broker.start()
    broker.scheduler.run_due()
    assert [entry.name for entry in files.list("/a") if entry.is_directory] == ["topic-1"]


def test_a_log_that_was_begun_on_a_failed_disk_is_begun_nowhere_else() -> None:
    broker, manager, files = half_made("/a", "/b")
    manager.live_directories[0].take_offline(OSError(errno.EIO, "Input/output error"))
    with pytest.raises(KafkaStorageError, match="/a is offline"):
        manager.get_or_create(partition(0))
    manager.delete(partition(0))
    with pytest.raises(KafkaStorageError, match="/a is offline"):
        manager.get_or_create(partition(0))
    assert not files.exists("/b/topic-0")
    manager.abandon()
    produce(broker.start().get_or_create(partition(0)))


def test_a_topic_id_is_kept_and_another_refused(tmp_path: Path) -> None:
    broker = Broker(str(tmp_path))
    manager = broker.start()
    topic_id, other = (Uuid.generate(random.Random(n)) for n in range(2))
    log = manager.get_or_create(partition(0), topic_id)
    assert (tmp_path / "topic-0" / "partition.metadata").read_text() == f"version: 0\ntopic_id: {topic_id}"
    assert manager.get_or_create(partition(0), topic_id) is log
    with pytest.raises(InconsistentTopicId):
        manager.get_or_create(partition(0), other)
    manager.close()
    manager = broker.start()
    reopened = manager.get(partition(0))
    assert reopened is not None
    assert reopened.topic_id == topic_id
    manager.abandon()


def test_time_passes_and_old_segments_go(tmp_path: Path) -> None:
    broker = Broker(str(tmp_path), retention_ms=1_000)
    manager = broker.start()
    log = manager.get_or_create(partition(0))
    produce(log, 5)
    log.advance_high_watermark(5)
    broker.clock.advance(300_000)
    broker.scheduler.run_due()
    assert (log.log_start_offset, log.log_end_offset) == (5, 5)
    manager.abandon()


def test_time_passes_and_dirty_logs_are_flushed(tmp_path: Path) -> None:
    broker = Broker(str(tmp_path), flush_ms=10_000)
    manager = broker.start()
    log = manager.get_or_create(partition(0))
    produce(log, 5)
    broker.clock.advance(6_000)
    broker.scheduler.run_due()
    assert log.flush_state.recovery_point == 0
    broker.clock.advance(6_000)
    broker.scheduler.run_due()
    assert log.flush_state.recovery_point == 5
    assert broker.flushed[-1] is log
    manager.abandon()


def test_checkpoints_are_written_from_time_to_time(tmp_path: Path) -> None:
    broker = Broker(str(tmp_path))
    manager = broker.start()
    log = manager.get_or_create(partition(0))
    produce(log, 5, epoch=3)
    log.advance_high_watermark(5)
    log.maybe_increment_log_start_offset(4, "test")
    broker.clock.advance(60_000)
    broker.scheduler.run_due()
    broker.clock.advance(60_000)
    broker.scheduler.run_due()
    assert (tmp_path / RECOVERY_POINTS).read_text() == "0\n1\ntopic 0 0\n", "no flush was requested"
    assert (tmp_path / LOG_START_OFFSETS).read_text() == "0\n1\ntopic 0 4\n"
    assert (tmp_path / HIGH_WATERMARKS).read_text() == "0\n1\ntopic 0 5\n"
    assert (tmp_path / "topic-0" / "leader-epoch-checkpoint").read_text() == "0\n1\n3 4\n"
    manager.abandon()


def test_truncation_records_the_recovery_point_at_once(tmp_path: Path) -> None:
    manager = Broker(str(tmp_path)).start()
    log = manager.get_or_create(partition(0))
    produce(log, 5)
    produce(log, 5)
    log.flush()
    manager.maintenance.checkpoint_recovery_points()
    manager.truncate_to({partition(0): 5, partition(8): 1})
    assert (tmp_path / RECOVERY_POINTS).read_text() == "0\n1\ntopic 0 5\n"
    manager.truncate_fully_and_start_at(partition(0), 70)
    assert log.log_end_offset == 70
    manager.abandon()


def test_nothing_is_cut_before_its_recovery_point_is_on_disk() -> None:
    files = PowerCutFiles()
    manager = Broker("/disk", files=files).start()
    log = manager.get_or_create(partition(0))
    produce(log, 5)
    produce(log, 5)
    log.flush()
    refusals = [OSError(errno.EMFILE, "Too many open files")]

    def before(operation: str, path: str) -> None:
        if refusals and operation == "open" and RECOVERY_POINTS in path:
            raise refusals.pop()

    files.before = before
    with pytest.raises(KafkaStorageError):
        manager.truncate_to({partition(0): 5})
    assert (log.log_end_offset, log.flush_state.recovery_point) == (10, 10)
    manager.truncate_to({partition(0): 5})
    assert (log.log_end_offset, log.flush_state.recovery_point) == (5, 5)
    assert files.read(f"/disk/{RECOVERY_POINTS}") == b"0\n1\ntopic 0 5\n"
    manager.abandon()


def test_recovery_points_that_lie_below_are_not_written_again() -> None:
    files = PowerCutFiles()
    manager = Broker("/disk", files=files).start()
    for number in range(20):
        produce(manager.get_or_create(partition(number)), 2)
    happened: list[tuple[str, str]] = []
    files.before = lambda operation, path: happened.append((operation, path))
    manager.truncate_to({partition(number): 1 for number in range(20)})
    assert not [path for operation, path in happened if RECOVERY_POINTS in path or operation == "sync"]
    manager.abandon()


@pytest.mark.parametrize("seed", range(20))
def test_a_truncation_is_on_disk_before_the_next_append(seed: int) -> None:
    files = PowerCutFiles(seed)
    broker = Broker("/disk", files=files, segment_bytes=400)
    manager = broker.start()
    files.sync_directory("")
    log = manager.get_or_create(partition(0))
    for _ in range(6):
        produce(log, 2, epoch=1)
    log.flush()
    manager.maintenance.checkpoint_recovery_points()
    manager.truncate_to({partition(0): 4})
    produce(log, 2, epoch=2)
    files.cut_power()
    log = broker.start().get_or_create(partition(0))
    assert [b.leader_epoch for b in read_batches(log)] in ([1, 1], [1, 1, 2])


@pytest.mark.parametrize("seed", range(20))
def test_deleted_records_do_not_come_back_with_the_names_of_their_segments(seed: int) -> None:
    """Until the directory is synced a power cut may bring them back; where the log begins is remembered."""
    files = PowerCutFiles(seed)
    broker = Broker("/disk", files=files, segment_bytes=400)
    manager = broker.start()
    files.sync_directory("")
    log = manager.get_or_create(partition(0))
    for _ in range(6):
        produce(log, 2)
    log.flush()
    log.advance_high_watermark(log.log_end_offset)
    start_offset = log.segments.active.base_offset
    log.maybe_increment_log_start_offset(start_offset, "records deleted by a client")
    manager.maintenance.apply_retention()
    assert log.segments.first.base_offset == start_offset > 0
    manager.maintenance.checkpoint_log_start_offsets()
    files.cut_power()
    again = broker.start().get_or_create(partition(0))
    assert again.log_start_offset == start_offset


@pytest.mark.parametrize("is_clean", [True, False])
def test_idle_logs_have_no_file_open(tmp_path: Path, is_clean: bool) -> None:
    broker = Broker(str(tmp_path), segment_bytes=300, index_interval_bytes=0)
    manager = broker.start()
    for number in range(20):
        for _ in range(3):
            produce(manager.get_or_create(partition(number)), 2)
    if is_clean:
        manager.close()
    else:
        manager.abandon()
    before = len(list(Path("/proc/self/fd").iterdir()))
    manager = broker.start()
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 1, "only the lock of the directory"
    manager.abandon()


def test_settings_reach_the_logs_of_their_topic(tmp_path: Path) -> None:
    manager = Broker(str(tmp_path)).start()
    log, other = manager.get_or_create(partition(0)), manager.get_or_create(partition(0, "other"))
    manager.update_config("topic", log_config(segment_bytes=99))
    assert (log.config.segment_bytes, other.config.segment_bytes) == (99, 1 << 30)
    manager.abandon()


@pytest.mark.parametrize("seed", range(15))
def test_a_broker_survives_power_cuts(seed: int) -> None:
    chance = random.Random(seed)
    files = PowerCutFiles(seed)
    broker = Broker("/disk", files=files, segment_bytes=700, flush_messages=5)
    manager = broker.start()
    files.sync_directory("")
    for _ in range(6):
        synced = {}
        for number in range(3):
            log = manager.get_or_create(partition(number))
            for _ in range(chance.randint(0, 12)):
                produce(log, chance.randint(1, 3))
            synced[number] = log.flush_state.recovery_point
        if chance.random() < 0.5:
            manager.maintenance.checkpoint_recovery_points()
        if chance.random() < 0.3:
            manager.close()
        files.cut_power()
        manager = broker.start()
        for number, offset in synced.items():
            found = manager.get_or_create(partition(number))
            assert found.log_end_offset >= offset
            batches = read_batches(found)
            assert [b.base_offset for b in batches] == [0, *[b.next_offset for b in batches]][: len(batches)]


def namesake_after_a_crash(first: LogManager, broker: Broker) -> list[tuple[int, int]]:
    """Delete the log, create and fill one of the same name, crash; returns the log of the next start."""
    first.delete(partition(0))
    log = first.get_or_create(partition(0))
    for _ in range(2):
        produce(log)
    log.flush()
    first.abandon()
    found = broker.start().get(partition(0))
    assert found is not None
    return offsets(read_batches(found))


def test_a_namesake_does_not_start_where_the_deleted_log_did(tmp_path: Path) -> None:
    broker = Broker(str(tmp_path))
    manager = broker.start()
    log = manager.get_or_create(partition(0))
    for _ in range(5):
        produce(log)
    log.advance_high_watermark(5)
    log.maybe_increment_log_start_offset(5, "a test")
    manager.maintenance.checkpoint_log_start_offsets()
    assert namesake_after_a_crash(manager, broker) == [(0, 0), (1, 1)]


def test_a_namesake_does_not_start_where_a_log_deleted_before_a_crash_did(tmp_path: Path) -> None:
    broker = Broker(str(tmp_path))
    manager = broker.start()
    log = manager.get_or_create(partition(0))
    produce(log)
    (tmp_path / LOG_START_OFFSETS).write_text("0\n1\ntopic 1 5\n")
    manager.abandon()
    second = broker.start()
    log = second.get_or_create(partition(1))
    produce(log)
    log.flush()
    second.abandon()
    found = broker.start().get(partition(1))
    assert found is not None
    assert offsets(read_batches(found)) == [(0, 0)]


def test_a_namesake_is_not_as_clean_as_the_deleted_log(tmp_path: Path) -> None:
    """Its tombstones would go before its values, and a hole in it would pass for compaction."""
    broker = Broker(str(tmp_path), cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0)
    manager = broker.start()
    log = manager.get_or_create(partition(0))
    for _ in range(5):
        log.append_as_leader(batch(key=b"k"), leader_epoch=0)
    log.roll()
    log.advance_high_watermark(5)
    manager.cleaner.clean_what_is_due()
    assert (tmp_path / CLEANED_OFFSETS).read_text() == "0\n1\ntopic 0 5\n"
    manager.maintenance.checkpoint_high_watermarks()
    environment = manager.cleaner._environment
    environment.background = ManualBackground()  # the disk is slow: nothing is written in the background
    manager.delete(partition(0))
    namesake = manager.get_or_create(partition(0))
    namesake.append_as_leader(batch(key=b"k"), leader_epoch=0)
    manager.abandon()
    again = broker.start()
    assert again.cleaner.clean_to(partition(0)) is None
    assert again.high_watermarks() == {}
    again.abandon()


def test_records_after_a_truncation_are_not_clean_after_a_crash(tmp_path: Path) -> None:
    """An unclean election may truncate below the cleaned offset."""
    broker = Broker(str(tmp_path), cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0)
    manager = broker.start()
    log = manager.get_or_create(partition(0))
    for number in range(5):
        log.append_as_leader(batch(key=b"k%d" % number), leader_epoch=0)
    log.roll()
    log.advance_high_watermark(5)
    manager.cleaner.clean_what_is_due()
    assert manager.cleaner.clean_to(partition(0)) == 5
    manager.cleaner._environment.background = ManualBackground()  # the disk is slow
    manager.truncate_to({partition(0): 2})
    for _ in range(4):
        log.append_as_leader(batch(key=b"k"), leader_epoch=1)
    log.flush()
    manager.abandon()
    again = broker.start()
    found = again.get(partition(0))
    assert found is not None
    assert found.log_end_offset == 6
    assert again.cleaner.clean_to(partition(0)) == 2
    again.abandon()


@pytest.mark.parametrize("name", [CLEANED_OFFSETS, HIGH_WATERMARKS])
def test_a_namesake_takes_over_nothing_of_a_log_deleted_before_a_crash(tmp_path: Path, name: str) -> None:
    broker = Broker(str(tmp_path))
    first = broker.start()
    produce(first.get_or_create(partition(0)), 5)
    first.abandon()
    (tmp_path / name).write_text("0\n2\ntopic 0 3\ntopic 1 5\n")
    second = broker.start()
    second.cleaner._environment.background = ManualBackground()
    produce(second.get_or_create(partition(1)))
    second.abandon()
    assert (tmp_path / name).read_text() == "0\n1\ntopic 0 3\n", "the log that is there keeps its offset"


@pytest.mark.parametrize("end", [LogManager.close, LogManager.abandon])
def test_nothing_is_checkpointed_after_the_end(tmp_path: Path, end: Callable[[LogManager], None]) -> None:
    broker = Broker(str(tmp_path))
    manager = broker.start()
    log = manager.get_or_create(partition(0))
    produce(log, 5)
    log.advance_high_watermark(5)
    log.maybe_increment_log_start_offset(4, "test")
    broker.scheduler.run_due()
    end(manager)
    broker.clock.advance(60_000)
    broker.scheduler.run_due()
    assert (tmp_path / HIGH_WATERMARKS).read_text() == "0\n1\ntopic 0 5\n"
    assert (tmp_path / LOG_START_OFFSETS).read_text() == "0\n1\ntopic 0 4\n"


def broker_with_a_garbled_log(path: Path) -> Broker:
    """Cleanly closed; afterwards something wrote over the middle of topic-0."""
    broker = Broker(str(path), index_interval_bytes=0)
    manager = broker.start()
    for number in range(2):
        log = manager.get_or_create(partition(number))
        for _ in range(3):
            produce(log)
    log.advance_high_watermark(3)
    manager.get_or_create(partition(0)).advance_high_watermark(3)
    size_bytes = log.segments.size_bytes // 3
    manager.get_or_create(partition(0)).maybe_increment_log_start_offset(1, "a test")
    manager.close()
    damaged = path / "topic-0"
    (damaged / "leader-epoch-checkpoint").unlink()
    content = bytearray((damaged / f"{0:020d}.log").read_bytes())
    content[size_bytes + 16] = 9  # a format that there never was
    (damaged / f"{0:020d}.log").write_bytes(content)
    return broker


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_damaged_log_is_out_of_service_alone(tmp_path: Path, is_clean: bool) -> None:
    broker = broker_with_a_garbled_log(tmp_path)
    if not is_clean:
        (tmp_path / ".kafka_cleanshutdown").unlink()
        (tmp_path / "topic-0" / f"{3:020d}.log").touch()  # the garbled batch is below the recovery point
    content = (tmp_path / "topic-0" / f"{0:020d}.log").read_bytes()
    manager = broker.start()
    assert broker.failed == []
    assert [log.topic_partition for log in manager.logs()] == [partition(1)]
    assert produce(manager.get_or_create(partition(1))).first_offset == 3
    with pytest.raises(KafkaStorageError, match="out of service"):
        manager.get_or_create(partition(0))
    manager.close()
    assert (tmp_path / "topic-0" / f"{0:020d}.log").read_bytes() == content, "nothing is taken away"


def test_a_repaired_log_is_as_it_was_before_the_damage(tmp_path: Path) -> None:
    broker = broker_with_a_garbled_log(tmp_path)
    broker.start().close()
    file = tmp_path / "topic-0" / f"{0:020d}.log"
    content = bytearray(file.read_bytes())
    content[len(content) // 3 + 16] = 2
    file.write_bytes(content)
    manager = broker.start()
    log = manager.get(partition(0))
    assert log is not None
    assert (log.log_start_offset, log.log_end_offset) == (1, 3)
    assert manager.high_watermarks()[partition(0)] == 3
    manager.abandon()


def test_a_damaged_log_that_the_cluster_does_not_know_is_kept_under_another_name(tmp_path: Path) -> None:
    manager = broker_with_a_garbled_log(tmp_path).start()
    manager.set_aside_stray(partition(0))
    assert not manager.damaged
    (left,) = [each.name for each in tmp_path.iterdir() if each.name.startswith("topic-0")]
    assert left.endswith("-stray")
    assert manager.get_or_create(partition(0)).log_end_offset == 0
    manager.abandon()


def test_a_damaged_log_can_be_deleted(tmp_path: Path) -> None:
    broker = broker_with_a_garbled_log(tmp_path)
    manager = broker.start()
    manager.delete(partition(0))
    assert manager.get_or_create(partition(0)).log_start_offset == 0
    broker.clock.advance(60_000)
    broker.scheduler.run_due()
    assert sorted(each.name for each in tmp_path.iterdir() if each.is_dir()) == ["topic-0", "topic-1"]
    manager.abandon()


def test_a_late_epoch_file_does_not_reach_a_namesake_of_the_log(tmp_path: Path) -> None:
    """Deleted and made again between the moment when the write was decided and when it is done."""
    broker = Broker(str(tmp_path))
    manager = broker.start()
    log = manager.get_or_create(partition(0))
    produce(log)
    log.leader_epochs.assign(7, 1)
    flush, later = log.plan_flush(), LaterBackground()
    assert flush is not None
    log.environment.background = later
    log.write_epochs_soon()
    manager.delete(partition(0))
    namesake = manager.get_or_create(partition(0))
    flush()
    later.run()
    assert not (Path(namesake.directory) / "leader-epoch-checkpoint").exists()
    assert (Path(log.directory) / "leader-epoch-checkpoint").exists()
    assert broker.failed == []
    manager.abandon()


class LaterBackground(InlineBackground):
    """Background that runs submitted work on request."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def submit(
        self,
        work: Callable[[], T],
        done: Callable[[T], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self.waiting.append(lambda: InlineBackground.submit(self, work, done, failed))

    def run(self) -> None:
        for each in self.waiting:
            each()


def test_the_retention_of_many_segments_takes_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them takes several renames, and a log may have tens of thousands."""
    broker = Broker(str(tmp_path), segment_bytes=100)
    manager = broker.start()
    broker.scheduler.run_due()
    log = manager.get_or_create(partition(0))
    for _ in range(4 * SEGMENTS_DELETED_PER_STEP):
        produce(log)
    log.flush()
    log.advance_high_watermark(log.log_end_offset)
    log.maybe_increment_log_start_offset(log.segments.active.base_offset, "records deleted by a client")

    deleted: list[int] = []

    def slow(log: Log, most: int) -> int:
        broker.clock.advance(ms=6)
        deleted.append(delete_old_segments(log, most))
        return deleted[-1]

    monkeypatch.setattr(log_maintenance, "delete_old_segments", slow)
    manager.maintenance.apply_retention()
    assert deleted == [SEGMENTS_DELETED_PER_STEP]
    broker.scheduler.run_due()
    assert deleted == [*[SEGMENTS_DELETED_PER_STEP] * 3, SEGMENTS_DELETED_PER_STEP - 1]
    assert len(log.segments) == 1


def test_the_retention_of_many_logs_takes_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(str(tmp_path))
    manager = broker.start()
    for number in range(10):
        produce(manager.get_or_create(partition(number)))
    broker.scheduler.run_due()
    seen: list[int] = []

    def slow(log: Log, _: int) -> int:
        seen.append(log.topic_partition.partition)
        broker.clock.advance(ms=3)
        return 0

    monkeypatch.setattr(log_maintenance, "delete_old_segments", slow)
    manager.maintenance.apply_retention()
    assert seen == [0, 1]
    manager.delete(partition(3))
    for _ in range(10):
        broker.scheduler.run_due()
    assert seen == [0, 1, 2, 4, 5, 6, 7, 8, 9], "each once, and none that is gone"
    manager.maintenance.apply_retention()
    manager.abandon()
    broker.scheduler.run_due()
    assert len(seen) == 11, "and none after the end"


@pytest.mark.parametrize("is_kafkas", [True, False])
def test_gaps_between_segments_are_believed_after_a_crash_of_apache_kafka(
    tmp_path: Path, is_kafkas: bool
) -> None:
    """Its followers of a compacted log roll segments behind gaps, and its indexes do not say where a segment
    ended. Of our own segments they do: there, such a gap is a loss."""
    broker = Broker(str(tmp_path), segment_bytes=300)
    manager = broker.start()
    log = manager.get_or_create(partition(0))
    for number in range(6):
        log.append_as_follower(batch([bytes(200)], base_offset=10 * number))
    assert len(log.segments) == 6
    manager.abandon()
    marker = tmp_path / ".barnabas_open"
    assert marker.exists()
    if is_kafkas:
        marker.unlink()
    for index in (tmp_path / "topic-0").glob("*.index"):
        index.write_bytes(b"")  # as small segments of Apache Kafka have it
    manager = broker.start()
    again = manager.get(partition(0))
    assert again is not None
    assert again.log_end_offset == (51 if is_kafkas else 1)
    assert marker.exists()
    manager.close()
    assert not marker.exists(), "another broker may be next"
