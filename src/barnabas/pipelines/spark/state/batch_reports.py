"""Progress reports of micro-batches, polled from the query.

Spark also sends every report to listeners, through one queue for all queries of a driver. With six pipelines
that queue falls a hundred micro-batches behind, and a status based on it shows no lag. A query keeps its last
hundred reports, so polling every half second misses none. Some of them are reports of idle triggers, with the
number of the next batch; those are skipped.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from barnabas.pipelines.spark.context.run_context import TooManyErrors
from barnabas.pipelines.spec.model import PipelineSpec
from barnabas.pipelines.state.progress import Progress, progress_of

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

OnProgress = Callable[[Progress], None]

PERIOD_S: Final = 0.5
EXECUTED: Final = "addBatch"
"""Phase of a trigger in which the sink gets the rows; an idle trigger lacks it."""


class BatchReports:
    """Passes on the report of every micro-batch once, in order, and keeps the error that must stop the
    pipeline."""

    def __init__(self, spec: PipelineSpec, on_progress: OnProgress) -> None:
        self._spec = spec
        self._on_progress = on_progress
        self._complaint: str | None = None
        self._failure: Exception | None = None
        """Reason why no more reports can be read or passed on."""
        self.batch_id = -1
        """Last finished batch."""
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._query: StreamingQuery | None = None

    def follow(self, query: StreamingQuery) -> None:
        """Poll `query` on a separate thread until `stop`."""
        self._query = query
        self._thread = threading.Thread(
            target=self._look_on, name=f"reports of {self._spec.name}", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Stop polling after the query has ended, and pass on the remaining reports."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
            self.look()

    def check(self) -> None:
        """Raises TooManyErrors if a micro-batch had more bad records than the spec allows."""
        if self._failure is not None:
            raise self._failure
        if self._complaint is not None:
            raise TooManyErrors(self._complaint)

    def look(self) -> None:
        assert self._query is not None
        for report in _since(self._query, self.batch_id):
            self.take(report)

    def take(self, report: Mapping[str, Any]) -> None:
        progress = progress_of(self._spec.name, report)
        with self._lock:
            if progress.batch_id <= self.batch_id:
                return
            self.batch_id = progress.batch_id
            ratio_max = self._spec.errors.max_error_ratio
            if progress.error_ratio > ratio_max and self._complaint is None:
                self._complaint = (
                    f"batch {progress.batch_id}: {progress.errors} of {progress.records} records are bad,"
                    f" more than max_error_ratio {ratio_max:g}; a restart continues with the next batch"
                )
            self._on_progress(progress)

    def _look_on(self) -> None:
        try:
            while not self._stopped.wait(PERIOD_S):
                self.look()
        except Exception as error:  # noqa: BLE001 - raised on the thread that waits for the pipeline
            self._failure = error


def _since(query: StreamingQuery, batch_id: int) -> Iterator[Mapping[str, Any]]:
    """Reports of the micro-batches after `batch_id`, oldest first."""
    reports: Any = query._jsq.recentProgress()
    first = len(reports)
    while first > 0 and reports[first - 1].batchId() > batch_id:
        first -= 1
    for at in range(first, len(reports)):
        report = json.loads(reports[at].json())
        if EXECUTED in (report.get("durationMs") or {}):
            yield report
