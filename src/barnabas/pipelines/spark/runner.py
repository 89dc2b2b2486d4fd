"""Runner: builds a pipeline on Spark from its spec, starts it and watches it.

A run has its own SparkSession (views, settings, listeners) on the driver's one Spark context. So several
pipelines share a driver without interference. The spec defines source, decoding, transforms and sink; this
module joins, starts and stops them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException
from pyspark.sql import SparkSession

from barnabas.core.clock import SystemClock
from barnabas.pipelines.spark.checks.confinement import check_confined, confine
from barnabas.pipelines.spark.checks.start_check import begun_once
from barnabas.pipelines.spark.columns import single_message
from barnabas.pipelines.spark.context.run_context import (
    Away,
    PipelineFailed,
    PipelineInvalid,
    Rows,
    Run,
    TooManyErrors,
    Unavailable,
)
from barnabas.pipelines.spark.jvm.session import disable_adaptive_stateless_planning
from barnabas.pipelines.spark.jvm.stall_watchdog import StallWatchdog
from barnabas.pipelines.spark.recovery.dead_letters import dead_letters
from barnabas.pipelines.spark.recovery.error_reasons import failure_of, reason_of
from barnabas.pipelines.spark.recovery.quarantine import (
    has_letters_apart,
    quarantine_more,
    with_quarantine,
    without_quarantined,
    write_refused,
)
from barnabas.pipelines.spark.recovery.unfinished_batch import mend_checkpoint
from barnabas.pipelines.spark.sinks import console, files, http, jdbc, mirror, topic
from barnabas.pipelines.spark.sinks.built_sink import Background, BuiltSink
from barnabas.pipelines.spark.sinks.records import stream_letters
from barnabas.pipelines.spark.sinks.table import sink as table
from barnabas.pipelines.spark.sources.readers import READERS
from barnabas.pipelines.spark.state.batch_reports import BatchReports, OnProgress
from barnabas.pipelines.spark.state.checkpoint_manager import write_checkpoints_quickly
from barnabas.pipelines.spark.state.group_commits import GroupCommits
from barnabas.pipelines.spark.state.start_offsets import with_start
from barnabas.pipelines.spark.transforms import relational, stateful
from barnabas.pipelines.spec.model import Tolerance
from barnabas.pipelines.state.progress import Progress
from barnabas.security.identity.secret_references import UnresolvedSecret
from pyspark_barnabas import DefaultSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

Function = Callable[["DataFrame"], "DataFrame"]

TRANSFORMERS: Mapping[str, Callable[..., DataFrame]] = {
    "sql": relational.sql,
    "filter": relational.keep,
    "window": stateful.window,
    "deduplicate": stateful.deduplicate,
    "join": stateful.join,
    "python": relational.python,
    "InsertField": single_message.insert_field,
    "ReplaceField": single_message.replace_field,
    "MaskField": single_message.mask_field,
    "ValueToKey": single_message.value_to_key,
    "ExtractField": single_message.extract_field,
    "Cast": single_message.cast,
    "TimestampConverter": single_message.timestamp_converter,
    "TimestampRouter": single_message.timestamp_router,
    "RegexRouter": single_message.regex_router,
    "HoistField": single_message.hoist_field,
    "Flatten": single_message.flatten,
    "Filter": single_message.drop,
    "DropHeaders": single_message.drop_headers,
    "InsertHeader": single_message.insert_header,
}
"""Function of each transform in the catalogue."""
WRITERS: Mapping[str, Callable[..., BuiltSink]] = {
    "topic": topic.write,
    "files": files.write,
    "jdbc": jdbc.write,
    "table": lambda rows, _, part, run: BuiltSink(table.write(rows, part, run)),
    "console": console.write,
    "mirror": mirror.write,
    "http": lambda rows, _, part, run: http.write(rows, part, run, partial(write_refused, run)),
}
"""Function of each sink in the catalogue."""

WAIT_S = 1
"""Interval at which a waiting driver checks for a stop."""
STOP_GRACE_S = 10
"""Time that a micro-batch may take to finish before a stop interrupts it."""
STOP_POLL_S = 0.05


class RunningPipeline:
    """Started pipeline: one query, or two where dead letters have their own."""

    def __init__(
        self,
        run: Run,
        queries: Sequence[StreamingQuery],
        reports: BatchReports,
        background: Background | None = None,
    ) -> None:
        self.run = run
        self._background = background
        self._queries = tuple(queries)
        self._reports = reports
        clock = SystemClock()
        self._watchdogs = [
            StallWatchdog(clock, partial(_is_job_running, run.spark, query)) for query in queries
        ]

    @property
    def query(self) -> StreamingQuery:
        return self._queries[0]

    @property
    def failure(self) -> str | None:
        """Reason of a failure, or None."""
        for query in self._queries:
            if not query.isActive and (error := query.exception()) is not None:
                return reason_of(error, self.run.spec)
        return None

    def stop(self) -> None:
        """Stop between two micro-batches if possible. The next run repeats an interrupted one."""
        for query in self._queries:
            for _ in range(round(STOP_GRACE_S / STOP_POLL_S)):
                if not query.isActive or not query.status["isTriggerActive"]:
                    break
                time.sleep(STOP_POLL_S)
            query.stop()
        if self._background is not None:
            self._background.stop()
            self._background = None
        self._reports.stop()

    def wait(
        self, stopped: threading.Event | None = None, on_stopping: Callable[[], None] = lambda: None
    ) -> None:
        """Wait until the pipeline ends or `stopped` is set; raises PipelineFailed if it failed.

        `on_stopping` is called before queries are stopped because `stopped` is set.
        """
        try:
            while not all(query.awaitTermination(WAIT_S) for query in self._queries):
                self._reports.check()
                if stopped is not None and stopped.is_set():
                    on_stopping()
                    break
                for query, watchdog in zip(self._queries, self._watchdogs, strict=True):
                    watchdog.check(str(query.status["message"]), self._reports.batch_id)
                for query in self._queries:
                    if not query.isActive and query.exception() is not None:
                        query.awaitTermination()
        except StreamingQueryException as error:
            raise failure_of(error, self.run.spec) from error
        finally:
            self.stop()
        self._reports.check()


def _is_job_running(spark: SparkSession, query: StreamingQuery) -> bool:
    """True if a Spark job of the query runs. The run id of the query is its job group."""
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(each) for each in tracker.getJobIdsForGroup(str(query.runId))]
    return any(job is not None and job.status == "RUNNING" for job in jobs)


def start_pipeline(
    run: Run, on_progress: OnProgress = lambda _: None, functions: Sequence[Function] = ()
) -> RunningPipeline:
    """Start the pipeline of `run`; `functions` follow the transforms of its spec."""
    run = replace(run, spark=run.spark.newSession())
    _activate(run.spark)
    register_connector(run.spark)
    disable_adaptive_stateless_planning(run.spark)
    if run.is_confined:
        confine(run.spark)
    write_checkpoints_quickly(run.spark, run.directory)
    spec = run.spec
    if spec.errors.tolerance is Tolerance.ALL:
        # A value that does not convert becomes null instead of failing the micro-batch.
        run.spark.conf.set("spark.sql.ansi.enabled", "false")
    reports = BatchReports(spec, _with_commits(run, on_progress))
    try:
        run = with_quarantine(begun_once(with_start(run)))
        mend_checkpoint(run)
        queries, background = _start(run, functions)
        reports.follow(queries[0])
        if background is not None:
            background.start()
        return RunningPipeline(run, queries, reports, background)
    except BaseException as error:
        for query in run.spark.streams.active:
            query.stop()
        if (invalid := _invalid(error, run)) is not None:
            raise invalid from error
        raise


def _with_commits(run: Run, on_progress: OnProgress) -> OnProgress:
    """`on_progress` with the sink's figures, and a commit of the offsets where the sink makes none."""
    commits = GroupCommits(run)

    def commit_and_report(progress: Progress) -> None:
        progress = _counted(progress, run)
        if commits.is_needed:
            commits.commit(progress)
        on_progress(replace(progress, sink=dict(run.figures) or None))

    return commit_and_report


