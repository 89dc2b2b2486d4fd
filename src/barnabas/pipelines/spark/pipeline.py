"""The Python front end: a pipeline whose transforms are functions of yours.

    Pipeline(source="clicks", sink={"type": "files", "path": "out"}).transform(clean).run()

A source or sink that is a word is a topic. The spec is judged before Spark starts, and then runs
here, on the session that is given or on one of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Self

from barnabas.pipelines.progress import Progress
from barnabas.pipelines.spark.reach import check_topics
from barnabas.pipelines.spark.run import Run
from barnabas.pipelines.spark.session import open_session
from barnabas.pipelines.spec.model import PipelineSpec
from barnabas.pipelines.spec.validation import load_document

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from barnabas.pipelines.spark.runner import RunningPipeline

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
DEFAULT_STATE = "barnabas-pipelines"


class Pipeline:
    def __init__(
        self,
        *,
        source: str | Mapping[str, Any],
        sink: str | Mapping[str, Any],
        name: str = "pipeline",
        bootstrap: str = DEFAULT_BOOTSTRAP,
        state: str = DEFAULT_STATE,
        **sections: Any,
    ) -> None:
        """`sections` are those of a spec: transforms, errors, trigger, delivery, engine, spark."""
        self.spec: PipelineSpec = load_document(
            {
                "name": name,
                "source": {"type": "topic", "topics": [source]} if isinstance(source, str) else dict(source),
                "sink": {"type": "topic", "topic": sink} if isinstance(sink, str) else dict(sink),
                **sections,
            },
            "Pipeline(…)",
            is_whole=False,
        )
        self._bootstrap = bootstrap
        self._state = state
        self._functions: list[Callable[[DataFrame], DataFrame]] = []

    def transform(self, function: Callable[[DataFrame], DataFrame]) -> Self:
        """Add a function from DataFrame to DataFrame, after what is there already."""
        self._functions.append(function)
        return self

    def start(
        self, spark: SparkSession | None = None, on_progress: Callable[[Progress], None] = lambda _: None
    ) -> RunningPipeline:
        """Start it and return; the caller stops it, or waits for it."""
        from barnabas.pipelines.spark.runner import start_pipeline  # noqa: PLC0415 - needs Spark

        return start_pipeline(self._run(spark), on_progress, self._functions)

    def run(
        self, spark: SparkSession | None = None, on_progress: Callable[[Progress], None] = lambda _: None
    ) -> None:
        """Run it to its end: with the trigger available_now that comes by itself."""
        from barnabas.pipelines.spark.runner import run_pipeline  # noqa: PLC0415 - needs Spark

        run_pipeline(self._run(spark), on_progress, self._functions)

    def _run(self, spark: SparkSession | None) -> Run:
        check_topics(self.spec, self._bootstrap)
        session = spark or open_session(self.spec.spark.master, self.spec.spark.conf, name=self.spec.name)
        return Run(session, self.spec, self._bootstrap, self._state)
