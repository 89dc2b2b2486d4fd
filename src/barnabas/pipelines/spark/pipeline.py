"""Python API: a pipeline whose transforms are functions of the user.

    Pipeline(source="clicks", sink={"type": "files", "path": "out"}).transform(clean).run()

A source or sink given as text is a topic. The spec is validated before Spark starts. It runs in this process,
on the given session or on its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Self

from barnabas.pipelines.spark.context.connectivity_checks import check_topics
from barnabas.pipelines.spark.context.run_context import Beginning, Run
from barnabas.pipelines.spark.jvm.session import open_session
from barnabas.pipelines.spec.model import PipelineSpec
from barnabas.pipelines.spec.validation import load_document
from barnabas.pipelines.state.location import default_state
from barnabas.pipelines.state.progress import Progress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from barnabas.pipelines.spark.runner import RunningPipeline

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"


class Pipeline:
    def __init__(
        self,
        *,
        source: str | Mapping[str, Any],
        sink: str | Mapping[str, Any],
        name: str = "pipeline",
        bootstrap: str = DEFAULT_BOOTSTRAP,
        state: str | None = None,
        beginning: Beginning = Beginning.ONCE,
        **sections: Any,
    ) -> None:
        """`sections` are those of a spec: transforms, errors, trigger, delivery, engine, spark.

        Without `state`, checkpoints are where `barnabas pipeline run` keeps them.
        """
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
        self._state = default_state() if state is None else state
        self._beginning = beginning
        self._functions: list[Callable[[DataFrame], DataFrame]] = []

    def transform(self, function: Callable[[DataFrame], DataFrame]) -> Self:
        """Add a function from DataFrame to DataFrame, after the transforms so far."""
        self._functions.append(function)
        return self

    def start(
        self, spark: SparkSession | None = None, on_progress: Callable[[Progress], None] = lambda _: None
    ) -> RunningPipeline:
        """Start the pipeline and return; the caller stops it or waits for it."""
        from barnabas.pipelines.spark.runner import start_pipeline  # noqa: PLC0415 - needs Spark

        return start_pipeline(self._run(spark), on_progress, self._functions)

    def run(
        self, spark: SparkSession | None = None, on_progress: Callable[[Progress], None] = lambda _: None
    ) -> None:
        """Run the pipeline until it ends; with the trigger available_now it ends after all records."""
        from barnabas.pipelines.spark.runner import run_pipeline  # noqa: PLC0415 - needs Spark

        run_pipeline(self._run(spark), on_progress, self._functions)

    def _run(self, spark: SparkSession | None) -> Run:
        check_topics(self.spec, self._bootstrap)
        session = spark or open_session(self.spec.spark.master, self.spec.spark.conf, name=self.spec.name)
        return Run(session, self.spec, self._bootstrap, self._state, beginning=self._beginning)
