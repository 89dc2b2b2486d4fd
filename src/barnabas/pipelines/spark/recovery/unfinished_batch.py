"""Repair of a checkpoint's last micro-batch before a query continues from it.

Spark logs a micro-batch in a file in `offsets` before it, with its end offsets, and in a file in `commits`
after it. Three things can be wrong with the last of them:

- A power failure truncates files, and Spark fails on them. Truncated commits are removed: the last batch runs
  again, and the sink recognises it. Truncated offsets are removed if the sink does not hold the batch. If a
  topic sink or a table holds it, they are restored from the offsets that were committed with the batch.
  Otherwise the end of the batch is unknown, and the user decides.
- The sink holds a batch that the checkpoint lacks: the checkpoint is an older copy, or on a file system that
  lost its last files. The batch would be planned again with other offsets, and the sink would skip it. The
  offsets are restored as above, or the user decides.
- A batch that was planned without a bound, or with a larger one, may never finish: a transaction has a
  timeout. Spark would run it as planned, for ever. If the sink does not hold it, its plan is removed, and the
  records are planned again with the present bound.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

from barnabas.core.ids import TopicPartition
from barnabas.pipelines.spark.context.run_context import PipelineFailed, Run
from barnabas.pipelines.spark.recovery.failed_batch import failed_ranges
from barnabas.pipelines.spark.sinks import jdbc
from barnabas.pipelines.spark.sinks.file_log import FileLog
from barnabas.pipelines.spark.sinks.records import written_letters, written_topic
from barnabas.pipelines.spark.sinks.table import sink as table
from barnabas.pipelines.spark.state.log_entry import create_entry
from barnabas.pipelines.spec.model import Delivery
from barnabas.pipelines.state.checkpoint_format import HEAD_LINES, source_offsets
from barnabas.pipelines.state.progress import partition_offsets
from barnabas.pipelines.tables.mark import BatchMark
from pyspark_barnabas.writers.sink import ExactlyOnceBatchWriter

logger = logging.getLogger(__name__)

TOO_LARGE: Final = 2
"""Factor over the bound of a micro-batch that rounding over partitions cannot explain."""


def mend_checkpoint(run: Run) -> None:
    """Repair the checkpoints of the queries; raises PipelineFailed where the user has to decide."""
    end = _End(run, run.checkpoint(), _sink_of(run))
    end.mend()
    end.plan_again()
    if run.spec.errors.dead_letter_topic is not None and run.spec.sink.type != "topic":
        _End(run, run.checkpoint("dead-letters"), _sink_of_letters(run)).mend()


class _End:
    """Last micro-batches of a checkpoint."""

    def __init__(self, run: Run, checkpoint: str, sink: _Sink) -> None:
        self._run = run
        self._checkpoint = checkpoint
        self._sink = sink
        jvm: Any = run.spark._jvm
        self._jvm = jvm
        root = jvm.org.apache.hadoop.fs.Path(checkpoint)
        self._files = root.getFileSystem(run.spark.sparkContext._jsc.hadoopConfiguration())

    def mend(self) -> None:
        self.mend_commits()
        self.mend_offsets()
        self.follow_sink()

    def mend_commits(self) -> None:
        for batch_id in reversed(self._numbers("commits")):
            if _is_whole_commit(self._text("commits", batch_id)):
                return
            logger.warning("pipeline %s: commit %d is truncated and removed", self._name, batch_id)
            self._remove("commits", batch_id)

    def mend_offsets(self) -> None:
        done = self._numbers("commits")
        for batch_id in reversed(self._numbers("offsets")):
            if _is_whole_plan(self._text("offsets", batch_id)):
                return
            is_done = batch_id in done or self._holds(batch_id)
            text = self._from_sink(batch_id) if is_done else None
            if is_done and text is None:
                raise PipelineFailed(self._question(batch_id))
            logger.warning(
                "pipeline %s: the offsets of batch %d are truncated and made again", self._name, batch_id
            )
            self._remove("offsets", batch_id)
            if text is not None:
                self._restore(batch_id, text)
                return

    def follow_sink(self) -> None:
        begun = self._numbers("offsets")
        if not begun and not self._files.exists(self._inside("metadata")):
            return
        last = begun[-1] if begun else -1
        if not self._holds(last + 1):
            return
        text = self._from_sink(last + 1)
        if text is None:
            raise PipelineFailed(
                f"{self._checkpoint} ends with batch {last}, but the sink holds batch {last + 1}: the"
                " checkpoint is an older copy, or lost files in a power failure, and records would be left"
                f" out; {self._choices()}"
            )
        logger.warning(
            "pipeline %s: the offsets of batch %d are missing and made again", self._name, last + 1
        )
        self._restore(last + 1, text)

    def plan_again(self) -> None:
        spec = self._run.spec
        bound = spec.source.get("max_offsets_per_trigger")
        begun, done = self._numbers("offsets"), self._numbers("commits")
        if spec.source.type != "topic" or bound is None or not begun or begun[-1] in done:
            return
        size = sum(each.end - each.begin for each in failed_ranges(self._run))
        if size <= TOO_LARGE * bound or self._holds(begun[-1]):
            return
        logger.warning(
            "pipeline %s: batch %d of %d records is planned again, in parts", self._name, begun[-1], size
        )
        self._remove("offsets", begun[-1])

    def _holds(self, batch_id: int) -> bool:
        return self._sink.holds is not None and self._sink.holds(self._query_id, batch_id)

    @property
    def _name(self) -> str:
        return self._run.spec.name

    @property
    def _query_id(self) -> str:
        """Id under which the sink knows the query's batches."""
        try:
            return str(json.loads(self._read(f"{self._checkpoint}/metadata"))["id"])
        except (ValueError, KeyError, TypeError, Py4JJavaError):
            raise PipelineFailed(
                f"{self._checkpoint}/metadata cannot be read, so it is unknown which batches the sink"
                f" holds; {self._choices()}"
            ) from None

    def _from_sink(self, batch_id: int) -> str | None:
        """Offsets file of a batch that the sink holds with its end, based on that of the batch before."""
        if self._sink.mark is not None:
            held = self._sink.mark(self._query_id)
            is_last = held is not None and held.batch_id == batch_id
            return held.plan_text(self._text("offsets", batch_id - 1)) if held and is_last else None
        topic = self._sink.topic
        if topic is None or self._run.spec.source.type != "topic" or batch_id == 0:
            return None
        before = self._text("offsets", batch_id - 1)
        if not _is_whole_plan(before):
            return None
        committed = topic().committed_with(self._query_id, batch_id)
        return None if committed is None else _with_offsets(before, committed)

    def _question(self, batch_id: int) -> str:
        before = self._text("offsets", batch_id - 1) if batch_id else ""
        known = next(filter(None, map(partition_offsets, source_offsets(before))), {})
        return (
            f"{self._checkpoint}/offsets/{batch_id} is truncated, as after a power failure;"
            f" batch {batch_id} is in the sink, but its end offsets are unknown (the one before ended at"
            f" {json.dumps(known)}); {self._choices()}"
        )

    def _choices(self) -> str:
        return (
            f"stop the pipeline and set its offsets (barnabas pipeline offsets {self._name}), or let it begin"
            f" again (barnabas pipeline reset {self._name}, pipeline run --from-scratch)"
        )

    def _restore(self, batch_id: int, text: str) -> None:
        create_entry(self._run.spark, self._files, self._inside(f"offsets/{batch_id}"), text)

    def _inside(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self._checkpoint}/{name}")

    def _numbers(self, kind: str) -> list[int]:
        path = self._inside(kind)
        if not self._files.exists(path):
            return []
        names = [str(each.getPath().getName()) for each in self._files.listStatus(path)]
        return sorted(int(name) for name in names if name.isdecimal())

    def _text(self, kind: str, batch_id: int) -> str:
        try:
            return self._read(f"{self._checkpoint}/{kind}/{batch_id}")
        except Py4JJavaError:  # wrong checksum, or missing
            return ""

    def _read(self, path: str) -> str:
        stream = self._files.open(self._jvm.org.apache.hadoop.fs.Path(path))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def _remove(self, kind: str, batch_id: int) -> None:
        """Delete an entry with its checksum file, even if the entry itself is missing."""
        self._files.delete(self._inside(f"{kind}/{batch_id}"), False)
        self._files.delete(self._inside(f"{kind}/.{batch_id}.crc"), False)


