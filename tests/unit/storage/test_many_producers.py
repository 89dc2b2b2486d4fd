"""Logs that remember many producers: no turn of the loop renders or visits all of them.

The flush behind a roll writes the snapshot. Whatever happens to the log meanwhile, and wherever the process
or the machine ends, the next start knows the same producers.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.core.limits import PRODUCERS_PER_TURN_MAX, UNWRITTEN_SNAPSHOTS_MAX
from barnabas.records.builder import build_batch
from barnabas.storage.files.names import PRODUCER_SNAPSHOT
from barnabas.storage.log.group_commit import GroupCommit
from barnabas.storage.log.log import Log
from barnabas.storage.log.producer_expiry import remove_expired_producers
from barnabas.storage.log.retention import delete_old_segments
from barnabas.storage.log.truncation import truncate_fully_and_start_at, truncate_to
from barnabas.storage.producers import producer_snapshot
from barnabas.storage.producers.producer_snapshot import PIECE_PRODUCERS, parse_snapshot
from tests.support.background import ManualBackground
from tests.support.power_cut_files import PowerCutFiles
from tests.unit.storage.support import NOW_MS, Bench, end_transaction, produce
from tests.unit.storage.test_power_cut import WEIGHTS, Life

MANY = PRODUCERS_PER_TURN_MAX + 1


class Busy:
    """A log with many producers, whose flushes wait to be run."""

    def __init__(self, seed: int = 0, count: int = MANY, **config: Any) -> None:
        self.files = PowerCutFiles(seed)
        self.files.make_lasting_directory("/disk")
        self.files.sync_directory("")
        self.bench = Bench("/disk", self.files, **config)
        self.background = ManualBackground()
        self.log = self.bench.open()
        self.log.flush_by(GroupCommit(self.background, lambda _: None, self.bench.scheduler).request)
        self.log.append_as_follower(batches(count))
        self.log.advance_high_watermark(self.log.log_end_offset)
        self.log.flush()
        self.states = {0: [], self.log.log_end_offset: facts(self.log)}
        """Expected producer state at each offset at which the log may end."""

    def produce(self, producer_id: int, sequence: int, **fields: Any) -> None:
        epoch = fields.pop("producer_epoch", 0)
        produce(self.log, 1, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **fields)
        self.log.advance_high_watermark(self.log.log_end_offset)
        self.states[self.log.log_end_offset] = facts(self.log)

    def snapshot(self, offset: int) -> str:
        return f"{self.bench.directory}/{offset:020d}{PRODUCER_SNAPSHOT}"

    def run_flushes(self) -> None:
        while self.background.waiting:
            self.background.run_one()

    def reopened(self, recovery_point: int) -> Log:
        return self.bench.open(recovery_point=recovery_point, log_start_offset=self.log.log_start_offset)


def batches(count: int) -> bytearray:
    """A batch of each producer, from offset 0 on."""
    found = bytearray()
    for number in range(count):
        fields = {"producer_id": number, "producer_epoch": 0, "base_sequence": 0}
        found += build_batch([(None, b"v", (), NOW_MS)], base_offset=number, leader_epoch=0, **fields)  # type: ignore[arg-type]
    return found


def facts(log: Log) -> list[str]:
    return sorted(map(repr, log.active_producers()))


# -- how much in one turn -----------------------------------------------------------------------


class Counted:
    """Number of producers rendered in each piece."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pieces: list[int] = []
        for name in ("_render_entries", "_render_earlier_batches"):
            render: Callable[[list[Any]], bytes] = getattr(producer_snapshot, name)
            monkeypatch.setattr(producer_snapshot, name, self.counting(render))

    def counting(self, render: Callable[[list[Any]], bytes]) -> Callable[[list[Any]], bytes]:
        def counted(producers: list[Any]) -> bytes:
            self.pieces.append(len(producers))
            return render(producers)

        return counted


def test_a_roll_leaves_a_large_snapshot_to_the_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = Busy(count=3 * PIECE_PRODUCERS + 1)
    counted = Counted(monkeypatch)
    expected = facts(busy.log)
    busy.log.roll()
    assert counted.pieces == [], "rendered on the loop"
    busy.run_flushes()
    assert counted.pieces == 2 * [*3 * [PIECE_PRODUCERS], 1]
    written = parse_snapshot(busy.files.read(busy.snapshot(busy.log.log_end_offset)))
    assert sorted(map(repr, written)) == expected


