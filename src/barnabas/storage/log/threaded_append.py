"""Large appends: checked on the loop, written by a thread, recorded on the loop (ADR 29).

While the thread writes, the log is unchanged: readers see its old end. The bytes go behind that end, so a log
has one such write at a time. Later appends queue behind it. Every other change first *settles* the write
(`Log.settle`): a truncation, a roll, an append of the broker itself, a change of leadership. Settling waits
for the thread or writes on the loop, and the append counts. So a log changes in the same order as with writes
on the loop.

A failed write takes the directory offline, as every failed write does. A crash leaves at most a torn batch,
which recovery cuts off: no producer has received an acknowledgement for it.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.core.reporting.error_isolation import sweeping
from barnabas.storage.log.log import Log
from barnabas.storage.log.parts.append import AppendInfo, Outcome, Records, ThreadedWrite
from barnabas.storage.producers.append_checks import AppendOrigin


def when_written(log: Log, go_on: Callable[[], None]) -> None:
    """Call `go_on` in its turn: now, or after all earlier appends are written."""
    if log.writing is None and not log.waiting:
        go_on()
    else:
        log.waiting.append(go_on)


def append_elsewhere(log: Log, records: Records, leader_epoch: int, done: Callable[[Outcome], None]) -> None:
    """Append records of a client as `Log.append_as_leader` does, with a thread for the write.

    `done` is called when the write is over. The caller must not touch `records` until then. A failed check
    raises, and `done` is not called."""
    assert log.writing is None, "one write at a time"
    now_ms = log.environment.clock.now_ms()
    accepted = log.accept(records, leader_epoch, AppendOrigin.CLIENT, now_ms)
    if isinstance(accepted, AppendInfo):
        _report(log, done, accepted)
        return
    segment = log.segment_for(accepted.batches, len(accepted.buffer), accepted.max_timestamp, now_ms)
    with log.guarded("appending"):
        segment.look_up_max_timestamp()
        writing = ThreadedWrite(segment, accepted, log.log_end_offset, done)
    log.writing = writing
    log.environment.writers(log.log_directory).submit(
        writing.perform, lambda _: _written(log, writing), lambda _: _written(log, writing)
    )


def _written(log: Log, writing: ThreadedWrite) -> None:
    """Report a write that a thread, or `Log.settle`, has finished."""
    if log.writing is writing:
        log.settle()
    assert writing.outcome is not None
    _report(log, writing.done, writing.outcome)
    if log.is_queue_running:
        return  # no thread ran this: the caller runs the queue, so a long queue makes no deep stack
    log.is_queue_running = True
    try:
        while log.waiting and log.writing is None:
            with sweeping("an append that waited", log.topic_partition):
                log.waiting.popleft()()
    finally:
        log.is_queue_running = False


def _report(log: Log, done: Callable[[Outcome], None], outcome: Outcome) -> None:
    """Report once. A fault in the answer neither stops the queue nor refuses the append."""
    with sweeping("the answer to an append", log.topic_partition):
        done(outcome)
