"""A micro-batch that fails again and again because of a few of its records.

Records that cannot be read are told apart by decoding; a record that can be read and then breaks
a transform (a function of the user's that raises) fails its whole micro-batch, and would for
ever. With tolerance `all` and a dead-letter topic, the failed batch's records are tried by
themselves, in halves and halves of halves, without writing anything, until those that fail are
found. They are noted beside the checkpoint and become dead letters when the batch is run again:
same batch, same offsets, so that what exactly-once promises still holds.

Beside a sink that is no topic, dead letters have a query of their own, which may have passed these
records by before anyone knew of them. There they are written at once, before they are noted, in a
transaction that is known by how many were noted before; that query leaves them out.

If all of the batch's records pass, it was not their fault (a broker or a database was away), and
nothing is noted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know

from barnabas.core.spark_journal import source_offsets
from barnabas.pipelines.progress import partition_offsets
from barnabas.pipelines.spark.dead_letters import dead_letters
from barnabas.pipelines.spark.formats.decoding import place_of_row
from barnabas.pipelines.spark.notes import read_note, write_note
from barnabas.pipelines.spark.reasons import reason_of
from barnabas.pipelines.spark.run import Run
from barnabas.pipelines.spark.sinks.records import write_letters
from barnabas.pipelines.spark.sources.topic import read
from barnabas.pipelines.spec.model import Part, Tolerance

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

POISON_MAX = 50
"""More than this in one micro-batch is no accident: the pipeline fails."""


class Range(NamedTuple):
    topic: str
    partition: int
    begin: int
    end: int


class TooMuchPoison(Exception):
    """More records of a batch fail than can be an accident."""


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


def quarantine_more(run: Run, transform: Callable[[DataFrame], DataFrame]) -> bool:
    """Find what breaks the batch that failed last, and note it; says whether there was anything."""
    if not can_quarantine(run):
        return False
    ranges, failure = _failed_ranges(run), partial(_failure, run=run, transform=transform)
    try:
        if not ranges or failure([]) is not None:
            return False
        found = poison(ranges, failure)
    except TooMuchPoison:
        return False
    if not found:
        return False
    if has_letters_apart(run):
        _write_letters(run, found)
    noted = json.dumps({**run.quarantine, **found})
    write_note(run, run.checkpoint("quarantine"), noted)
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


def spans(records: Iterable[str]) -> list[Range]:
    """Of each partition the range that all of its records are in."""
    found: dict[tuple[str, int], Range] = {}
    for record in records:
        topic, number, at = record.rsplit("/", 2)
        partition, offset = int(number), int(at)
        known = found.get((topic, partition), Range(topic, partition, offset, offset + 1))
        found[topic, partition] = known._replace(
            begin=min(known.begin, offset), end=max(known.end, offset + 1)
        )
    return list(found.values())


def poison(ranges: Sequence[Range], failure: Callable[[Sequence[Range]], str | None]) -> dict[str, str]:
    """The records that fail by themselves, with why; `failure` tries ranges and says what went wrong."""
    found: dict[str, str] = {}

    def search(part: list[Range]) -> None:
        reason = failure(part)
        if reason is None:
            return
        size = sum(each.end - each.begin for each in part)
        if size <= 1:
            if len(found) == POISON_MAX:
                raise TooMuchPoison
            found[place(part[0].topic, part[0].partition, part[0].begin)] = reason
            return
        for half in halves(part, size):
            search(half)

    search([each for each in ranges if each.end > each.begin])
    return found


def halves(ranges: Sequence[Range], size: int) -> tuple[list[Range], list[Range]]:
    """Two parts of about the same number of offsets, neither of them empty."""
    left: list[Range] = []
    right: list[Range] = []
    room = size // 2
    for each in ranges:
        cut = each.begin + min(room, each.end - each.begin)
        room -= cut - each.begin
        left += [each._replace(end=cut)] if cut > each.begin else []
        right += [each._replace(begin=cut)] if cut < each.end else []
    return left, right


def place(topic: str, partition: int, offset: int) -> str:
    return f"{topic}/{partition}/{offset}"


def _failure(ranges: Sequence[Range], run: Run, transform: Callable[[DataFrame], DataFrame]) -> str | None:
    """Runs ranges of records through the transforms and throws the outcome away."""
    try:
        rows = read(_source_of(ranges, run), run, streaming=False).good
        if not ranges:
            rows = rows.where(F.lit(False))
        transform(rows).write.format("noop").mode("overwrite").save()
    except PySparkException as error:
        return reason_of(error, run.spec)
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


def _failed_ranges(run: Run) -> list[Range]:
    """What the batch that was begun last and not finished reads."""
    begun, done = _batches(run, "offsets"), _batches(run, "commits")
    if not begun or begun[-1] in done:
        return []
    end = partition_offsets(_journal(run, begun[-1]))
    begin = partition_offsets(_journal(run, begun[-1] - 1)) if begun[-1] > 0 else {}
    return [
        Range(topic, partition, begin.get(topic, {}).get(partition, 0), offset)
        for topic, partitions in end.items()
        for partition, offset in partitions.items()
    ]


def _batches(run: Run, kind: str) -> list[int]:
    """Spark's own file systems are asked, since the checkpoint may lie on any of them."""
    jvm: Any = run.spark._jvm
    path = jvm.org.apache.hadoop.fs.Path(f"{run.checkpoint()}/{kind}")
    files = path.getFileSystem(run.spark.sparkContext._jsc.hadoopConfiguration())
    if not files.exists(path):
        return []
    names = [str(status.getPath().getName()) for status in files.listStatus(path)]
    return sorted(int(name) for name in names if name.isdecimal())


def _journal(run: Run, batch_id: int) -> dict[str, Any]:
    text = read_note(run, f"{run.checkpoint()}/offsets/{batch_id}")
    return next(filter(partition_offsets, source_offsets(text or "")), {})