def _is_whole_commit(text: str) -> bool:
    version, _, metadata = text.partition("\n")
    return version.startswith("v") and _is_json(metadata.strip())


def _is_whole_plan(text: str) -> bool:
    """True if a plan has a version, metadata and the offsets of a source; `-` is a source without offsets
    yet."""
    version, *lines = text.splitlines() or [""]
    is_long = len(lines) >= HEAD_LINES
    return version.startswith("v") and is_long and all(line == "-" or _is_json(line) for line in lines)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _with_offsets(before: str, committed: dict[TopicPartition, int]) -> str | None:
    """Offsets file with the offsets of its only topic source; None if it has several sources."""
    lines = before.splitlines()
    if len(lines) != HEAD_LINES + 1:
        return None
    document: dict[str, Any] = json.loads(lines[HEAD_LINES])
    if not any(isinstance(document.get(each.topic), dict) for each in committed):
        return None  # the source is on another cluster, and only the batch's name was committed
    for topic_partition, offset in committed.items():
        if isinstance(document.get(topic_partition.topic), dict):
            document[topic_partition.topic][str(topic_partition.partition)] = offset
    return "\n".join([*lines[:HEAD_LINES], json.dumps(document, separators=(",", ":"))])


# --- batches that a sink holds ---


class _Sink(NamedTuple):
    """Sink of a query, as far as it knows the micro-batches that it holds."""

    holds: Callable[[str, int], bool] | None
    """True if the sink holds a batch of a query; None with at-least-once delivery, where it may get a batch
    again. Spark commits a batch after the sink has taken it, so the checkpoint alone does not show it."""
    topic: Callable[[], ExactlyOnceBatchWriter] | None = None
    """Sink that commits the source's offsets with its output."""
    mark: Callable[[str], BatchMark | None] | None = None
    """Last batch of a query in a table, with its end."""


