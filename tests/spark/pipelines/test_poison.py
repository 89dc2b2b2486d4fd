"""Records that break a transform: set aside, and the pipeline goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.pipelines.conftest import RunSpec
from tests.support.fixtures import TopicFactory
from tests.support.topics import consume, produce

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Making a Python function for Spark asks for pandas, of which Spark does not know the newest yet.
pytestmark = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")


def divide(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    return rows.withColumn("share", F.udf(lambda n: 100 // n, "int")("n"))


def test_a_record_that_breaks_a_function_becomes_a_dead_letter_and_the_batch_is_written_once(
    run_spec: RunSpec, bootstrap: str, new_topic: TopicFactory
) -> None:
    from barnabas.pipelines.run import PipelineFailed

    source, out, letters = new_topic(), new_topic(), new_topic()
    produce(bootstrap, source, [{"n": at % 9} for at in range(1, 12)])
    spec: dict[str, Any] = {
        "name": "poison",
        "source": {"type": "topic", "topics": source, "schema": "n INT"},
        "sink": {"type": "topic", "topic": out},
    }
    with pytest.raises(PipelineFailed, match="ZeroDivisionError"):
        run_spec({**spec, "name": "strict"}, functions=[divide])
    run_spec({**spec, "errors": {"tolerance": "all", "dead_letter_topic": letters}}, functions=[divide])
    assert sorted(each.json["n"] for each in consume(bootstrap, out)) == [1, 1, 2, 2, 3, 4, 5, 6, 7, 8]
    (dead,) = consume(bootstrap, letters)
    assert dead.json == {"n": 0}
    assert dead.headers["__connect.errors.offset"] == b"8"
    assert b"ZeroDivisionError" in dead.headers["__connect.errors.exception.message"]