def test_a_thread_rests_between_two_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = Busy(count=2 * PIECE_PRODUCERS)
    counted = Counted(monkeypatch)
    rests: list[int] = []
    monkeypatch.setattr(
        "barnabas.storage.files.pacing.Pace.breathe", lambda _: rests.append(sum(counted.pieces))
    )
    busy.log.roll()
    busy.run_flushes()
    assert max(after - before for before, after in zip([0, *rests], rests, strict=False)) == PIECE_PRODUCERS


def test_a_small_snapshot_is_there_when_the_segment_is_rolled() -> None:
    busy = Busy(count=PRODUCERS_PER_TURN_MAX)
    busy.log.roll()
    assert busy.files.exists(busy.snapshot(PRODUCERS_PER_TURN_MAX))
    assert busy.log.flush_state.unwritten_snapshots == []


def test_expired_producers_go_in_turns() -> None:
    busy = Busy(count=2 * PRODUCERS_PER_TURN_MAX + 1)
    busy.bench.clock.advance(busy.bench.environment.config.producer_id_expiration_ms)
    remove_expired_producers(busy.log)
    assert len(busy.log.active_producers()) == PRODUCERS_PER_TURN_MAX + 1
    busy.produce(2 * PRODUCERS_PER_TURN_MAX, 1, timestamp=busy.bench.clock.now_ms())
    assert busy.bench.scheduler.run_due() == 2
    assert [entry.producer_id for entry in busy.log.active_producers()] == [2 * PRODUCERS_PER_TURN_MAX]


def test_expiry_ends_with_its_log() -> None:
    busy = Busy(count=2 * PRODUCERS_PER_TURN_MAX)
    busy.bench.clock.advance(busy.bench.environment.config.producer_id_expiration_ms)
    remove_expired_producers(busy.log)
    busy.log.release()
    busy.bench.scheduler.run_due()
    assert len(busy.log.active_producers()) == PRODUCERS_PER_TURN_MAX


# -- what waits for the snapshot -------------------------------------------------------------------


def test_the_recovery_point_waits_for_the_snapshot() -> None:
    busy = Busy()
    busy.produce(1, 1)
    before = busy.log.flush_state.recovery_point
    busy.log.roll()
    busy.produce(1, 2)
    assert busy.log.flush_state.recovery_point == before
    assert not busy.files.exists(busy.snapshot(MANY + 1))
    busy.run_flushes()
    assert busy.log.flush_state.recovery_point >= MANY + 1
    assert busy.files.exists(busy.snapshot(MANY + 1))


def test_retention_waits_for_the_snapshot() -> None:
    busy = Busy(retention_ms=-1)
    busy.log.roll()
    busy.log.maybe_increment_log_start_offset(MANY, "test")
    assert delete_old_segments(busy.log) == 0
    busy.run_flushes()
    assert delete_old_segments(busy.log) == 1
    assert facts(busy.reopened(busy.log.flush_state.recovery_point)) == busy.states[MANY]


def test_a_disk_that_is_far_behind_does_not_fill_the_memory() -> None:
    busy = Busy()
    for number in range(UNWRITTEN_SNAPSHOTS_MAX + 3):
        busy.produce(1, 1 + number)
        busy.log.roll()
    assert len(busy.log.flush_state.unwritten_snapshots) == UNWRITTEN_SNAPSHOTS_MAX
    busy.run_flushes()
    assert busy.log.flush_state.unwritten_snapshots == []
    for number in range(UNWRITTEN_SNAPSHOTS_MAX + 3):
        offset = MANY + 1 + number
        written = parse_snapshot(busy.files.read(busy.snapshot(offset)))
        assert sorted(map(repr, written)) == busy.states[offset]


def test_a_flush_that_finds_no_descriptor_writes_the_snapshot_later() -> None:
    busy = Busy()
    busy.log.roll()

    def refuse(operation: str, path: str) -> None:
        if operation == "open" and path.endswith(PRODUCER_SNAPSHOT):
            raise OSError(errno.EMFILE, "too many open files")

    busy.files.before = refuse
    busy.run_flushes()
    assert busy.bench.log_directory.failure is None
    assert busy.log.flush_state.unwritten_snapshots == [MANY]
    busy.files.before = None
    busy.bench.clock.advance(1_000)
    busy.bench.scheduler.run_due()
    busy.run_flushes()
    assert busy.files.exists(busy.snapshot(MANY))


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("failing", ["write", "sync"])
def test_a_snapshot_that_cannot_be_written_takes_the_directory_offline(failing: str, error: int) -> None:
    busy = Busy()
    before = busy.log.flush_state.recovery_point
    busy.log.roll()

    def fail(operation: str, path: str) -> None:
        if operation == failing and path.endswith(PRODUCER_SNAPSHOT):
            raise OSError(error, "failed")

    busy.files.before = fail
    busy.run_flushes()
    assert busy.bench.log_directory.failure is not None
    assert busy.log.flush_state.recovery_point == before