def _counted(progress: Progress, run: Run) -> Progress:
    """`progress` with the records that the sink counted, where Spark has not."""
    records = run.counts.pop(progress.batch_id, None)
    if records is None:
        return progress
    rate = records * 1_000 / progress.batch_ms if progress.batch_ms else 0.0
    return replace(progress, records=records, records_per_second=rate)


def _invalid(error: BaseException, run: Run) -> PipelineInvalid | None:
    """PipelineInvalid for a failure that every attempt would repeat; None if an attempt may succeed."""
    if isinstance(error, PipelineFailed):
        return None if isinstance(error, Unavailable) else PipelineInvalid(str(error), error.path)
    if isinstance(error, UnresolvedSecret):
        return PipelineInvalid(str(error))
    # Spark reports a Python source that cannot reach its brokers in the same way.
    is_sparks = isinstance(error, AnalysisException) and not (error.getCondition() or "PYTHON").startswith(
        "PYTHON"
    )
    return PipelineInvalid(reason_of(error, run.spec)) if is_sparks else None


def _activate(spark: SparkSession) -> None:
    """Make the session active: Spark looks up a format in the active session of the thread."""
    jvm: Any = spark._jvm
    SparkSession._get_j_spark_session_class(jvm).setActiveSession(spark._jsparkSession)