def _sink_of(run: Run) -> _Sink:
    if run.spec.guarantee is not Delivery.EXACTLY_ONCE:
        return _Sink(None)
    if run.spec.sink.type == "topic":
        return _topic_sink(partial(written_topic, run))
    if run.spec.sink.type == "table":
        mark = partial(table.held_mark, run.spec.sink)
        return _Sink(partial(_in_lake, mark), mark=mark)
    if run.spec.sink.type == "mirror":
        # The group's offsets are those of another cluster, so a plan cannot be restored from them.
        return _Sink(_topic_sink(partial(written_topic, run)).holds)
    return _Sink(partial(_HOLDS_BATCH[run.spec.sink.type], run))


def _sink_of_letters(run: Run) -> _Sink:
    is_exactly_once = run.spec.delivery is Delivery.EXACTLY_ONCE
    return _topic_sink(partial(written_letters, run)) if is_exactly_once else _Sink(None)


def _topic_sink(topic: Callable[[], ExactlyOnceBatchWriter]) -> _Sink:
    return _Sink(lambda query_id, batch_id: topic().last_batch(query_id) >= batch_id, topic)


def _in_files(run: Run, query_id: str, batch_id: int) -> bool:
    return FileLog(run.spark, str(run.resolved(run.spec.sink, "path"))).holds(query_id, batch_id)


def _in_table(run: Run, query_id: str, batch_id: int) -> bool:
    return jdbc.last_batch(run.spec.sink, run, query_id) >= batch_id


def _in_lake(mark: Callable[[str], BatchMark | None], query_id: str, batch_id: int) -> bool:
    held = mark(query_id)
    return held is not None and held.batch_id >= batch_id


_HOLDS_BATCH: Mapping[str, Callable[[Run, str, int], bool]] = {"files": _in_files, "jdbc": _in_table}
