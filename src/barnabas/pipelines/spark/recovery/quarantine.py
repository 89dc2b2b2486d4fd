"""Quarantine of records that make their micro-batch fail again and again.

Decoding separates records that cannot be decoded. A decoded record may still break a transform: a user's
function raises. Or the sink refuses it: the database rejects a value, the record is too large for the topic.
Such a record fails its whole micro-batch, at every attempt. With tolerance `all` and a dead-letter topic, the
records of the failed batch are tried alone, without writing, until the failing ones are found
(`bisect_bad_records`). They are noted beside the checkpoint and become dead letters when the batch runs
again. The batch and its offsets stay the same, so exactly-once still holds.

With a sink other than a topic, dead letters have their own query, which may have passed these records
already. So they are written at once, before they are noted, in a transaction named after its records; that
query skips them. A driver that dies before the note finds the same records and the same transaction again.
Other records are always written.

Notes are only added: a lost note would drop a record that is in no batch.

If all records of the batch pass, the cause was elsewhere (a broker or database out of reach), and no record
is noted.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know

from barnabas.pipelines.spark.context.run_context import Run
from barnabas.pipelines.spark.formats.decoding import is_quarantined, record_id_of_row
from barnabas.pipelines.spark.recovery.bisect_bad_records import (
    Range,
    Stopped,
    Trial,
    condemn,
    is_not_reached,
    is_of_transforms,
    spans,
)
from barnabas.pipelines.spark.recovery.dead_letters import REFUSED, dead_letters
from barnabas.pipelines.spark.recovery.error_reasons import is_of_absence, reason_of
from barnabas.pipelines.spark.recovery.failed_batch import failed_ranges
from barnabas.pipelines.spark.sinks.records import write_letters
from barnabas.pipelines.spark.sinks.row_trials import is_refusal, try_sink
from barnabas.pipelines.spark.sources.topic import read
from barnabas.pipelines.spark.state.state_files import add_note, read_note, read_notes
from barnabas.pipelines.spec.model import Part, Tolerance

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


LETTERS_PER_WRITE = 500
"""Bound of the names in one query."""


def can_quarantine(run: Run) -> bool:
    errors = run.spec.errors
    wanted = errors.tolerance is Tolerance.ALL and errors.dead_letter_topic is not None
    return wanted and run.spec.source.type == "topic"


def with_quarantine(run: Run) -> Run:
    """`run` with the records that were quarantined earlier."""
    if not can_quarantine(run):
        return run
    noted: dict[str, str] = {}
    for text in read_notes(run, run.checkpoint("quarantine")):
        noted |= json.loads(text)
    return replace(run, quarantine=noted)


def quarantine_more(
    run: Run, transform: Callable[[DataFrame], DataFrame], stopped: threading.Event | None = None
) -> bool:
    """Find and note the records that break the last failed batch; returns whether any is new."""
    if not can_quarantine(run):
        return False

    def attempt(part: Sequence[Range]) -> Trial | None:
        if stopped is not None and stopped.is_set():
            raise Stopped
        return _failure(part, run, transform)

    return condemn(
        run.quarantine,
        failed_ranges(run),
        attempt,
        write=partial(write_refused, run) if has_letters_apart(run) else None,
        note=lambda new: add_note(run, run.checkpoint("quarantine"), json.dumps(new)),
    )


def has_letters_apart(run: Run) -> bool:
    return run.spec.sink.type != "topic"


def without_quarantined(bad: DataFrame, run: Run) -> DataFrame:
    """Undecodable records without those that `quarantine_more` writes."""
    if not run.quarantine or "offset" not in bad.columns:
        return bad
    return bad.where(~is_quarantined(run))


def write_refused(run: Run, found: Mapping[str, str]) -> None:
    """Write the dead letters of records that the sink refuses, by `topic/partition/offset`."""
    ordered = sorted(found)
    for at in range(0, len(ordered), LETTERS_PER_WRITE):
        _write_letters(run, {record: found[record] for record in ordered[at : at + LETTERS_PER_WRITE]})


def _write_letters(run: Run, found: Mapping[str, str]) -> None:
    aside = replace(run, quarantine=found, is_main_source=False)
    bad = read(_source_of(spans(found), run), aside, streaming=False).bad
    assert bad is not None, "there is a dead-letter topic"
    about = json.loads(read_note(run, f"{run.checkpoint()}/metadata") or "{}")
    bad = bad.where(record_id_of_row().isin(*found))
    write_letters(dead_letters(bad, aside), run, letters_id(str(about["id"]), found))


def letters_id(query_id: str, found: Iterable[str]) -> str:
    """Name of the transaction with the letters of these records."""
    digest = hashlib.sha256("\n".join(sorted(found)).encode()).hexdigest()
    return f"{query_id}-{digest[:16]}"


def _failure(ranges: Sequence[Range], run: Run, transform: Callable[[DataFrame], DataFrame]) -> Trial | None:
    """Failure of ranges of records in the transforms or on the sink (`sinks.row_trials`), or None."""
    try:
        rows = read(_source_of(ranges, run), run, streaming=False).good
        if not ranges:
            rows = rows.where(F.lit(False))
        try_sink(transform(rows), run.spec.sink, run)
    except Exception as error:  # noqa: BLE001 - database drivers raise any exception
        is_at_fault = is_refusal(error) or is_of_transforms(str(error))
        reason = reason_of(error, run.spec)
        if is_refusal(error):
            reason = REFUSED + reason
        is_absence = is_of_absence(str(error))
        is_elsewhere = not is_at_fault and (is_absence or is_not_reached(str(error)))
        return Trial(reason, is_at_fault and not is_absence, is_elsewhere)
    return None


def _source_of(ranges: Sequence[Range], run: Run) -> Part:
    """Source of the pipeline, limited to these records."""
    begin, end = _bounds(ranges)
    given = {**run.spec.source.options, "starting_offsets": begin, "starting_timestamp": None}
    return Part("topic", {**given, "ending_offsets": end})


def _bounds(ranges: Sequence[Range]) -> tuple[str, str | None]:
    if not ranges:
        return "earliest", None
    begin: dict[str, dict[str, int]] = {}
    end: dict[str, dict[str, int]] = {}
    for each in ranges:
        begin.setdefault(each.topic, {})[str(each.partition)] = each.begin
        end.setdefault(each.topic, {})[str(each.partition)] = each.end
    return json.dumps(begin), json.dumps(end)
