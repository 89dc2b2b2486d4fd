"""Table sink: every micro-batch is committed to a Delta Lake or Apache Iceberg table once.

Tasks write Parquet files with pyarrow and report them. The driver commits the files of the attempts that
count, with the mark of the batch, in one commit (`tables.commits`). With mode upsert it also replaces the
files that have rows with a key of the batch (`tables.copy_on_write`).

After the commit no other attempt at the batch can be committed. So the driver removes files of the batch
that the commit does not list, where there may be any. A task was tried more than once, or an earlier driver
left the batch unfinished. Then it does the maintenance that is due. Both belong to the micro-batch: no
commit of the pipeline runs beside them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from barnabas.core.clock import SystemClock
from barnabas.pipelines.spark.context.connector import source_options
from barnabas.pipelines.spark.context.run_context import Away, PipelineFailed, PipelineInvalid, Run
from barnabas.pipelines.spark.context.topics import CLEANUP_POLICY, topic_setting
from barnabas.pipelines.spark.sinks.table.direct import route_of
from barnabas.pipelines.spark.sinks.table.rows import TableRows, gathered, last_of_each_key, table_rows
from barnabas.pipelines.spark.sinks.table.task import REPORT, Report, report_of, trial_of, writer_of
from barnabas.pipelines.spark.state.state_files import batch_numbers, read_note, write_note
from barnabas.pipelines.spec.model import Part, Tolerance
from barnabas.pipelines.spec.options.option import duration_ms
from barnabas.pipelines.spec.options.value_parsers import size_bytes
from barnabas.pipelines.state.durable_files import sync_plan
from barnabas.pipelines.tables import commits
from barnabas.pipelines.tables.commits import NotTheSameBatch, Replaced, TooManyConflicts, is_done
from barnabas.pipelines.tables.copy_on_write import without_keys
from barnabas.pipelines.tables.data_files import DataFile, Layout
from barnabas.pipelines.tables.file_names import BatchName, new_run
from barnabas.pipelines.tables.mark import BatchMark, sources_of
from barnabas.pipelines.tables.open_table import open_table
from barnabas.pipelines.tables.schemas import Difference, DoesNotFit, difference
from barnabas.pipelines.tables.storage import UnknownScheme
from barnabas.pipelines.tables.table import Change, Table, TableRefused
from barnabas.pipelines.tables.upkeep import maintain
from barnabas.security.identity.secret_references import resolve
from pyspark_barnabas.writers.batch_names import QUERY_ID

logger = logging.getLogger(__name__)

APPEND: Final = "append"
UPSERT: Final = "upsert"
NOTE: Final = "table-mode"
STRICT: Final = "strict"
CODECS: Final = {"none": "NONE"}


def write(rows: DataFrame, part: Part, run: Run) -> DataStreamWriter:
    chosen, table = _opened(rows, part, run)
    sink = _Sink(chosen, table, part, run)
    sink.check()
    return chosen.frame.writeStream.foreachBatch(sink.take)


def try_out(rows: DataFrame, part: Part, run: Run) -> None:
    """Check that the table takes the rows, without writing them."""
    chosen, table = _opened(rows, part, run)
    layout = _Sink(chosen, table, part, run).layout()
    check = trial_of(layout, chosen.key)
    chosen.frame.mapInArrow(check, "nothing INT").write.format("noop").mode("overwrite").save()


def held_mark(part: Part, query: str) -> BatchMark | None:
    """Mark of the query's last batch in the table; None without a table or a batch."""
    try:
        table = open_table(_options(part), pa.schema([]), (), SystemClock(), create=False)
    except TableRefused:
        return None
    return table.mark(query)


def mode_of(part: Part, run: Run) -> str:
    """Mode in the spec, or that of the topics: upsert for compacted ones. The first choice is kept."""
    given = part.get("mode")
    if given is not None:
        return str(given)
    if part.get("key"):
        return UPSERT
    location = run.checkpoint(NOTE)
    known = read_note(run, location)
    if known is not None:
        return known
    source = run.spec.source
    topics = source.get("topics") if source.type == "topic" else None
    mode = APPEND
    if topics:
        policies = topic_setting(source_options(source, run), topics, CLEANUP_POLICY)
        if policies and all("compact" in policy.split(",") for policy in policies.values()):
            mode = UPSERT
            logger.warning(
                "pipeline %s: %s is compacted, so the table keeps the last row of each key (mode: upsert)",
                run.spec.name,
                ", ".join(topics),
            )
    write_note(run, location, mode)
    return mode


