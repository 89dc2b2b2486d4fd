"""A directory of files that several streams may add to, each of their micro-batches once.

Spark's readers of such a directory believe its log, `_spark_metadata`: a file counts when it stands
there. Spark's own file sink numbers the log's entries as the query numbers its micro-batches, and
takes a number that is there for a batch that is done: a second query, or the same one with a new
checkpoint, would be skipped without a word until it has caught up. Here an entry gets the next free
number, whoever wrote the one before, and a batch is known by the names of its files, which carry the
query's id (a checkpoint keeps it for its life) and the batch's number.

A batch is written aside, its files are moved to their names, and the log's new entry makes them count,
all at once. An entry is made only where every earlier one was looked at, and only if its number is
free: of two drivers that run the same query for a moment, one writes the batch. What a crash leaves
behind before the entry is made counts for nothing; no later attempt has the same names.
"""

from __future__ import annotations

import re
import uuid
from typing import TYPE_CHECKING, Any

from barnabas.pipelines.spark.run import PipelineFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.readwriter import DataFrameWriter

LOG = "_spark_metadata"
COMPACT = ".compact"
STAGING = "_barnabas_staging"
_PART = re.compile(r"part-(\d+)-[0-9a-f-]{36}(.*)")
_HIDDEN = ("_", ".")


class FileLog:
    """The log as one run of a query sees it."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        jvm: Any = spark._jvm
        self._spark = spark
        self._jvm = jvm
        self._path = path.rstrip("/")
        self._root = jvm.org.apache.hadoop.fs.Path(path)
        self._files = self._root.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
        self._checked: int | None = None
        """No entry up to this one is of a batch that this run has still to write."""

    def refuse_foreign_files(self) -> None:
        """Files that no stream wrote would be hidden by the log of the first one that does."""
        if self._files.exists(self._place(LOG)) or not self._files.exists(self._root):
            return
        found = [str(each.getPath().getName()) for each in self._files.listStatus(self._root)]
        foreign = sorted(name for name in found if not name.startswith(_HIDDEN))
        if foreign:
            raise PipelineFailed(
                f"sink.path: {self._path} holds {foreign[0]!r}, which no pipeline wrote: Spark would not"
                " read it any more once one writes there; expected a directory that is empty or a pipeline's"
            )

    def add(self, writer: DataFrameWriter, query_id: str, batch_id: int) -> None:
        """What `writer` writes belongs to the directory from here on, unless the batch does already."""
        tag = f"{query_id}-{batch_id}"
        log = self._open()
        latest = _latest(log)
        if self._checked is None:
            if self._holds(tag):
                return
            self._checked = latest
            self._clear(query_id)
        staging = self._place(f"{STAGING}/{tag}-{uuid.uuid4().hex[:8]}")
        writer.mode("overwrite").save(str(staging))
        moved = self._move(staging, str(staging.getName()))
        if not self._enter(log, moved, tag):
            for status in moved:
                self._files.delete(status.getPath(), False)
        self._files.delete(staging, True)

    def _enter(self, log: Any, files: list[Any], tag: str) -> bool:
        """Make the entry; False if somebody else has made it."""
        sinks = self._jvm.org.apache.spark.sql.execution.streaming.sinks
        rows: Any = self._spark.sparkContext._gateway.new_array(sinks.SinkFileStatus, len(files))  # type: ignore[union-attr]
        for at, status in enumerate(files):
            rows[at] = sinks.SinkFileStatus.apply(status)
        while True:
            assert self._checked is not None
            latest = _latest(log)
            if any(self._is_in(log, number, tag) for number in range(self._checked + 1, latest + 1)):
                return False
            self._checked = latest
            if log.add(latest + 1, rows):
                self._checked += 1
                return True

    def _is_in(self, log: Any, number: int, tag: str) -> bool:
        entry = log.get(number)
        if entry.isEmpty():  # the log was made compact meanwhile
            return self._holds(tag)
        return any(f"-{tag}-" in str(status.path()) for status in entry.get())

    def _holds(self, tag: str) -> bool:
        """Looks through the whole log: its last compact file has all that came before."""
        if not self._files.exists(self._place(LOG)):
            return False
        names = [str(each.getPath().getName()) for each in self._files.listStatus(self._place(LOG))]
        compact = max((_number(name) for name in names if name.endswith(COMPACT)), default=-1)
        later = [name for name in names if name.isdecimal() and _number(name) > compact]
        wanted = [*later, *([f"{compact}{COMPACT}"] if compact >= 0 else [])]
        return any(f"-{tag}-" in self._text(f"{LOG}/{name}") for name in wanted)

    def _text(self, name: str) -> str:
        stream = self._files.open(self._place(name))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def _move(self, staging: Any, name: str) -> list[Any]:
        base = str(self._files.getFileStatus(staging).getPath())
        listed = self._files.listFiles(staging, True)
        found = []
        while listed.hasNext():
            found.append(listed.next().getPath())
        moved = []
        for source in found:
            part = _PART.fullmatch(str(source.getName()))
            if part is None:
                continue  # Spark's _SUCCESS
            inside = str(source.getParent())[len(base) :].strip("/")
            number, rest = part.groups()
            target = self._place(f"{inside + '/' if inside else ''}part-{number}-{name}{rest}")
            self._files.mkdirs(target.getParent())
            if not self._files.rename(source, target):
                raise PipelineFailed(f"{source} cannot be moved to {target}")
            moved.append(self._files.getFileStatus(target))
        return moved

    def _clear(self, query_id: str) -> None:
        """Remove what earlier runs of the query left half done; one that still goes on fails by it."""
        staging = self._place(STAGING)
        if not self._files.exists(staging):
            return
        for status in self._files.listStatus(staging):
            if str(status.getPath().getName()).startswith(f"{query_id}-"):
                self._files.delete(status.getPath(), True)

    def _open(self) -> Any:
        sinks = self._jvm.org.apache.spark.sql.execution.streaming.sinks
        return sinks.FileStreamSinkLog(
            sinks.FileStreamSinkLog.VERSION(),
            self._spark._jsparkSession,
            str(self._place(LOG)),
            self._jvm.scala.Option.empty(),
        )

    def _place(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._root, name)


def _latest(log: Any) -> int:
    found = log.getLatestBatchId()
    return -1 if found.isEmpty() else int(found.get())


def _number(name: str) -> int:
    digits = name.removesuffix(COMPACT)
    return int(digits) if digits.isdecimal() else -1
