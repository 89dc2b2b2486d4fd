"""Large appends: decided on the loop, written by a thread, taken note of on the loop (ADR 29).

While the bytes are on their way the log is as it was: readers see its old end. They go to the place behind
that end, so there is one such write at a time for a log. Who wants to append meanwhile waits in line, and
whoever changes the log otherwise (cuts it, rolls it, appends for the broker itself, leads or follows from
now on) first has the write *settled* (`Log.settle`): waits for the thread, or writes in its place, and the
append counts. So nothing in a log happens in another order than with writes on the loop.

A write that fails takes the directory offline, as any does. A process that dies leaves a torn batch at most,
which recovery cuts off: nobody was told of it.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.core.sweeping import sweeping
from barnabas.storage.log.append import AppendInfo
from barnabas.storage.log.log import Log
from barnabas.storage.log.write_elsewhere import Outcome, WriteElsewhere
from barnabas.storage.producers.append_checks import AppendOrigin


def when_written(log: Log, go_on: Callable[[], None]) -> None:
    """Call this in its turn: now, or when what came before is written."""
    if log.writing is None and not log.waiting:
        go_on()
    else:
        log.waiting.append(go_on)


def append_elsewhere(
    log: Log, records: bytearray | memoryview, leader_epoch: int, report: Callable[[Outcome], None]
) -> None:
    """Like `Log.append_as_leader` for a client, but a thread writes: `report` is called when that is over.

    Nobody may touch `records` until then. Raises what the checks find, and then reports nothing."""
    assert log.writing is None, "one write at a time"
    now_ms = log.environment.clock.now_ms()
    accepted = log.accept(records, leader_epoch, AppendOrigin.CLIENT, now_ms)
    if isinstance(accepted, AppendInfo):
        _tell(log, report, accepted)
        return
    segment = log.segment_for(accepted.batches, len(accepted.buffer), accepted.max_timestamp, now_ms)
    with log.guarded("appending"):
        segment.look_up_max_timestamp()
        writing = WriteElsewhere(segment, accepted, log.log_end_offset, report)
    log.writing = writing
    log.environment.writers(log.log_directory).submit(
        writing.perform, lambda _: _written(log, writing), lambda _: _written(log, writing)
    )


def _written(log: Log, writing: WriteElsewhere) -> None:
    """The thread is done, or there was none. The log may know already."""
    if log.writing is writing:
        log.settle()
    assert writing.outcome is not None
    _tell(log, writing.report, writing.outcome)
    if log.is_line_moving:
        return  # there was no thread: whoever had us written goes on, so that a long line is no deep stack
    log.is_line_moving = True
    try:
        while log.waiting and log.writing is None:
            with sweeping("an append that waited", log.topic_partition):
                log.waiting.popleft()()
    finally:
        log.is_line_moving = False


def _tell(log: Log, report: Callable[[Outcome], None], outcome: Outcome) -> None:
    """Once: a fault in the answer neither stops the line nor has the append refused after all."""
    with sweeping("the answer to an append", log.topic_partition):
        report(outcome)
