"""Puts a pipeline together on Spark and watches it.

A run has a SparkSession of its own (views, settings, listeners) on the driver's one Spark
context, so that several pipelines share a driver and do not meet. What a pipeline does lies in
its spec: source, decoding, transforms, sink; here the pieces are joined, started, and stopped.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from barnabas.core.clock import SystemClock
from barnabas.pipelines.progress import Progress, progress_of
from barnabas.pipelines.spark.checkpoints import write_checkpoints_quickly
from barnabas.pipelines.spark.dead_letters import dead_letters
from barnabas.pipelines.spark.quarantine import (
    has_letters_apart,
    quarantine_more,
    with_quarantine,
    without_quarantined,
)
from barnabas.pipelines.spark.questions import ask_one_at_a_time
from barnabas.pipelines.spark.reasons import reason_of
from barnabas.pipelines.spark.run import PipelineFailed, PipelineInvalid, Rows, Run, Unavailable
from barnabas.pipelines.spark.silence import Silence
from barnabas.pipelines.spark.sinks.records import stream_letters
from barnabas.pipelines.spark.sinks.writers import WRITERS
from barnabas.pipelines.spark.sources.readers import READERS
from barnabas.pipelines.spark.starts import with_start
from barnabas.pipelines.spark.transforms.functions import TRANSFORMERS
from barnabas.pipelines.spec.model import PipelineSpec, Tolerance
from barnabas.security.secret_references import UnresolvedSecret
from pyspark_barnabas import DefaultSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

OnProgress = Callable[[Progress], None]
Function = Callable[["DataFrame"], "DataFrame"]

WAIT_S = 1
"""How often a waiting driver looks whether it was told to stop."""
STOP_GRACE_S = 10
"""How long a micro-batch may take to its end before a pipeline that stops interrupts it."""
STOP_POLL_S = 0.05


class RunningPipeline:
    """A started pipeline: one query, or two where dead letters have their own."""

    def __init__(self, run: Run, queries: Sequence[StreamingQuery], watch: _Watch) -> None:
        self.run = run
        self._queries = tuple(queries)
        self._watch = watch
        clock = SystemClock()
        self._silences = [Silence(clock, partial(_is_job_running, run.spark, query)) for query in queries]

    @property
    def query(self) -> StreamingQuery:
        return self._queries[0]

    @property
    def failure(self) -> str | None:
        """Why it is at its end, if it is and should not be."""
        for query in self._queries:
            if not query.isActive and (error := query.exception()) is not None:
                return reason_of(error, self.run.spec)
        return None

    def stop(self) -> None:
        """Between two micro-batches where it can be: one that is cut short is done over by the next run."""
        for query in self._queries:
            for _ in range(round(STOP_GRACE_S / STOP_POLL_S)):
                if not query.isActive or not query.status["isTriggerActive"]:
                    break
                time.sleep(STOP_POLL_S)
            query.stop()
        self.run.spark.streams.removeListener(self._watch)

    def wait(self, stopped: threading.Event | None = None) -> None:
        """Until the pipeline ends by itself, or `stopped` is set; raises PipelineFailed if it failed."""
        try:
            while not all(query.awaitTermination(WAIT_S) for query in self._queries):
                self._watch.check()
                if stopped is not None and stopped.is_set():
                    break
                for query, silence in zip(self._queries, self._silences, strict=True):
                    silence.look(str(query.status["message"]), self._watch.batch_id)
                for query in self._queries:
                    if not query.isActive and query.exception() is not None:
                        query.awaitTermination()
            for report in self.query.recentProgress:
                self._watch.take(json.loads(report.json))
            self._watch.check()
        except StreamingQueryException as error:
            raise PipelineFailed(reason_of(error, self.run.spec)) from error
        finally:
            self.stop()


class _Watch(StreamingQueryListener):
    """Hears of every micro-batch; remembers what must stop the pipeline."""

    def __init__(self, spec: PipelineSpec, on_progress: OnProgress) -> None:
        self._spec = spec
        self._on_progress = on_progress
        self._complaint: str | None = None
        self.batch_id = -1
        """The last that is done."""
        self._lock = threading.Lock()

    def check(self) -> None:
        if self._complaint is not None:
            raise PipelineFailed(self._complaint)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        if event.progress.name == self._spec.name:
            self.take(json.loads(event.progress.json))

    def take(self, report: Mapping[str, Any]) -> None:
        """Listeners hear of a batch some time after it; whoever comes second with a report is ignored."""
        progress = progress_of(self._spec.name, report)
        with self._lock:
            if progress.batch_id <= self.batch_id:
                return
            self.batch_id = progress.batch_id
        if progress.error_ratio > self._spec.errors.max_error_ratio:
            self._complaint = (
                f"batch {progress.batch_id}: {progress.errors} of {progress.records} records are bad,"
                f" more than max_error_ratio {self._spec.errors.max_error_ratio:g}"
            )
        self._on_progress(progress)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        pass


def _is_job_running(spark: SparkSession, query: StreamingQuery) -> bool:
    """A query's jobs are known by its run."""
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
    ask_one_at_a_time(run.spark)
    write_checkpoints_quickly(run.spark, run.home)
    spec = run.spec
    if spec.errors.tolerance is Tolerance.ALL:
        # A value that does not convert becomes null rather than the end of the micro-batch.
        run.spark.conf.set("spark.sql.ansi.enabled", "false")
    run = with_quarantine(with_start(run))
    watch = _Watch(spec, on_progress)
    run.spark.streams.addListener(watch)
    try:
        return RunningPipeline(run, _start(run, functions), watch)
    except BaseException as error:
        for query in run.spark.streams.active:
            query.stop()
        run.spark.streams.removeListener(watch)
        if (invalid := _invalid(error, run)) is not None:
            raise invalid from error
        raise


