"""Log of a file sink's directory, to which several streams add each of their micro-batches once.

Spark's readers of such a directory follow its log, `_spark_metadata`: a file counts if the log lists it.
Spark's own file sink numbers the entries like the query's micro-batches, and takes an existing number for a
finished batch. A second query, or the same one with a new checkpoint, would be skipped silently until it has
caught up. Here an entry gets the next free number, whichever query wrote the previous one. The names of its
files identify a batch: they contain the query id (constant for a checkpoint) and the batch number.

A batch is written to a staging directory, and its files are moved to their final names. The new log entry
then makes them count, all at once. An entry is made only after all earlier ones were checked, and only if its
number is free (`log_entry`). Of two drivers that run the same query for a moment, one writes the batch. Of
two queries that want the same number, the later one takes the next. Files left by a crash before the entry
count for nothing; no later attempt uses the same names.

Every tenth entry is a compact one, as in Spark's own sink: it repeats the lines of all entries before it.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from barnabas.core.clock import SystemClock
from barnabas.pipelines.spark.context.run_context import PipelineFailed
from barnabas.pipelines.spark.state.log_entry import create_entry
from barnabas.pipelines.state.durable_files import LOCAL_SCHEME, sync_files

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
        """Last entry up to which no entry belongs to a batch that this run has still to write."""

    def refuse_foreign_files(self) -> None:
        """Raises PipelineFailed if the directory holds other files: the log of the first stream would hide
        them."""
        if self._files.exists(self._inside(LOG)) or not self._files.exists(self._root):
            return
        found = [str(each.getPath().getName()) for each in self._files.listStatus(self._root)]
        foreign = sorted(name for name in found if not name.startswith(_HIDDEN))
        if foreign:
            raise PipelineFailed(
                f"sink.path: {self._path} holds {foreign[0]!r}, which no pipeline wrote: Spark would no"
                " longer read it once a pipeline writes there; expected an empty directory, or a pipeline's"
            )

    def holds(self, query_id: str, batch_id: int) -> bool:
        """True if the log lists the batch."""
        return self._holds(f"{query_id}-{batch_id}")

    def add(self, writer: DataFrameWriter, query_id: str, batch_id: int) -> None:
        """Write a batch with `writer` and add its files to the log, unless the log lists the batch."""
        tag = f"{query_id}-{batch_id}"
        log = self._open()
        latest = _latest(log)
        if self._checked is None:
            if self._holds(tag):
                return
            self._checked = latest
            self._clear(query_id)
        staging = self._inside(f"{STAGING}/{tag}-{uuid.uuid4().hex[:8]}")
        writer.mode("overwrite").save(str(staging))
        moved = self._move(staging, str(staging.getName()))
        if not self._enter(log, moved, tag):
            for status in moved:
                self._files.delete(status.getPath(), False)
        self._files.delete(staging, True)

    def _enter(self, log: Any, files: list[Any], tag: str) -> bool:
        """Make the log entry; False if another driver has added the batch."""
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
            if self._create(log, latest + 1, rows):
                self._checked += 1
                return True

    def _create(self, log: Any, number: int, rows: Any) -> bool:
        """Write the entry in Spark's format; False if another driver has made one with this number."""
        stream = self._jvm.java.io.ByteArrayOutputStream()
        log.serialize(rows, stream)
        version, *lines = str(stream.toString("UTF-8")).splitlines()
        interval = int(log.compactInterval())
        is_compact = (number + 1) % interval == 0
        if is_compact:
            lines = [*self._lines(log, range(max(0, number - interval), number)), *lines]
        text = "\n".join([version, *lines])
        if not create_entry(self._spark, self._files, log.batchIdToPath(number), text):
            return False
        if is_compact and log.isDeletingExpiredLog():
            self._delete_expired(log, number, interval)
        return True

    def _lines(self, log: Any, numbers: Iterable[int]) -> Iterator[str]:
        for number in numbers:
            _, *lines = self._text(f"{LOG}/{log.batchIdToPath(number).getName()}").splitlines()
            yield from lines

    def _delete_expired(self, log: Any, number: int, interval: int) -> None:
        """Delete entries that a compact one repeats, once no reader can still be reading them."""
        kept = number + 1 - int(log.minBatchesToRetain())
        last_compact = kept - kept % interval - 1
        written_before_ms = SystemClock().now_ms() - int(log.fileCleanupDelayMs())
        for status in self._files.listStatus(self._inside(LOG)):
            is_old = status.getModificationTime() <= written_before_ms
            if is_old and 0 <= _number(str(status.getPath().getName())) < last_compact:
                self._files.delete(status.getPath(), False)

    def _is_in(self, log: Any, number: int, tag: str) -> bool:
        entry = log.get(number)
        if entry.isEmpty():  # the log was compacted meanwhile
            return self._holds(tag)
        return any(f"-{tag}-" in str(status.path()) for status in entry.get())

    def _holds(self, tag: str) -> bool:
        """Search the whole log: its last compact entry repeats all earlier ones."""
        if not self._files.exists(self._inside(LOG)):
            return False
        names = [str(each.getPath().getName()) for each in self._files.listStatus(self._inside(LOG))]
        compact = max((_number(name) for name in names if name.endswith(COMPACT)), default=-1)
        later = [name for name in names if name.isdecimal() and _number(name) > compact]
        wanted = [*later, *([f"{compact}{COMPACT}"] if compact >= 0 else [])]
        return any(f"-{tag}-" in self._text(f"{LOG}/{name}") for name in wanted)

    def _text(self, name: str) -> str:
        stream = self._files.open(self._inside(name))
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
            target = self._inside(f"{inside + '/' if inside else ''}part-{number}-{name}{rest}")
            self._files.mkdirs(target.getParent())
            if not self._files.rename(source, target):
                raise PipelineFailed(f"{source} cannot be moved to {target}")
            moved.append(self._files.getFileStatus(target))
        self._sync(moved)
        return moved

    def _sync(self, moved: list[Any]) -> None:
        """Sync the files on a local disk, with their directories up to the log's, before the log lists
        them."""
        if str(self._files.getUri().getScheme()) != LOCAL_SCHEME or not moved:
            return
        root = Path(str(self._files.makeQualified(self._root).toUri().getPath()))
        files = [Path(str(status.getPath().toUri().getPath())) for status in moved]
        inside = {each for file in files for each in file.parents if each.is_relative_to(root)}
        sync_files([*files, *inside])

    def _clear(self, query_id: str) -> None:
        """Remove unfinished files of earlier runs of the query. A run that still writes them fails."""
        staging = self._inside(STAGING)
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
            str(self._inside(LOG)),
            self._jvm.scala.Option.empty(),
        )

    def _inside(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._root, name)


def _latest(log: Any) -> int:
    found = log.getLatestBatchId()
    return -1 if found.isEmpty() else int(found.get())


def _number(name: str) -> int:
    digits = name.removesuffix(COMPACT)
    return int(digits) if digits.isdecimal() else -1
