"""Topics that are kept as tables: `topic create --table`, `describe`, and what deletion asks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.scenario.cli.command import Barnabas
from tests.support.broker import Broker
from tests.support.ports import free_port


@pytest.fixture(autouse=True)
def only_ours(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    if broker.name != "barnabas":
        pytest.skip("Apache Kafka has no setting barnabas.table")


@pytest.fixture
def barnabas(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> Barnabas:
    monkeypatch.setenv("BARNABAS_PIPELINES", f"http://127.0.0.1:{free_port()}")  # nobody runs a pipeline
    return Barnabas(bootstrap)


def delta_table(path: Path) -> Path:
    deltalake = pytest.importorskip("deltalake")
    import pyarrow as pa

    deltalake.write_deltalake(str(path), pa.table({"id": [1, 2]}))
    return path


def test_a_topic_with_a_table_is_described_with_it(barnabas: Barnabas, tmp_path: Path) -> None:
    setting = f"delta:{tmp_path}/kept?schema=id BIGINT"
    created = barnabas("topic", "create", "kept", "--table", setting)
    kept = f"pipeline table-kept of the pipeline service keeps it as delta table {tmp_path}/kept"
    assert created == f"created topic kept; {kept}\n"
    assert kept in barnabas("topic", "describe", "kept")
    (found,) = json.loads(barnabas("topic", "describe", "kept", "--json"))
    assert (found["table"], found["configs"]["barnabas.table"]) == (setting, setting)


def test_a_table_is_not_made_by_mistake(barnabas: Barnabas) -> None:
    assert "delta:PATH or iceberg:PATH" in barnabas.fail("topic", "create", "t", "--table", "parquet:/t")
    for schema, hint in (("shema=id INT", "did you mean 'schema'"), ("schema=id BIGTEXT", "mean BIGINT?")):
        assert hint in barnabas.fail("topic", "create", "t", "--table", f"delta:/t?{schema}")
    assert "t" not in barnabas("topic", "list").splitlines()


def test_deletion_asks_what_becomes_of_the_table(barnabas: Barnabas, tmp_path: Path) -> None:
    path = delta_table(tmp_path / "asked")
    barnabas("topic", "create", "asked", "--table", f"delta:{path}")
    refused = barnabas.fail("topic", "delete", "asked")
    assert "--table keep leaves the table, --table remove removes it" in refused
    assert "asked" in barnabas("topic", "list").splitlines()
    assert barnabas("topic", "delete", "asked", "--table", "keep") == (
        f"deleted topic asked\ndelta:{path} stays\n"
    )
    assert (path / "_delta_log").is_dir()


def test_deletion_removes_the_table_when_told(barnabas: Barnabas, tmp_path: Path) -> None:
    path = delta_table(tmp_path / "gone")
    barnabas("topic", "create", "gone", "--table", f"delta:{path}")
    told = barnabas("topic", "delete", "gone", "--table", "remove")
    assert told == f"deleted topic gone\nremoved delta table {path}, 2 files\n"
    assert not path.exists()


def test_deletion_removes_nothing_that_is_no_table(barnabas: Barnabas, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "letter.txt").write_text("dear")
    barnabas("topic", "create", "wrong", "--table", f"delta:{other}")
    ended = barnabas.fail("topic", "delete", "wrong", "--table", "remove")
    assert "the table stays: there is no delta table" in ended
    assert (other / "letter.txt").exists()


def test_topics_without_a_table_are_deleted_without_a_question(barnabas: Barnabas) -> None:
    barnabas("topic", "create", "simple")
    assert barnabas("topic", "delete", "simple") == "deleted topic simple\n"
