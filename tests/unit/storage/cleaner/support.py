"""A compacted log that is written, compacted and read by hand."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.core.steps import Course
from barnabas.records.builder import build_batch
from barnabas.records.compression import Codec
from barnabas.records.record import Record, iterate_records
from barnabas.storage.cleaner.cleanable import log_to_clean
from barnabas.storage.cleaner.cleaning import Cleaning, Tools
from barnabas.storage.files.pacing import Pace, Throttle
from barnabas.storage.log.aborted_transactions import aborted_transactions
from barnabas.storage.log.log import Log
from tests.unit.storage.support import NOW_MS, Bench, read_batches

Pair = tuple[str, str | None]


def put(log: Log, *pairs: Pair, timestamp: int = NOW_MS, **fields: object) -> int:
    """Append one batch of keys and values (None: a tombstone); its base offset."""
    rows = [
        (key.encode(), None if value is None else value.encode(), (), timestamp + n)
        for n, (key, value) in enumerate(pairs)
    ]
    info = log.append_as_leader(build_batch(rows, **fields), leader_epoch=0)  # type: ignore[arg-type]
    return info.first_offset


def settle(log: Log) -> None:
    """Close the active segment and let every replica have everything: all of it may be compacted."""
    log.roll()
    log.advance_high_watermark(log.log_end_offset)


def start_cleaning(
    bench: Bench,
    log: Log,
    clean_to: int | None = None,
    *,
    buffer_bytes: int = 1 << 20,
    background: object = None,
) -> tuple[Cleaning, list[Exception | None]]:
    environment = bench.environment
    tools = Tools(
        environment,
        Throttle(environment.clock, environment.config),
        Pace(environment.clock),
        dedupe_buffer_bytes=buffer_bytes,
        io_buffer_bytes=4096,
        load_factor=0.9,
        on_progress=lambda _read, _written: None,
    )
    cleaning = Cleaning(log_to_clean(log, clean_to, environment.clock.now_ms()), tools)
    outcome: list[Exception | None] = []
    chosen = background or environment.background
    Course(cleaning.steps(), chosen, environment.scheduler, outcome.append).start()  # type: ignore[arg-type]
    return cleaning, outcome


def compact(bench: Bench, log: Log, clean_to: int | None = None, *, buffer_bytes: int = 1 << 20) -> int:
    """Run to the end; up to where the log is clean now."""
    cleaning, (error,) = start_cleaning(bench, log, clean_to, buffer_bytes=buffer_bytes)
    if error is not None:
        raise error
    return cleaning.end_offset


def records(log: Log, *, with_markers: bool = False) -> list[Record]:
    return [
        record
        for batch in read_batches(log)
        if with_markers or not batch.is_control
        for record in iterate_records(batch)
    ]


def pairs(log: Log) -> list[tuple[int, str, str | None]]:
    """Offset, key and value of every record."""
    return [
        (record.offset, (record.key or b"").decode(), None if record.value is None else record.value.decode())
        for record in records(log)
    ]


def committed(log: Log) -> list[Record]:
    """Records that a consumer with `read_committed` gets from the batches and the aborted transactions."""
    aborted = sorted(aborted_transactions(log, log.log_start_offset, log.log_end_offset), key=lambda a: a[1])
    skipping: set[int] = set()
    seen: list[Record] = []
    for batch in read_batches(log):
        if batch.base_offset >= log.last_stable_offset:
            break
        while aborted and aborted[0].first_offset <= batch.last_offset:
            skipping.add(aborted.pop(0).producer_id)
        if batch.is_control:
            for record in iterate_records(batch):
                if (record.key or b"")[3] == 0:
                    skipping.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in skipping):
            seen.extend(iterate_records(batch))
    return seen


def codecs() -> Sequence[Codec]:
    return tuple(Codec)
