"""One stream that feeds two shuffles of a micro-batch."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.spark.pipelines.conftest import RunSpec
from tests.support.fixtures import TopicFactory
from tests.support.topics import produce

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ANSWER_S = 0.5
"""Planning time of the source, long enough to show a thread that waits for it."""
BATCH_S_MAX = 90


def register_slow_source(spark: SparkSession) -> None:
    from pyspark_barnabas.source import BarnabasDataSource

    class SlowSource(BarnabasDataSource):
        @classmethod
        def name(cls) -> str:
            return "slow"

        def streamReader(self, schema: Any) -> Any:  # noqa: N802 - Spark's name
            reader: Any = super().streamReader(schema)
            plan = reader.partitions

            def partitions(start: Any, end: Any) -> Any:
                time.sleep(ANSWER_S)
                return plan(start, end)

            reader.partitions = partitions
            return reader

    spark.dataSource.register(SlowSource)


def waiting_for_a_plan(spark: SparkSession) -> set[str]:
    """Which threads do: a query's, or those in which Spark prepares shuffles."""
    jvm: Any = spark._jvm
    waiting = set()
    for each in jvm.java.lang.Thread.getAllStackTraces().entrySet():
        kind = str(each.getKey().getName()).partition(" ")[0].rstrip("-0123456789")
        frames = each.getValue() if kind in {"stream", "shuffle-exchange"} else ()
        if any("PythonStreamingSourceRunner.partitions" in str(frame) for frame in frames):
            waiting.add(kind)
    return waiting


def test_the_thread_of_the_query_asks_for_both_shuffles(
    spark: SparkSession, bootstrap: str, new_topic: TopicFactory, tmp_path: Path
) -> None:
    from barnabas.pipelines.spark.jvm.session import disable_adaptive_stateless_planning
    from tests.support.spark import activate

    topic = new_topic()
    produce(bootstrap, topic, [{"n": number} for number in range(10)])
    session = spark.newSession()
    activate(session)
    register_slow_source(session)
    disable_adaptive_stateless_planning(session)
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    rows = session.readStream.format("slow").options(**options).load()
    even, odd = rows.where("offset % 2 = 0"), rows.where("offset % 2 = 1")
    both = even.repartition(2, "offset").union(odd.repartition(2, "value"))
    writing = both.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writing.trigger(availableNow=True).start()
    asked: set[str] = set()
    deadline = time.monotonic() + BATCH_S_MAX
    try:
        while query.isActive and time.monotonic() < deadline:
            asked |= waiting_for_a_plan(session)
        assert asked == {"stream"}, "shuffles ask for themselves, and may read each other's answers"
        assert sum(each["numInputRows"] for each in query.recentProgress) == 2 * 10
    finally:
        query.stop()
        activate(spark)


def test_pipelines_disable_adaptive_stateless_planning(
    run_spec: RunSpec, bootstrap: str, new_topic: TopicFactory
) -> None:
    from barnabas.pipelines.spark.jvm.session import ADAPTIVE_STATELESS_PLANNING as SETTING

    source, settings = new_topic(), []
    produce(bootstrap, source, [{"n": 1}])

    def look(rows: DataFrame) -> DataFrame:
        settings.append(rows.sparkSession.conf.get(SETTING))
        return rows

    spec: dict[str, Any] = {
        "name": "asks",
        "source": {"type": "topic", "topics": source, "schema": "n INT"},
        "sink": {"type": "topic", "topic": new_topic()},
    }
    run_spec(spec, functions=[look])
    assert settings == ["false"]
