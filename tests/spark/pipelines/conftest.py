"""Running a spec in the shared session, to its end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from barnabas.pipelines.state.progress import Progress

ATTEMPTS = 5
RunSpec = Callable[..., "list[Progress]"]


@pytest.fixture
def run_spec(spark: SparkSession, bootstrap: str, tmp_path: Path) -> RunSpec:
    """`run_spec({...})` validates, runs until all that is there was read, and returns the progress."""

    def run(
        document: dict[str, Any], *, generation: int = 0, functions: Sequence[Any] = ()
    ) -> list[Progress]:
        from barnabas.pipelines.spark.context.run_context import PipelineFailed, Run
        from barnabas.pipelines.spark.runner import run_pipeline
        from barnabas.pipelines.spec.validation import load_document

        spec = load_document({"trigger": "available_now", **document})
        seen: list[Progress] = []
        place = Run(spark, spec, bootstrap, str(tmp_path / "state"), generation)
        for _ in range(ATTEMPTS):
            try:
                run_pipeline(place, seen.append, functions)
            except PipelineFailed as error:
                # Spark gives its Python workers ten seconds to start, which a busy machine may exceed.
                if "failed to connect back" not in str(error):
                    raise
            else:
                return seen
        raise AssertionError("Spark's Python workers do not start")

    return run
