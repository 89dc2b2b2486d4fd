from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.pipelines.spec.connect.config import spec_of_config
from barnabas.pipelines.spec.declarative.project import is_project, known_project, read_project
from barnabas.pipelines.spec.declarative.settings import CONNECTOR_CLASS, declarative_config
from barnabas.pipelines.spec.graph import graph_of
from barnabas.pipelines.spec.problems import InvalidSpec

PROJECT = """\
name: orders
storage: file:///var/lib/orders
libraries:
  - glob: {include: transformations/**}
configuration:
  spark.sql.shuffle.partitions: "2"
  spark.barnabas.update.min.interval: 5 seconds
"""


def project_in(directory: Path, text: str = PROJECT) -> Path:
    (directory / "transformations").mkdir(exist_ok=True)
    (directory / "transformations" / "orders.py").write_text("from pyspark import pipelines as dp\n")
    (directory / "transformations" / "more.sql").write_text("CREATE MATERIALIZED VIEW v AS SELECT 1\n")
    file = directory / "spark-pipeline.yml"
    file.write_text(text)
    return file


def problems(file: Path) -> str:
    with pytest.raises(InvalidSpec) as found:
        read_project(file)
    return str(found.value)


def test_a_project_is_read_as_spark_reads_it(tmp_path: Path) -> None:
    file = project_in(tmp_path)
    project = read_project(file)
    assert (project.name, project.storage) == ("orders", "file:///var/lib/orders")
    assert project.settings == {"update.min.interval": "5 seconds"}
    assert [each.name for each in project.sources] == ["more.sql", "orders.py"]
    assert is_project(file)
    assert not is_project(tmp_path / "orders.yaml")
    assert known_project(file) == project
    assert known_project(tmp_path / "nowhere.yml") is None


def test_topics_that_the_python_names_are_found(tmp_path: Path) -> None:
    file = project_in(tmp_path)
    (tmp_path / "transformations" / "orders.py").write_text(
        'a = spark.readStream.option("subscribe", "orders, returns").load()\n'
        'b = spark.readStream.options(subscribe="clicks", x="y").load()\n'
        'c = spark.readStream.option("subscribe", NAME).option("subscribePattern", "x-.*").load()\n'
    )
    assert read_project(file).topics == {"orders", "returns", "clicks"}


def test_every_problem_of_a_project_is_found_with_its_line(tmp_path: Path) -> None:
    file = project_in(
        tmp_path,
        "name: a/b\nstorage: state\nlibraries:\n  - glob: {include: '*/x.py'}\nschemas: x\n"
        "configuration:\n  spark.x: 2\n  spark.barnabas.update.min.intervall: 1 s\n"
        "  spark.barnabas.restart.backoff: soon\n",
    )
    found = problems(file)
    assert f"{file}:1: name: found 'a/b'" in found
    assert f"{file}:2: storage: found 'state'; expected a URI" in found
    assert f"{file}:4: libraries.0: expected" in found
    assert f"{file}:5: schemas: a project has no field 'schemas'; did you mean 'schema'?" in found
    assert f"{file}:7: configuration.spark.x: found 2; Spark expects text" in found
    assert "did you mean 'update.min.interval'?" in found
    assert "found 'soon'; expected a duration" in found


def test_a_project_without_files_or_with_broken_ones_is_refused(tmp_path: Path) -> None:
    file = project_in(tmp_path)
    (tmp_path / "transformations" / "orders.py").write_text("def f(:\n")
    assert f"{tmp_path}/transformations/orders.py:1: not Python" in problems(file)
    (tmp_path / "transformations" / "orders.py").write_text("x = 1\n")
    (tmp_path / "transformations" / "notes.txt").write_text("x\n")
    assert "notes.txt is neither Python nor SQL" in problems(file)
    file.write_text(PROJECT.replace("transformations/**", "elsewhere/**"))
    assert "the pipeline would have no tables" in problems(file)


def test_the_spec_of_a_project_has_the_settings_of_the_service(tmp_path: Path) -> None:
    config = declarative_config(
        "orders", tmp_path / "spark-pipeline.yml", {"update.min.interval": "5 seconds"}
    )
    spec = spec_of_config("orders", {**config, "restart.max_attempts": "2", "restart.backoff": "3 seconds"})
    assert spec.project_file == str(tmp_path / "spark-pipeline.yml")
    assert (spec.source["min_interval_ms"], spec.source["max_interval_ms"]) == (5_000, 600_000)
    assert (spec.restart.max_attempts, spec.restart.backoff_ms, spec.own_groups) == (2, 3_000, ())
    assert [stage.type for stage in graph_of(spec).stages] == ["project", "tables"]


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"project.file": "spark-pipeline.yml"}, "expected the path"),
        ({"update.max.interval": "1 second"}, "is longer than update.max.interval"),
        ({"update.max.interval": "often"}, "expected a duration"),
        ({"topics": "orders"}, "there is no such setting"),
    ],
)
def test_a_wrong_configuration_of_a_project_is_refused(changes: dict[str, str], complaint: str) -> None:
    config = {"connector.class": CONNECTOR_CLASS, "name": "orders", "project.file": "/p/spark-pipeline.yml"}
    with pytest.raises(InvalidSpec, match=complaint):
        spec_of_config("orders", {**config, **changes})
