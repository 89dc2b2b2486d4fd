"""Repair of a checkpoint's last micro-batch before a query continues from it.

Spark logs a micro-batch in a file in `offsets` before it, with its end offsets, and in a file in `commits`
after it. Two things can be wrong with the last of them:

- A power failure truncates files, and Spark fails on them. A truncated commit is removed: the batch runs
  again, and the sink recognises it. Truncated offsets are removed if the sink does not hold the batch. If a
  topic sink holds it, they are restored from the group's offsets, which were committed with the batch.
  Otherwise the end of the batch is unknown, and the user decides.
- A batch that was planned without a bound, or with a larger one, may never finish: a transaction has a
  timeout. Spark would run it as planned, for ever. If the sink does not hold it, its plan is removed, and the
  records are planned again with the present bound.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

from barnabas.core.ids import TopicPartition
from barnabas.pipelines.spark.context.run_context import PipelineFailed, Run
from barnabas.pipelines.spark.recovery.failed_batch import failed_ranges
from barnabas.pipelines.spark.sinks import jdbc
from barnabas.pipelines.spark.sinks.file_log import FileLog
from barnabas.pipelines.spark.sinks.records import committed_by_group, last_batch
from barnabas.pipelines.spark.state.log_entry import create_entry
from barnabas.pipelines.spec.model import Delivery
from barnabas.pipelines.state.checkpoint_format import source_offsets
from barnabas.pipelines.state.progress import partition_offsets

logger = logging.getLogger(__name__)

TOO_LARGE: Final = 2
"""Factor over the bound of a micro-batch that rounding over partitions cannot explain."""
HEAD_LINES: Final = 2
"""Header lines of an offsets file: a version, and metadata. A line per source follows."""


def mend_checkpoint(run: Run) -> None:
    """Repair the checkpoint; raises PipelineFailed where the user has to decide."""
    end = _End(run)
    end.mend_commit()
    end.mend_offsets()
    end.plan_again()


class _End:
    """Last micro-batches of a checkpoint."""

    def __init__(self, run: Run) -> None:
        self._run = run
        jvm: Any = run.spark._jvm
        self._jvm = jvm
        root = jvm.org.apache.hadoop.fs.Path(run.checkpoint())
        self._files = root.getFileSystem(run.spark.sparkContext._jsc.hadoopConfiguration())

    def mend_commit(self) -> None:
        done = self._numbers("commits")
        if done and not _is_whole_commit(self._text("commits", done[-1])):
            logger.warning("pipeline %s: commit %d is truncated: the batch runs again", self._name, done[-1])
            self._remove("commits", done[-1])

    def mend_offsets(self) -> None:
        begun, done = self._numbers("offsets"), self._numbers("commits")
        if not begun or _is_whole_plan(self._text("offsets", begun[-1])):
            return
        last = begun[-1]
        is_done = last in done or is_finished(self._run, self._query_id, last)
        text = self._from_group(last) if is_done else None
        if is_done and text is None:
            raise PipelineFailed(self._question(last))
        logger.warning("pipeline %s: the offsets of batch %d are truncated and made again", self._name, last)
        self._remove("offsets", last)
        if text is not None:
            create_entry(self._run.spark, self._files, self._entry("offsets", last), text)

    def plan_again(self) -> None:
        spec = self._run.spec
        bound = spec.source.get("max_offsets_per_trigger")
        begun, done = self._numbers("offsets"), self._numbers("commits")
        if spec.source.type != "topic" or bound is None or not begun or begun[-1] in done:
            return
        size = sum(each.end - each.begin for each in failed_ranges(self._run))
        if size <= TOO_LARGE * bound or is_finished(self._run, self._query_id, begun[-1]):
            return
        logger.warning(
            "pipeline %s: batch %d of %d records is planned again, in parts", self._name, begun[-1], size
        )
        self._remove("offsets", begun[-1])

    @property
    def _name(self) -> str:
        return self._run.spec.name

    @property
    def _query_id(self) -> str:
        """Id under which the sink knows the query's batches."""
        try:
            return str(json.loads(self._read(f"{self._run.checkpoint()}/metadata"))["id"])
        except (ValueError, KeyError, TypeError, Py4JJavaError):
            raise PipelineFailed(
                f"{self._run.checkpoint()}/metadata cannot be read, so it is unknown which batches the sink"
                f" holds; {self._choices()}"
            ) from None

    def _from_group(self, batch_id: int) -> str | None:
        """Offsets file of a batch that the group has committed, based on that of the batch before."""
        spec = self._run.spec
        is_in_transaction = spec.sink.type == "topic" and spec.guarantee is Delivery.EXACTLY_ONCE
        if not is_in_transaction or spec.source.type != "topic" or batch_id == 0:
            return None
        before = self._text("offsets", batch_id - 1)
        if not _is_whole_plan(before):
            return None
        committed = committed_by_group(self._run, self._query_id, batch_id)
        return None if committed is None else _with_offsets(before, committed)

    def _question(self, batch_id: int) -> str:
        before = self._text("offsets", batch_id - 1) if batch_id else ""
        known = next(filter(None, map(partition_offsets, source_offsets(before))), {})
        return (
            f"{self._run.checkpoint()}/offsets/{batch_id} is truncated, as after a power failure;"
            f" batch {batch_id} is in the sink, but its end offsets are unknown (the one before ended at"
            f" {json.dumps(known)}); {self._choices()}"
        )

    def _choices(self) -> str:
        return (
            f"stop the pipeline and set its offsets (barnabas pipeline offsets {self._name}), or let it begin"
            f" again (barnabas pipeline reset {self._name}, pipeline run --from-scratch)"
        )

    def _entry(self, kind: str, batch_id: int) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self._run.checkpoint()}/{kind}/{batch_id}")

    def _numbers(self, kind: str) -> list[int]:
        path = self._jvm.org.apache.hadoop.fs.Path(f"{self._run.checkpoint()}/{kind}")
        if not self._files.exists(path):
            return []
        names = [str(each.getPath().getName()) for each in self._files.listStatus(path)]
        return sorted(int(name) for name in names if name.isdecimal())

    def _text(self, kind: str, batch_id: int) -> str:
        try:
            return self._read(f"{self._run.checkpoint()}/{kind}/{batch_id}")
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
        self._files.delete(self._entry(kind, batch_id), False)
        beside = f"{self._run.checkpoint()}/{kind}/.{batch_id}.crc"
        self._files.delete(self._jvm.org.apache.hadoop.fs.Path(beside), False)


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
    for topic_partition, offset in committed.items():
        if isinstance(document.get(topic_partition.topic), dict):
            document[topic_partition.topic][str(topic_partition.partition)] = offset
    return "\n".join([*lines[:HEAD_LINES], json.dumps(document, separators=(",", ":"))])


# --- batches that the sink holds ---


def is_finished(run: Run, query_id: str, batch_id: int) -> bool:
    """True if the sink holds a micro-batch, by a query of the sink.

    Spark commits a batch after the sink has taken it, so the checkpoint alone does not show it. A sink with
    at-least-once delivery may get a batch again, so it counts as one that does not hold it.
    """
    if run.spec.guarantee is not Delivery.EXACTLY_ONCE:
        return False
    return _HOLDS_BATCH[run.spec.sink.type](run, query_id, batch_id)


def _in_topic(run: Run, query_id: str, batch_id: int) -> bool:
    return last_batch(run, query_id) >= batch_id


def _in_files(run: Run, query_id: str, batch_id: int) -> bool:
    return FileLog(run.spark, str(run.resolved(run.spec.sink, "path"))).holds(query_id, batch_id)


def _in_table(run: Run, query_id: str, batch_id: int) -> bool:
    return jdbc.last_batch(run.spec.sink, run, query_id) >= batch_id


_HOLDS_BATCH: Mapping[str, Callable[[Run, str, int], bool]] = {
    "topic": _in_topic,
    "files": _in_files,
    "jdbc": _in_table,
}
