"""`start --secure` refuses what would undo it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from barnabas.cli.main import cli


def invoke(arguments: list[str]) -> Result:
    return CliRunner().invoke(cli, arguments)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--set", "ssl.client.auth=none"], "--secure excludes ssl.client.auth"),
        (["--zookeeper", "local"], "--secure excludes zookeeper.connect"),
        (
            ["--set", "allow.everyone.if.no.acl.found=true"],
            "excludes allow.everyone.if.no.acl.found",
        ),
        (["--listener", "PLAINTEXT://127.0.0.1:9092"], "one listener, SASL_SSL://HOST:PORT"),
    ],
)
def test_what_would_undo_it_is_refused(tmp_path: Path, arguments: list[str], reason: str) -> None:
    done = invoke(["start", "--secure", "--data-dir", str(tmp_path / "data"), *arguments])
    assert done.exit_code == 2
    assert reason in done.output
    assert not (tmp_path / "data").exists()


def test_a_missing_dependency_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "barnabas.cli.commands.security.secure",
        "barnabas.localcluster.secure_setup",
        "barnabas.security.tls.authority",
    ):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    done = invoke(["start", "--secure", "--data-dir", str(tmp_path / "data")])
    assert done.exit_code == 2
    assert "--secure needs cryptography: install it with pip install" in done.output


@pytest.mark.parametrize("more", [[], ["--brokers", "3"]])
def test_a_directory_of_other_things_is_left_as_it_is(tmp_path: Path, more: list[str]) -> None:
    (tmp_path / "thesis.txt").touch()
    mode = tmp_path.stat().st_mode
    done = invoke(["start", "--secure", "--data-dir", str(tmp_path), *more])
    assert done.exit_code == 2
    assert "choose another --data-dir" in done.output
    assert [each.name for each in tmp_path.iterdir()] == ["thesis.txt"]
    assert tmp_path.stat().st_mode == mode


def test_data_of_an_open_broker_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=0\nbroker.id=1\n")
    done = invoke(["start", "--secure", "--data-dir", str(tmp_path)])
    assert done.exit_code == 2
    assert "was not made by --secure; choose another --data-dir" in done.output
    assert [each.name for each in tmp_path.iterdir()] == ["meta.properties"]


def test_a_cluster_that_is_open_is_not_made_safe_by_a_word(tmp_path: Path) -> None:
    (tmp_path / "data" / "zookeeper").mkdir(parents=True)
    done = invoke(["start", "--secure", "--brokers", "3", "--data-dir", str(tmp_path / "data")])
    assert done.exit_code == 2
    assert "was not made by --secure; choose another --data-dir" in done.output


def test_users_that_cannot_be_stored_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "secure").mkdir(mode=0o700)
    (tmp_path / "data" / "coordination").touch()
    (tmp_path / "data" / "meta.properties").touch()
    done = invoke(["start", "--secure", "--data-dir", str(tmp_path / "data")])
    assert done.exit_code == 1
    assert done.output.startswith("barnabas: the users cannot be stored: ")
