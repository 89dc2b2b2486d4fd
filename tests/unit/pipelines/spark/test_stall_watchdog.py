from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

from tests.support.manual_time import ManualClock

from barnabas.pipelines.spark.context.run_context import PipelineFailed
from barnabas.pipelines.spark.jvm.session import session_defaults
from barnabas.pipelines.spark.jvm.stall_watchdog import WORKER_SILENCE_S_MAX, StallWatchdog
from pyspark_barnabas.writers.attempts.markers import OPEN_TRANSACTION_MS_MAX

LONG_MS = WORKER_SILENCE_S_MAX * 1_000


class Query:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.has_job = False
        self.watchdog = StallWatchdog(self.clock, lambda: self.has_job)

    def look(self, doing: str, batch_id: int = 0, after_ms: int = 0) -> None:
        self.clock.advance(after_ms)
        self.watchdog.check(doing, batch_id)


def test_a_query_whose_source_never_answers_fails() -> None:
    query = Query()
    query.look("Getting offsets from barnabas")
    query.look("Getting offsets from barnabas", after_ms=LONG_MS - 1)
    with pytest.raises(PipelineFailed, match="at 'Getting offsets from barnabas' for 1000 s"):
        query.look("Getting offsets from barnabas", after_ms=1)


def test_a_query_that_rests_or_goes_on_is_at_work() -> None:
    query = Query()
    for _ in range(3):
        query.look("Waiting for data to arrive", after_ms=LONG_MS)
    for batch_id, doing in enumerate(("Getting offsets from barnabas", "Processing new data") * 3):
        query.look(doing, batch_id, after_ms=LONG_MS)
    query.look("Processing new data", 6, after_ms=LONG_MS)


def test_a_job_may_take_as_long_as_it_takes() -> None:
    query = Query()
    query.has_job = True
    for _ in range(5):
        query.look("Processing new data", after_ms=LONG_MS)
    query.has_job = False
    query.look("Processing new data", after_ms=LONG_MS // 2)
    with pytest.raises(PipelineFailed):
        query.look("Processing new data", after_ms=LONG_MS // 2)


def test_nothing_of_ours_waits_longer_than_a_worker_may_be_silent() -> None:
    assert LONG_MS > OPEN_TRANSACTION_MS_MAX
    defaults = session_defaults("yarn")
    assert defaults["spark.python.worker.idleTimeoutSeconds"] == str(WORKER_SILENCE_S_MAX)
    assert defaults["spark.python.worker.killOnIdleTimeout"] == "true"
