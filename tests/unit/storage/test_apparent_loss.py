"""Apparent losses that are none: empty segments, missing indexes, interrupted work."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable

import pytest

from barnabas.storage.log.truncation import truncate_to
from tests.support.power_cut_files import PowerCutFiles
from tests.unit.storage.cleaner.support import compact, put, settle
from tests.unit.storage.support import Bench, batch, offsets, read_batches


def compacted(files: PowerCutFiles, stays: Callable[[int], bool]) -> tuple[Bench, list[tuple[int, int]]]:
    """A log whose records are on disk, of which compaction left only some; and its batches."""
    files.make_lasting_directory("/d")
    bench = Bench("/d", files, segment_bytes=300, cleanup_policy=("compact",), flush_messages=1)
    log = bench.open()
    for number in range(24):
        put(log, (f"only-{number}" if stays(number) else "again", "x" * 60))
    settle(log)
    compact(bench, log)
    log.flush()
    assert log.flush_state.recovery_point == log.log_end_offset
    return bench, offsets(read_batches(log))


@pytest.mark.parametrize("seed", range(40))
def test_an_empty_segment_is_no_loss_when_the_power_goes_again_after_recovery(seed: int) -> None:
    """Nor where the cleaner had no time to write down how far it had come."""
    files = PowerCutFiles(seed)
    bench, kept = compacted(files, lambda number: number % 12 > 8)
    for _ in range(3):
        files.cut_power()
        assert offsets(read_batches(bench.open())) == kept


@pytest.mark.parametrize("seed", range(40))
def test_an_index_that_was_missing_is_whole_or_missing_after_the_next_power_cut(seed: int) -> None:
    files = PowerCutFiles(seed)
    bench, kept = compacted(files, lambda number: number % 3 == 1)
    for name in bench.names(".index"):
        files.unlink(f"{bench.directory}/{name}")
    files.sync_directory(bench.directory)
    for _ in range(2):
        files.cut_power()
        assert offsets(read_batches(bench.open())) == kept


class Killed(BaseException):
    """Between two system calls."""


def test_a_kill_during_the_recovery_of_an_empty_segment_loses_nothing() -> None:
    whole = PowerCutFiles(1)
    _, kept = compacted(whole, lambda number: number % 12 > 8)
    steps, is_killed = 0, True
    while is_killed:
        files = copy.deepcopy(whole)
        left = steps = steps + 1

        def die(_operation: str, _path: str) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise Killed

        files.before = die
        again = Bench("/d", files, segment_bytes=300, cleanup_policy=("compact",))
        with contextlib.suppress(Killed):
            again.open()
        is_killed = left <= 0
        files.before = None
        assert offsets(read_batches(again.open())) == kept, f"killed at step {steps}"
    assert steps > 50, "there was more to do than that"


@pytest.mark.parametrize("seed", range(40))
def test_an_index_that_is_rewritten_while_a_flush_ends_is_synced_by_the_next(seed: int) -> None:
    files = PowerCutFiles(seed)
    files.make_lasting_directory("/d")
    bench = Bench("/d", files, segment_bytes=300, cleanup_policy=("compact",), flush_messages=1)
    log = bench.open()
    log.flush_by(lambda _: None)

    def append(*at: int) -> None:
        for offset in at:
            log.append_as_follower(batch([bytes(60)], key=b"k%d" % offset, base_offset=offset))

    append(0, 10, 20)
    work = log.plan_flush()
    assert work is not None
    work()  # its end is not known to the loop yet
    truncate_to(log, 10)
    append(12, 30, 40)
    log.flush_completed(work)
    log.flush()
    kept = offsets(read_batches(log))
    files.cut_power()
    assert offsets(read_batches(bench.open())) == kept


@pytest.mark.parametrize("policy", ["compact", "delete"])
def test_a_truncation_that_is_interrupted_leaves_no_hole(policy: str) -> None:
    files = PowerCutFiles(1)
    files.make_lasting_directory("/d")
    bench = Bench("/d", files, segment_bytes=300, cleanup_policy=(policy,))
    log = bench.open()
    for number in range(10):
        put(log, (f"k{number}", "x" * 60))
    log.flush()
    bases = [segment.base_offset for segment in log.segments]

    def die(operation: str, path: str) -> None:
        if operation == "rename" and path.endswith(f"{bases[3]:020d}.log"):
            raise Killed

    files.before = die
    with pytest.raises(Killed):
        truncate_to(log, bases[1] + 1)
    files.before = None
    found = [first for first, _ in offsets(read_batches(bench.open(recovery_point=bases[1])))]
    assert found == list(range(len(found)))
