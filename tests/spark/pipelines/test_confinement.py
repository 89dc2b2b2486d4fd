"""SQL from HTTP on Spark: no spelling of it calls Java or reads files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOME = "('java.lang.System', 'getProperty', 'user.home')"


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT reflect{HOME} AS a FROM input",
        f"SELECT `Java_Method`{HOME} AS a FROM input",
        f"SELECT system.builtin.try_reflect{HOME} AS a FROM input",
        f"SELECT IDENTIFIER('ref' || 'lect'){HOME} AS a FROM input",
        f"FROM input |> SELECT reflect{HOME} AS a",
        "SELECT TRANSFORM(id) USING 'cat' AS (a) FROM input",
        "SELECT id FROM input WHERE id IN (SELECT TRANSFORM(id) USING 'cat' AS (a BIGINT) FROM input)",
        "SELECT f.value FROM input CROSS JOIN text.`{secret}` f",
        "SELECT id FROM input WHERE id NOT IN (SELECT value FROM text.`{secret}`)",
    ],
)
def test_a_confined_query_leads_nowhere(spark: SparkSession, tmp_path: Path, query: str) -> None:
    from pyspark.errors import AnalysisException

    from barnabas.pipelines.spark.checks.confinement import check_confined, confine
    from barnabas.pipelines.spark.context.run_context import PipelineFailed

    secret = tmp_path / "secret"
    secret.write_text("1\n")
    text = query.replace("{secret}", str(secret))
    free, confined = spark.newSession(), spark.newSession()
    confine(confined)
    for session in (free, confined):
        session.range(1).createOrReplaceTempView("input")
    free.sql(text).collect()
    with pytest.raises((AnalysisException, PipelineFailed)):
        check_confined(confined.sql(text))


def test_a_confined_query_sees_no_variables_and_works_otherwise(spark: SparkSession) -> None:
    from barnabas.pipelines.spark.checks.confinement import check_confined, confine

    session = spark.newSession()
    confine(session)
    session.range(2).createOrReplaceTempView("input")
    rows = session.sql("SELECT sum(id) AS total, '${system:java.home}${env:HOME}' AS text FROM input")
    check_confined(rows)
    assert tuple(rows.collect()[0]) == (1, "${system:java.home}${env:HOME}")