# -- what happens meanwhile -------------------------------------------------------------------------


def _write(busy: Busy) -> None:
    busy.produce(3, 2)


def _new_epoch(busy: Busy) -> None:
    busy.produce(3, 0, producer_epoch=1)


def _transaction(busy: Busy) -> None:
    busy.produce(3, 0, producer_epoch=1, is_transactional=True)
    end_transaction(busy.log, 3, commit=False, producer_epoch=1)
    busy.states[busy.log.log_end_offset] = facts(busy.log)


def _new_producer(busy: Busy) -> None:
    busy.produce(9_999, 0)


def _second_roll(busy: Busy) -> None:
    busy.produce(3, 2)
    busy.log.roll()
    busy.produce(4, 1)


def _truncate_below(busy: Busy) -> None:
    truncate_to(busy.log, MANY)
    busy.states = {offset: known for offset, known in busy.states.items() if offset <= MANY}
    busy.produce(5, 1)
    busy.produce(6, 1)
    busy.produce(7, 1)


def _truncate_and_roll(busy: Busy) -> None:
    """Another segment begins where the first one did, behind other records."""
    truncate_to(busy.log, MANY)
    busy.states = {offset: known for offset, known in busy.states.items() if offset <= MANY}
    busy.produce(5, 1)
    busy.log.roll()
    busy.produce(5, 2)


def _truncate_to_start_of_segment(busy: Busy) -> None:
    truncate_to(busy.log, MANY + 1)
    busy.states = {offset: known for offset, known in busy.states.items() if offset <= MANY + 1}
    busy.produce(5, 1)


def _truncate_fully(busy: Busy) -> None:
    truncate_fully_and_start_at(busy.log, MANY + 1)
    busy.states = {MANY + 1: []}
    busy.produce(5, 1)


def _flush_here(busy: Busy) -> None:
    if busy.log.plan_flush() is not None and not busy.log.flush_state._lock.locked():
        busy.log.flush()


MEANWHILE = [
    _write,
    _new_epoch,
    _transaction,
    _new_producer,
    _second_roll,
    _truncate_below,
    _truncate_and_roll,
    _truncate_to_start_of_segment,
    _truncate_fully,
    _flush_here,
]


def rolled(seed: int = 0) -> Busy:
    busy = Busy(seed)
    busy.produce(3, 1)
    busy.log.roll()
    busy.produce(4, 1)
    return busy


def operations_of_a_flush() -> int:
    busy, seen = rolled(), [0]

    def count(*_: str) -> None:
        seen[0] += 1

    busy.files.before = count
    busy.run_flushes()
    return seen[0]


OPERATIONS = operations_of_a_flush()


def meet(busy: Busy, at: int, happens: Callable[[Busy], None]) -> None:
    """Run the flush; before its operation number `at` something else happens on the loop.

    The loop waits where the flush has locked the directory's name: then it happens before the next one."""
    seen, lock = [0], busy.log._log_path._lock

    def before(*_: str) -> None:
        seen[0] += 1
        if seen[0] >= at > 0 and not lock.locked():
            busy.files.before = None
            happens(busy)

    if not at:
        happens(busy)
    busy.files.before = before
    busy.background.run_one()
    busy.files.before = None


@pytest.mark.parametrize("happens", MEANWHILE)
@pytest.mark.parametrize("at", range(OPERATIONS + 1))
def test_changes_during_the_write_of_a_snapshot_do_not_change_it(
    at: int, happens: Callable[[Busy], None]
) -> None:
    busy = rolled(at)
    meet(busy, at, happens)
    busy.run_flushes()
    busy.log.flush()
    assert busy.bench.log_directory.failure is None
    for name in busy.bench.names(PRODUCER_SNAPSHOT):
        written = parse_snapshot(busy.files.read(f"{busy.bench.directory}/{name}"))
        assert sorted(map(repr, written)) == busy.states[int(name[:20])], name
    assert facts(busy.reopened(busy.log.flush_state.recovery_point)) == facts(busy.log)
    busy.files.cut_power()
    again = busy.reopened(busy.log.flush_state.recovery_point)
    assert again.log_end_offset == busy.log.log_end_offset
    assert facts(again) == facts(busy.log)