class _Sink:
    """The table as one run of the query writes it."""

    def __init__(self, rows: TableRows, table: Table, part: Part, run: Run) -> None:
        self._rows = rows
        self._table = table
        self._part = part
        self._pipeline = run.spec.name
        self._generation = run.generation
        self._run = run
        self._driver = new_run()
        self._unfinished = set(batch_numbers(run, "offsets")[-1:])
        """Batch that an earlier driver may have left files of."""
        self._route = route_of(rows, run)
        self._warned: set[str] = set()

    def check(self) -> None:
        """Raises PipelineInvalid if the table cannot take the rows."""
        wanted, there = self._rows.partition_by, self._table.partition_by()
        if wanted and wanted != there:
            raise PipelineInvalid(
                f"sink.partition_by: the table is partitioned by {', '.join(there) or 'nothing'}, not by"
                f" {', '.join(wanted)}; a table keeps its partitions"
            )
        if self._rows.key:
            try:
                self._table.refuse_rewrites()
            except TableRefused as reason:
                raise PipelineInvalid(f"sink: {reason}") from None
        try:
            self.layout().storage.check()
        except UnknownScheme as reason:
            raise PipelineInvalid(f"sink: {reason}") from None

    def take(self, batch: DataFrame, batch_id: int) -> None:
        """Commit a micro-batch, unless the table holds it."""
        sync_plan(self._run.checkpoint(), batch_id)
        query = batch.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
        assert query, "a micro-batch has a query"
        name = BatchName(query, self._generation, batch_id, self._driver)
        plan = read_note(self._run, f"{self._run.checkpoint()}/offsets/{batch_id}") or ""
        token = f"{self._driver}-{batch_id}"
        mark = BatchMark(self._pipeline, query, self._generation, batch_id, sources_of(plan), token)
        self._table.refresh()
        try:
            if not is_done(self._table, mark):
                self._commit(batch, mark, name)
        except (Replaced, NotTheSameBatch) as error:
            raise PipelineFailed(f"sink: {error}") from None
        except TooManyConflicts as error:
            raise Away(f"sink: {error}") from None
        self._note_figures()

    def layout(self) -> Layout:
        return self._planned()[0]

    def _commit(self, batch: DataFrame, mark: BatchMark, name: BatchName) -> None:
        layout, columns = self._planned()
        report = self._write(batch, layout, name)
        keys = pa.concat_tables(report.keys) if report.keys else None

        rewritten: list[DataFile] = []

        def change() -> Change:
            layout.storage.remove(each.path for each in rewritten)  # of an attempt that was refused
            rewritten.clear()
            if keys is None:
                return Change(mark, report.files, (), columns)
            done = without_keys(self._table, keys, layout, name)
            rewritten.extend(done.added)
            return Change(mark, [*report.files, *done.added], done.removed, columns)

        def remove(files: Sequence[DataFile]) -> None:
            layout.storage.remove(each.path for each in [*report.files, *files])

        is_ours = commits.commit_batch(self._table, mark, change, remove, threading.Event().wait)
        if is_ours and (report.is_repeated or mark.batch_id in self._unfinished):
            committed = {each.path for each in (*report.files, *rewritten)}
            leftovers = [
                each.path
                for each in layout.storage.list()
                if name.owns(each.path) and each.path not in committed
            ]
            layout.storage.remove(leftovers)
        self._note_newest(report)
        self._maintain(mark.batch_id, layout, name)

    def _write(self, batch: DataFrame, layout: Layout, name: BatchName) -> Report:
        direct = self._write_directly(batch, layout, name)
        if direct is not None and not direct.is_doubtful:
            self._run.counts[name.batch_id] = sum(each.rows for each in direct.files)
            return direct
        found = self._write_from_spark(batch, layout, name)
        # An attempt of the other way that died may have left files.
        return replace(found, is_repeated=found.is_repeated or (direct is not None and direct.is_repeated))

    def _write_directly(self, batch: DataFrame, layout: Layout, name: BatchName) -> Report | None:
        if self._route is None:
            return None
        write = writer_of(layout, name, ())
        rows = self._route.write(batch.sparkSession.sparkContext, name.batch_id, write)
        if rows is None:
            return None
        found = report_of(rows)
        self._route.note_outcome(is_plain=not found.is_doubtful)
        if found.is_doubtful:
            layout.storage.remove(each.path for each in found.files)
        return found

    def _write_from_spark(self, batch: DataFrame, layout: Layout, name: BatchName) -> Report:
        if self._rows.key:
            tasks = batch.sparkSession.sparkContext.defaultParallelism
            batch = last_of_each_key(batch, self._rows.key, tasks)
        known = [each for each in layout.partition_by if each in batch.columns]
        rows = gathered(batch, known)
        return report_of(rows.mapInArrow(writer_of(layout, name, self._rows.key), REPORT).collect())

    def _planned(self) -> tuple[Layout, pa.Schema | None]:
        """Layout of the files, and the table's columns if the commit is to change them."""
        found = self._difference()
        columns = self._table.columns()
        if found.changes_table:
            columns = self._table.columns_with(found.added, found.widened)
        codec = str(CODECS.get(self._part["compression"], self._part["compression"]))
        layout = self._table.layout(columns, size_bytes(self._part["target_file_size"]), codec)
        return layout, columns if found.changes_table else None

    def _difference(self) -> Difference:
        is_strict = self._part["evolve"] == STRICT
        can_widen = self._table.can_widen and not is_strict
        try:
            found = difference(self._rows.columns, self._table.columns(), can_widen=can_widen)
        except DoesNotFit as error:
            raise PipelineInvalid(f"sink: {error}") from None
        if is_strict and found.added:
            names = ", ".join(each.name for each in found.added)
            raise PipelineInvalid(f"sink: the table has no column {names}, and evolve is strict")
        for name, reason in found.unfit.items():
            if self._run.spec.errors.tolerance is Tolerance.NONE:
                raise PipelineInvalid(
                    f"sink: {reason}. Cast it, give it another name, or write into another table; with"
                    " tolerance: all and a dead_letter_topic, records with a value there become dead letters"
                )
            if name not in self._warned:
                self._warned.add(name)
                logger.warning("pipeline %s: %s; only nulls fit", self._pipeline, reason)
        return found

    def _maintain(self, batch_id: int, layout: Layout, name: BatchName) -> None:
        every = int(self._part["maintenance"])
        if not every or (batch_id + 1) % every:
            return
        done = maintain(self._table, layout, name, duration_ms(self._part["keep"]), SystemClock())
        logger.info(
            "pipeline %s: maintenance compacted %d files and removed %d",
            self._pipeline,
            done.compacted,
            done.removed,
        )

    def _note_newest(self, report: Report) -> None:
        if report.newest_ms is not None:
            self._run.figures["newest_ms"] = report.newest_ms

    def _note_figures(self) -> None:
        self._run.figures.update(self._table.figures().to_document())


def _opened(rows: DataFrame, part: Part, run: Run) -> tuple[TableRows, Table]:
    """Rows in the table's form, and the table, which is created if it is missing."""
    key = part.get("key", ()) if mode_of(part, run) == UPSERT else None
    chosen = table_rows(
        rows,
        key=key,
        partition_by=part.get("partition_by", ()),
        has_record_columns=part["record_columns"],
    )
    try:
        table = open_table(
            _options(part), chosen.columns, chosen.partition_by, SystemClock(), create=part["create"]
        )
    except (TableRefused, UnknownScheme) as reason:
        raise PipelineInvalid(f"sink: {reason}") from None
    return chosen, table


def _options(part: Part) -> dict[str, Any]:
    """Options of the sink that say where the table is. Those of the storage resolve their secrets late."""
    found = {name: resolve(part.get(name)) for name in ("format", "path", "table")}
    return {**found, "catalog": resolve(part.get("catalog")), "storage": part.get("storage") or {}}
