"""A copy replaces its log in one step or not at all, with any failure of the disks."""

from __future__ import annotations

import errno
import random
from contextlib import suppress

import pytest

from barnabas.core.errors import KafkaStorageError
from barnabas.core.ids import Uuid
from barnabas.storage.files.checkpoints import LOG_START_OFFSETS
from barnabas.storage.files.names import SUPERSEDED
from barnabas.storage.log.log import Log
from barnabas.storage.log_manager import LogManager
from tests.support.power_cut_files import PowerCutFiles
from tests.unit.storage.support import produce, read_batches
from tests.unit.storage.test_log_manager import Broker, partition

ZERO = partition(0)
OLD, NEW = "/old", "/new"


def two_disks(seed: int = 0) -> tuple[PowerCutFiles, Broker]:
    files = PowerCutFiles(seed)
    for disk in (OLD, NEW):
        files.make_lasting_directory(disk)
    files.sync_directory("")
    return files, Broker(OLD, NEW, files=files)


def copied(manager: LogManager) -> Log:
    """A log on the old disk, and all of it in a copy on the new one."""
    log = manager.get_or_create(ZERO, directory=OLD)
    for _ in range(4):
        produce(log, 2)
    log.advance_high_watermark(8)
    future = manager.create_future(ZERO, NEW)
    for batch in read_batches(log):
        future.append_as_follower(bytes(batch.view()))
    return log


@pytest.mark.parametrize("number", range(12))
@pytest.mark.parametrize("error", [errno.EMFILE, errno.EIO])
def test_appends_after_a_failed_move_are_not_lost_to_the_copy(number: int, error: int) -> None:
    files, broker = two_disks()
    manager = broker.start()
    log = copied(manager)
    left = number

    def before(operation: str, path: str) -> None:
        nonlocal left
        needs_descriptor = operation in {"open", "sync_directory", "list"}
        if (path.startswith(NEW) or error == errno.EMFILE) and (needs_descriptor or error == errno.EIO):
            left -= 1
            if left == -1:
                raise OSError(error, "the new disk fails, or there is no descriptor")

    files.before = before
    try:
        manager.promote_future(ZERO)
    except KafkaStorageError:
        files.before = None
        assert manager.get(ZERO) is log
        assert not files.exists(f"{log.directory}/{SUPERSEDED}")
        manager.drop_future(ZERO)
    files.before = None
    present = manager.get(ZERO)
    if present is None:
        assert broker.failed == [NEW], "it had moved, and is offline with its new disk"
        return
    produce(present, 2)
    present.flush()
    manager.abandon()
    for directory in [name for name in (f"{NEW}/topic-0",) if broker.failed and files.exists(name)]:
        files.remove_tree(directory)  # a person's part: two logs, and none is marked
    manager = broker.start()
    found = manager.get(ZERO)
    assert found is not None
    assert found.log_end_offset == 10
    manager.abandon()


@pytest.mark.parametrize("seed", range(50))
@pytest.mark.parametrize("start_offset", [0, 5])
def test_a_move_survives_a_power_cut_at_any_step(seed: int, start_offset: int) -> None:
    """Deleted records stay deleted: the start offset inside a segment is in a checkpoint of either disk."""
    files, broker = two_disks(seed)
    manager = broker.start()
    log = copied(manager)
    log.flush()
    log.maybe_increment_log_start_offset(start_offset, "test")
    manager.maintenance.checkpoint_log_start_offsets()
    steps = seed % 25

    def before(_operation: str, _path: str) -> None:
        nonlocal steps
        steps -= 1
        if steps < 0:
            raise PowerFailure

    files.before = before
    with suppress(PowerFailure):
        manager.promote_future(ZERO)
    files.before = None
    files.cut_power()
    manager = broker.start()
    found = manager.get(ZERO)
    assert found is not None
    assert found.log_start_offset == start_offset
    assert [batch.base_offset for batch in read_batches(found)] == ([4, 6] if start_offset else [0, 2, 4, 6])
    manager.abandon()


@pytest.mark.parametrize("step", range(6))
def test_a_copy_that_could_not_be_begun_leaves_nothing_behind(step: int) -> None:
    files, broker = two_disks()
    manager = broker.start()
    log = manager.get_or_create(ZERO, Uuid.generate(random.Random(1)), directory=OLD)
    produce(log, 2)
    log.advance_high_watermark(2)
    log.maybe_increment_log_start_offset(1, "test")
    left = step

    def before(operation: str, path: str) -> None:
        nonlocal left
        if path.startswith(f"{NEW}/topic-0.") and operation in {"open", "sync_directory", "list"}:
            left -= 1
            if left == -1:
                raise OSError(errno.EMFILE, "there is no descriptor")

    files.before = before
    with suppress(KafkaStorageError):
        manager.create_future(ZERO, NEW)
    files.before = None
    if manager.future(ZERO) is None:
        broker.scheduler.run_due()
        assert [entry.name for entry in files.list(NEW) if entry.is_directory] == []
    else:
        assert left >= 0, "it did not fail"
    assert broker.failed == []
    manager.create_future(ZERO, NEW)
    manager.abandon()


class PowerFailure(BaseException):
    """Nothing of the program goes on behind this."""


def test_deleted_records_stay_deleted_in_the_new_place() -> None:
    files, broker = two_disks()
    manager = broker.start()
    copied(manager)
    log = manager.get(ZERO)
    assert log is not None
    log.maybe_increment_log_start_offset(5, "test")
    manager.promote_future(ZERO)
    assert files.read(f"{NEW}/{LOG_START_OFFSETS}") == b"0\n1\ntopic 0 5\n"
    manager.abandon()
    again = broker.start().get(ZERO)
    assert again is not None
    assert (again.directory, again.log_start_offset) == (f"{NEW}/topic-0", 5)
