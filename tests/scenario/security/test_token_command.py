"""`barnabas token`: made, shown, renewed and ended; a client logs in through the file that it writes."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from barnabas.cli.main import cli
from barnabas.config.properties import read_properties, render_properties
from barnabas.security.sasl.jaas import parse_jaas
from barnabas.testing.broker import RunningBroker
from tests.scenario.security.callers import AUTHORIZER
from tests.scenario.security.sasl_broker import ADMIN, ADMIN_PASSWORD, sasl_broker

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    settings = {
        "delegation.token.secret.key": "the brokers' own secret",
        "authorizer.class.name": AUTHORIZER,
        "super.users": f"User:{ADMIN}",
    }
    with sasl_broker(settings) as broker:
        yield broker


@pytest.fixture
def access(broker: RunningBroker, tmp_path: Path) -> list[str]:
    return login(broker, tmp_path, ADMIN, ADMIN_PASSWORD)


def login(broker: RunningBroker, tmp_path: Path, user: str, password: str) -> list[str]:
    file = tmp_path / f"{user}.properties"
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{MODULE} required username="{user}" password="{password}";',
    }
    file.write_text(render_properties(settings))
    return ["--command-config", str(file)]


def token(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["token", *arguments])


def test_a_client_logs_in_with_the_file_of_a_token(
    broker: RunningBroker, access: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "token.properties"
    made = token("create", "--client-file", str(file), "--lifetime", "2h", "--json", *access)
    assert made.exit_code == 0, made.output
    shown = json.loads(made.output)
    settings = read_properties(file.read_text())
    (entry,) = parse_jaas(settings["sasl.jaas.config"])
    secret = entry.options["password"]
    assert (entry.options["username"], entry.options["tokenauth"]) == (shown["token"], "true")
    assert shown["owner"] == f"User:{ADMIN}"
    assert secret not in made.output
    assert stat.S_IMODE(file.stat().st_mode) == 0o600

    by_token = ["--command-config", str(file)]
    assert CliRunner().invoke(cli, ["topic", "list", *by_token]).exit_code == 0
    refused = token("create", *by_token)
    assert refused.exit_code == 1
    assert "a token needs a login by SASL or TLS, and not by another token" in refused.output

    listed = token("list", *access)
    assert shown["token"] in listed.output
    assert secret not in listed.output
    ended = token("expire", shown["token"], *access)
    assert ended.exit_code == 0, ended.output
    assert shown["token"] not in token("list", *access).output
    assert CliRunner().invoke(cli, ["topic", "list", *by_token]).exit_code == 1
    assert token("expire", shown["token"], *access).exit_code == 4


def test_the_secret_is_shown_where_no_file_takes_it(access: list[str]) -> None:
    lines = dict(line.split(": ", 1) for line in token("create", *access).output.splitlines())
    (entry,) = parse_jaas(lines["log in by SCRAM"].removeprefix("sasl.jaas.config="))
    assert entry.options == {
        "username": lines["token"],
        "password": lines["secret"],
        "tokenauth": "true",
    }


def test_who_may_renew_does(broker: RunningBroker, access: list[str], tmp_path: Path) -> None:
    bob = login(broker, tmp_path, "bob", "builder")
    ours = json.loads(token("create", "--renewer", "User:bob", "--json", *access).output)
    others = json.loads(token("create", "--json", *access).output)
    seen = json.loads(token("list", "--owner", f"User:{ADMIN}", "--json", *bob).output)
    assert [each["token"] for each in seen] == [ours["token"]]
    assert json.loads(token("list", "--owner", "User:carol", "--json", *bob).output) == []
    renewed = token("renew", ours["token"], "--period", "3d", *bob)
    assert renewed.exit_code == 0, renewed.output
    after = json.loads(token("list", "--json", *bob).output)
    assert after[0]["expires"] > ours["expires"]
    assert f"expires {after[0]['expires']}" in renewed.output
    assert token("renew", others["token"], *bob).exit_code == 4


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["create", "--renewer", "bob"], "is not a principal"),
        (["create", "--renewer", "Group:bob"], "is not a principal"),
        (["create", "--lifetime", "soon"], "is not a time"),
        (["renew", "x", "--period", "1w"], "is not a time"),
    ],
)
def test_what_is_mistyped_is_said(arguments: list[str], reason: str) -> None:
    done = token(*arguments)
    assert done.exit_code == 2
    assert reason in done.output
