"""Confined Spark session for specs from HTTP: SQL calls no Java, starts no program and reads no files.

The service refuses such texts (`spec.sql_calls`). This module blocks Spark itself, so that no unknown
spelling evades the check. The functions are removed from the session. Files are not tables, `${env:NAME}` is
not a variable, and a plan that starts a program does not run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import AnalysisException

from barnabas.pipelines.spark.context.run_context import PipelineFailed
from barnabas.pipelines.spec.sql_calls import JAVA_CALLS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

FILES_AS_TABLES: Final = "spark.sql.runSQLOnFiles"
VARIABLES_IN_SQL: Final = "spark.sql.variable.substitute"
"""Spark substitutes environment variables, Java properties and its own settings into queries."""
_PROGRAM: Final = "ScriptTransformation"


def confine(spark: SparkSession) -> None:
    """Confine this session; other sessions of the driver stay as they are."""
    spark.conf.set(FILES_AS_TABLES, "false")
    spark.conf.set(VARIABLES_IN_SQL, "false")
    jvm: Any = spark._jvm
    registry = spark._jsparkSession.sessionState().functionRegistry()
    builtin, system = jvm.scala.Option.apply("builtin"), jvm.scala.Option.apply("system")
    for name in JAVA_CALLS:
        registry.dropFunction(jvm.org.apache.spark.sql.catalyst.FunctionIdentifier(name, builtin, system))
        if _knows(spark, name):
            raise PipelineFailed(f"this Spark does not drop its function {name}: SQL from HTTP does not run")


def _knows(spark: SparkSession, name: str) -> bool:
    try:
        spark.sql(f"SELECT {name}('java.lang.System', 'lineSeparator')")
    except AnalysisException:
        return False
    return True


def check_confined(rows: DataFrame) -> None:
    """Raises PipelineFailed if the query of `rows` would start a program."""
    for node in _nodes(rows._jdf.queryExecution().analyzed()):
        if node.getClass().getSimpleName() == _PROGRAM:
            raise PipelineFailed("the SQL starts a program (TRANSFORM … USING)")


def _nodes(plan: Any) -> Iterator[Any]:
    """Every node of a plan, and of the queries inside its expressions."""
    yield plan
    for children in (plan.children(), plan.subqueries()):
        for at in range(children.size()):
            yield from _nodes(children.apply(at))