@pytest.mark.parametrize("is_power_cut", [False, True])
@pytest.mark.parametrize("happens", [_write, _second_roll, _truncate_below, _truncate_and_roll])
@pytest.mark.parametrize("at", range(1, OPERATIONS + 1))
def test_an_end_at_any_step_leaves_the_same_producers(
    at: int, happens: Callable[[Busy], None], is_power_cut: bool
) -> None:
    busy = rolled(at)
    happens(busy)
    seen = [0]

    def die(*_: str) -> None:
        seen[0] += 1
        if seen[0] >= at:
            raise OSError(errno.EIO, "the process is gone")

    recovery_point = busy.log.flush_state.recovery_point
    busy.files.before = die
    busy.run_flushes()
    busy.files.before = None
    if is_power_cut:
        busy.files.cut_power()
    again = busy.reopened(recovery_point)
    assert facts(again) == busy.states[again.log_end_offset]
    if not is_power_cut:
        assert again.log_end_offset == busy.log.log_end_offset


def test_a_log_that_is_deleted_while_its_snapshot_is_written_leaves_no_file_behind() -> None:
    for at in range(OPERATIONS + 1):
        busy = rolled()

        def delete(busy: Busy) -> None:
            busy.log.release()
            busy.log.rename_to("/disk/aside-delete")
            busy.files.make_directory(busy.bench.directory)

        meet(busy, at, delete)
        assert busy.bench.names() == [], f"operation {at}"
        assert busy.bench.log_directory.failure is None


def test_a_closed_log_has_every_snapshot() -> None:
    busy = rolled()
    busy.log.close()
    assert busy.bench.names(PRODUCER_SNAPSHOT) == [
        f"{offset:020d}{PRODUCER_SNAPSHOT}" for offset in (MANY + 1, MANY + 2)
    ]
    assert facts(busy.bench.open(is_clean=True)) == facts(busy.log)


def test_a_log_that_is_closed_where_it_was_rolled_writes_one_snapshot() -> None:
    """The producers may have expired since, so that the second snapshot would be a small one."""
    busy = Busy()
    busy.log.roll()
    busy.log.producers.producers.clear()
    work = busy.log.plan_close()
    assert work is not None
    assert not busy.files.exists(busy.snapshot(MANY)), "two would write to one file"
    busy.run_flushes()
    work()
    assert len(parse_snapshot(busy.files.read(busy.snapshot(MANY)))) == MANY


def test_entries_change_in_place_again_when_the_snapshot_is_written() -> None:
    busy = rolled()
    assert busy.log.producers._unshared is not None
    _second_roll(busy)
    busy.run_flushes()
    assert busy.log.producers._unshared is None
    entry = busy.log.producers.producers[3]
    busy.produce(3, 3)
    assert busy.log.producers.producers[3] is entry


# -- random lives -----------------------------------------------------------------------------------


class LateBench(Bench):
    """Flushes wait to be run, and end with the life of the log."""

    background: ManualBackground

    def open(self, **how: Any) -> Log:
        self.background = ManualBackground()
        log = super().open(**how)
        log.flush_by(GroupCommit(self.background, lambda _: None, self.scheduler).request)
        return log


class LateLife(Life):
    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        config = self.bench.config
        self.bench = LateBench(ROOT_OF_LIVES, self.files)
        self.bench.config = config
        self.log = self.bench.open()

    def run_background(self) -> None:
        bench = self.bench
        assert isinstance(bench, LateBench)
        if bench.background.waiting:
            bench.background.run_one()


ROOT_OF_LIVES = "/disk"


@pytest.mark.parametrize("seed", range(30))
def test_a_log_whose_snapshots_are_written_late_survives_random_faults(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.storage.log.producer_recovery.PRODUCERS_PER_TURN_MAX", 1)
    life = LateLife(seed)
    weights: dict[Callable[[Any], None], int] = {
        **WEIGHTS,
        LateLife.run_background: 15,
        Life.roll: 8,
        Life.truncate: 6,
    }
    events = life.chance.choices(list(weights), weights=list(weights.values()), k=150)
    for event in events:
        event(life)
        if event is not Life.append:
            life.check()
    life.cut_power()
    life.check()