def register_connector(spark: SparkSession) -> None:
    """Register the data source. Spark's own discovery runs once, in a worker that a busy machine may start
    too late."""
    try:
        spark.dataSource.register(DefaultSource)
    except PySparkException as error:
        # Spark's discovery has registered it.
        if "ALREADY_EXISTS" not in str(error):
            raise


def run_pipeline(
    run: Run,
    on_progress: OnProgress = lambda _: None,
    functions: Sequence[Function] = (),
    *,
    stopped: threading.Event | None = None,
    on_running: Callable[[], None] = lambda: None,
    on_stopping: Callable[[], None] = lambda: None,
) -> None:
    """Run to the end, or until `stopped`. Records that break a transform are quarantined on the way."""
    while True:
        started = start_pipeline(run, on_progress, functions)
        on_running()
        try:
            started.wait(stopped, on_stopping)
        except (Away, PipelineInvalid, TooManyErrors):
            raise
        except PipelineFailed:
            transform = partial(_transformed, run=started.run, functions=functions)
            if not quarantine_more(started.run, transform, stopped):
                raise
        else:
            return


def _start(run: Run, functions: Sequence[Function]) -> tuple[list[StreamingQuery], Background | None]:
    spec = run.spec
    read, rows = build(run, functions, streaming=True)
    bad = read.bad
    if bad is not None and has_letters_apart(run):
        bad = without_quarantined(bad, run)
    letters = None if bad is None else dead_letters(bad, run)
    is_untransformed = not spec.transforms and not functions
    writing = WRITERS[spec.sink.type](
        rows, letters, spec.sink, replace(run, is_untransformed=is_untransformed)
    )
    queries = [_begin(writing.writer.outputMode(spec.output_mode), run, spec.name, "checkpoint")]
    if letters is not None and not writing.took_letters:
        queries.append(_begin(stream_letters(letters, run), run, f"{spec.name} dead letters", "dead-letters"))
    return queries, writing.background


def build(run: Run, functions: Sequence[Function], *, streaming: bool) -> tuple[Rows, DataFrame]:
    """Rows of the source, and the rows for the sink."""
    source = run.spec.source
    read = READERS[source.type](source, run, streaming=streaming)
    return read, _transformed(read.good, run, functions)


def _transformed(rows: DataFrame, run: Run, functions: Sequence[Function]) -> DataFrame:
    rows = apply_transforms(rows, run)
    for function in functions:
        rows = function(rows)
    return rows


def apply_transforms(rows: DataFrame, run: Run) -> DataFrame:
    for at, part in enumerate(run.spec.transforms):
        try:
            rows = TRANSFORMERS[part.type](rows, part, run)
            if run.is_confined:
                check_confined(rows)
        except AnalysisException as error:
            path = ("transforms", at)
            raise PipelineFailed(f"transforms.{at}: {reason_of(error, run.spec)}", path) from None
    return rows


def _begin(writer: DataStreamWriter, run: Run, name: str, purpose: str) -> StreamingQuery:
    trigger = run.spec.trigger
    if trigger.available_now:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{trigger.interval_ms} milliseconds")
    return writer.queryName(name).option("checkpointLocation", run.checkpoint(purpose)).start()
