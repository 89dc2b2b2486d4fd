from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.pipelines.spark.checks import preflight
from barnabas.pipelines.spark.checks.preflight import check_machine
from barnabas.pipelines.spec.problems import InvalidSpec
from barnabas.pipelines.spec.validation import load
from barnabas.pipelines.spec.yaml_source import read_yaml

SPEC = """\
name: p
source: {type: rate}
transforms:
  - python: %s
sink: {type: console}
"""


def problems(text: str) -> list[str]:
    located = read_yaml(text, "p.yaml")
    spec = load(located)
    try:
        check_machine(spec, located)
    except InvalidSpec as error:
        return str(error).splitlines()
    return []


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "cleaning_of_rows.py"
    file.write_text("from os import path as join\nraise AssertionError('it was run')\ndef clean(rows): ...\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return file


def test_a_missing_module_is_reported_with_its_line() -> None:
    (complaint,) = problems(SPEC % "no_such_module_anywhere:clean")
    assert complaint.startswith("p.yaml:4: transforms.0: there is no module 'no_such_module_anywhere' here")
    (complaint,) = problems(SPEC % "no_such_package.inside:clean")
    assert "there is no module 'no_such_package.inside'" in complaint


def test_a_function_is_looked_for_without_running_its_module(module: Path) -> None:
    assert problems(SPEC % "cleaning_of_rows:clean") == []
    assert problems(SPEC % "cleaning_of_rows:join") == []
    assert problems(SPEC % "cleaning_of_rows:claen") == [
        "p.yaml:4: transforms.0: module 'cleaning_of_rows' has no 'claen'; did you mean 'clean'?"
    ]
    module.write_text("if True:\n    def other(rows): ...\n")
    assert problems(SPEC % "cleaning_of_rows:other") == []
    module.write_text("def clean(rows:\n")
    (complaint,) = problems(SPEC % "cleaning_of_rows:clean")
    assert "cannot be read" in complaint


def test_modules_that_spark_brings_along_are_left_to_it() -> None:
    packed = SPEC % "brought_along:clean" + "spark: {conf: {spark.submit.pyFiles: brought_along.py}}\n"
    assert problems(packed) == []


def test_every_unresolved_reference_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERE", "5")
    monkeypatch.delenv("NOT_HERE", raising=False)
    text = (
        "name: p\nsource:\n  type: rate\n  rows_per_second: ${env:HERE}\n"
        "sink:\n  type: files\n  path: ${env:NOT_HERE}/out\nspark:\n  master: ${file:/nowhere/at.all}\n"
    )
    assert problems(text) == [
        "p.yaml:7: sink.path: ${env:NOT_HERE}: there is no such environment variable",
        "p.yaml:9: spark.master: ${file:/nowhere/at.all}: No such file or directory",
    ]


def test_a_missing_database_driver_is_reported_with_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "barnabas.pipelines.spark.checks.preflight._is_installed", lambda package: package != "pg8000"
    )
    sink = "{type: jdbc, url: 'postgresql://db/shop', table: t, mode: insert}"
    (complaint,) = problems(f"name: p\nsource: {{type: rate}}\nsink: {sink}\n")
    assert complaint.startswith("p.yaml:3: sink: jdbc needs the package pg8000: ")


@pytest.mark.parametrize(
    "sink", ["path: s3://lake/orders", "catalog: {type: sql, warehouse: 's3://lake'}, table: a.b"]
)
def test_a_table_in_an_object_store_needs_its_package(monkeypatch: pytest.MonkeyPatch, sink: str) -> None:
    monkeypatch.setattr(preflight, "_is_installed", lambda package: package != "obstore")
    kind = "delta" if sink.startswith("path") else "iceberg"
    spec = f"name: p\nsource: {{type: rate}}\nsink: {{type: table, format: {kind}, {sink}}}\n"
    (complaint,) = problems(spec)
    assert complaint.startswith("p.yaml:3: sink: a table in an object store needs the package obstore: pip ")
    assert problems("name: p\nsource: {type: rate}\nsink: {type: table, path: lake/orders}\n") == []
