"""A micro-batch that fails again and again because of a few of its records.

Records that cannot be read are told apart by decoding; a record that can be read and then breaks
a transform (a function of the user's that raises) fails its whole micro-batch, and would for
ever. With tolerance `all` and a dead-letter topic, the failed batch's records are tried by
themselves, without writing anything, until those that fail are found (`poison`). They are noted
beside the checkpoint and become dead letters when the batch is run again: same batch, same
offsets, so that what exactly-once promises still holds.

Beside a sink that is no topic, dead letters have a query of their own, which may have passed these
records by before anyone knew of them. There they are written at once, before they are noted, in a
transaction that is known by how many were noted before; that query leaves them out.

If all of the batch's records pass, it was not their fault (a broker or a database was away), and
nothing is noted.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know

from barnabas.pipelines.spark.dead_letters import dead_letters
from barnabas.pipelines.spark.failed_batch import failed_ranges
from barnabas.pipelines.spark.formats.decoding import place_of_row
from barnabas.pipelines.spark.notes import read_note, write_note
from barnabas.pipelines.spark.poison import (
    POISON_MAX,
    CannotTry,
    Range,
    TooMuchPoison,
    Trial,
    is_of_transforms,
    poison,
    spans,
    within,
)
from barnabas.pipelines.spark.reasons import reason_of
from barnabas.pipelines.spark.run import Run
from barnabas.pipelines.spark.sinks.records import write_letters
from barnabas.pipelines.spark.sources.topic import read
from barnabas.pipelines.spec.model import Part, Tolerance

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class _Stopped(Exception):
    """The pipeline is to stop: nothing more is tried."""


def can_quarantine(run: Run) -> bool:
    errors = run.spec.errors
    wanted = errors.tolerance is Tolerance.ALL and errors.dead_letter_topic is not None
    return wanted and run.spec.source.type == "topic"


def with_quarantine(run: Run) -> Run:
    """`run`, with the records that were set aside earlier."""
    if not can_quarantine(run):
        return run
    text = read_note(run, run.checkpoint("quarantine"))
    return replace(run, quarantine={} if text is None else json.loads(text))


def quarantine_more(
    run: Run, transform: Callable[[DataFrame], DataFrame], stopped: threading.Event | None = None
) -> bool:
    """Find what breaks the batch that failed last, and note it; says whether there was anything new.

    What is noted already is not tried again, and all that is noted of one batch counts: so a batch that
    fails for a reason that trials do not show is run again a bounded number of times.
    """
    if not can_quarantine(run):
        return False

    def attempt(part: Sequence[Range]) -> Trial | None:
        if stopped is not None and stopped.is_set():
            raise _Stopped
        return _failure(part, run, transform)

    ranges = failed_ranges(run)
    room = POISON_MAX - len(within(run.quarantine, ranges))
    try:
        if not ranges or attempt([]) is not None:
            return False
        found = poison(ranges, attempt, room)
    except (TooMuchPoison, CannotTry, _Stopped):
        return False
    new = {record: reason for record, reason in found.items() if record not in run.quarantine}
    if not new:
        return False
    if has_letters_apart(run):
        _write_letters(run, new)
    write_note(run, run.checkpoint("quarantine"), json.dumps({**run.quarantine, **new}))
    return True


def has_letters_apart(run: Run) -> bool:
    return run.spec.sink.type != "topic"


def without_quarantined(bad: DataFrame, run: Run) -> DataFrame:
    """Of records that could not be read, those that are not written by `quarantine_more`."""
    if not run.quarantine or "offset" not in bad.columns:
        return bad
    return bad.where(~place_of_row().isin(*run.quarantine))


def _write_letters(run: Run, found: Mapping[str, str]) -> None:
    aside = replace(run, quarantine=found, is_main_source=False)
    bad = read(_source_of(spans(found), run), aside, streaming=False).bad
    assert bad is not None, "there is a dead-letter topic"
    about = json.loads(read_note(run, f"{run.checkpoint()}/metadata") or "{}")
    bad = bad.where(place_of_row().isin(*found))
    write_letters(dead_letters(bad, run), run, str(about["id"]), len(run.quarantine))


def _failure(ranges: Sequence[Range], run: Run, transform: Callable[[DataFrame], DataFrame]) -> Trial | None:
    """Runs ranges of records through the transforms and throws the outcome away."""
    try:
        rows = read(_source_of(ranges, run), run, streaming=False).good
        if not ranges:
            rows = rows.where(F.lit(False))
        transform(rows).write.format("noop").mode("overwrite").save()
    except PySparkException as error:
        return Trial(reason_of(error, run.spec), is_of_transforms(str(error)))
    return None


def _source_of(ranges: Sequence[Range], run: Run) -> Part:
    """The pipeline's source, of these records alone."""
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