def _invalid(error: BaseException, run: Run) -> PipelineInvalid | None:
    """What was found before anything ran is found again by every further attempt, but for what may come."""
    if isinstance(error, PipelineFailed):
        return None if isinstance(error, Unavailable) else PipelineInvalid(str(error), error.path)
    if isinstance(error, UnresolvedSecret):
        return PipelineInvalid(str(error))
    # A source in Python that cannot reach its brokers is told by Spark in the same way.
    is_sparks = isinstance(error, AnalysisException) and not (error.getCondition() or "PYTHON").startswith(
        "PYTHON"
    )
    return PipelineInvalid(reason_of(error, run.spec)) if is_sparks else None


def _activate(spark: SparkSession) -> None:
    """Spark looks a format up in the session that is active on this thread, whosever reader asks."""
    jvm: Any = spark._jvm
    SparkSession._get_j_spark_session_class(jvm).setActiveSession(spark._jsparkSession)


def register_connector(spark: SparkSession) -> None:
    """Spark looks for data sources once, by a worker that a busy machine may start too late for it."""
    try:
        spark.dataSource.register(DefaultSource)
    except PySparkException as error:
        # It was found.
        if "ALREADY_EXISTS" not in str(error):
            raise


def run_pipeline(
    run: Run,
    on_progress: OnProgress = lambda _: None,
    functions: Sequence[Function] = (),
    *,
    stopped: threading.Event | None = None,
    on_running: Callable[[], None] = lambda: None,
) -> None:
    """Run to the end, or until `stopped`; records that break a transform are set aside on the way."""
    while True:
        started = start_pipeline(run, on_progress, functions)
        on_running()
        try:
            started.wait(stopped)
        except PipelineFailed:
            transform = partial(_transformed, run=started.run, functions=functions)
            if not quarantine_more(started.run, transform, stopped):
                raise
        else:
            return


def _start(run: Run, functions: Sequence[Function]) -> list[StreamingQuery]:
    spec = run.spec
    read, rows = build(run, functions, streaming=True)
    bad = read.bad
    if bad is not None and has_letters_apart(run):
        bad = without_quarantined(bad, run)
    letters = None if bad is None else dead_letters(bad, run)
    writing = WRITERS[spec.sink.type](rows, letters, spec.sink, run)
    queries = [_begin(writing.writer.outputMode(spec.output_mode), run, spec.name, "checkpoint")]
    if letters is not None and not writing.took_letters:
        queries.append(_begin(stream_letters(letters, run), run, f"{spec.name} dead letters", "dead-letters"))
    return queries


def build(run: Run, functions: Sequence[Function], *, streaming: bool) -> tuple[Rows, DataFrame]:
    """What the source gives, and the rows as the sink gets them."""
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
