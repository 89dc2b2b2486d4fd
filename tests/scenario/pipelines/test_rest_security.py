"""Secured REST interface: accepted clients, the command line, and refused clients."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
import trustme
from click.testing import CliRunner, Result

from barnabas.cli.main import cli
from barnabas.pipelines.service.http.rest import BODY_BYTES_MAX, ENTRIES_MAX
from barnabas.pipelines.spec.problems import InvalidSpec
from barnabas.testing.broker import run_broker
from tests.scenario.pipelines.conftest import RunningService, running_service

SPEC = (
    "name: copy\nsource: {type: topic, topics: orders, schema: id BIGINT}\nsink: {type: topic, topic: out}\n"
)
CONFIG = {"connector.class": "FilesSink", "topics": "clicks", "path": "out", "value.schema": "id BIGINT"}


@dataclass
class Secured:
    service: RunningService
    authority: trustme.CA
    directory: Path

    def http(self, certificate: str | None = None) -> httpx.Client:
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        if certificate is not None:
            context.load_cert_chain(self.directory / certificate)
        return httpx.Client(base_url=self.service.url, verify=context, timeout=60)

    def command(
        self, *words: str, properties: Mapping[str, str], environment: Mapping[str, str] | None = None
    ) -> Result:
        file = self.directory / "client.properties"
        lines = {"ssl.truststore.location": str(self.directory / "ca.pem"), **properties}
        file.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        words = ("pipeline", *words, "--url", self.service.url, "--command-config", str(file))
        return CliRunner().invoke(cli, words, env=environment)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("rest")
    authority = trustme.CA()
    for name in ("server", "client"):
        issued = authority.issue_cert("127.0.0.1", common_name=name)
        issued.private_key_and_cert_chain_pem.write_to_path(str(directory / f"{name}.pem"))
    authority.cert_pem.write_to_path(str(directory / "ca.pem"))
    (directory / "users").write_text("alice=alice-secret\n")
    (directory / "tokens").write_text("deployer=t0ken\n")
    properties = {
        "listener.name.rest.ssl.keystore.location": str(directory / "server.pem"),
        "listener.name.rest.ssl.truststore.location": str(directory / "ca.pem"),
        "listener.name.rest.ssl.client.auth": "requested",
        "http.users.file": str(directory / "users"),
        "http.tokens.file": str(directory / "tokens"),
    }
    with (
        run_broker() as broker,
        running_service(broker.bootstrap, directory, properties=properties) as service,
    ):
        yield Secured(service, authority, directory)


def test_an_unknown_client_changes_and_sees_nothing(secured: Secured) -> None:
    with secured.http() as http:
        for method, path in (("GET", "/"), ("GET", "/connectors"), ("GET", "/metrics"), ("GET", "/nothing")):
            assert http.request(method, path).status_code == 401, path
        created = http.post("/connectors", json={"name": "lake", "config": CONFIG}, auth=("alice", "wrong"))
        assert created.status_code == 401
        assert "alice" not in created.text
        assert http.get("/connectors", auth=("alice", "alice-secret")).json() == []
        assert http.get("/connectors", headers={"Authorization": "Bearer t0ken"}).status_code == 200
    with secured.http("client.pem") as http:
        assert http.get("/connectors").status_code == 200


def test_a_configuration_names_no_file_and_no_code(secured: Secured) -> None:
    settings = (
        {"value.schema": "${file:/etc/passwd}"},
        {"kafka": {"ssl.truststore.location": "/etc/passwd"}},
        {"kafka": {"sasl.oauthbearer.token.endpoint.url": "file:///etc/passwd"}},
        {"kafka": {"sasl.login.callback.handler.class": "com.example.Handler"}},
        {"spark.jars": "http://elsewhere.test/x.jar"},
        {"connector.class": "Pipeline", "pipeline.spec": SPEC.replace("orders", "'\\x24{file:/etc/passwd}'")},
    )
    with secured.http() as http:
        for each in settings:
            config = each if "pipeline.spec" in each else {**CONFIG, **each}
            refused = http.put("/connectors/x/config", json=config, auth=("alice", "alice-secret"))
            assert refused.status_code == 400, each
        assert http.get("/connectors", auth=("alice", "alice-secret")).json() == []


@pytest.mark.parametrize(
    "name", ["..", ".", "../../x", "a/b", "a\r\nSet-Cookie: x=1", "a\0b", "", " ", "x" * 201, "a%2f..%2fb"]
)
def test_no_name_leads_elsewhere(secured: Secured, name: str) -> None:
    """A pipeline's name becomes a directory, and a header of the answer."""
    with secured.http() as http:
        known = {"Authorization": "Bearer t0ken"}
        answer = http.post("/connectors", json={"name": name, "config": CONFIG}, headers=known)
        assert answer.status_code == 400
        assert "set-cookie" not in answer.headers
        path = "/connectors/" + quote(name, safe="").replace(".", "%2e") + "/config"
        assert http.put(path, json=CONFIG, headers=known).status_code in (400, 404, 405)
        assert name not in http.get("/connectors", headers=known).json()


def test_a_body_that_is_too_deep_is_refused(secured: Secured, caplog: pytest.LogCaptureFixture) -> None:
    with secured.http() as http:
        body = '{"name": ' + "[" * 100_000 + "]" * 100_000 + "}"
        answer = http.post("/connectors", content=body, headers={"Authorization": "Bearer t0ken"})
        assert (answer.status_code, answer.json()["error_code"]) == (400, 400)
    assert "Traceback" not in caplog.text


def test_a_body_that_would_hold_the_loop_is_refused(secured: Secured) -> None:
    known = {"Authorization": "Bearer t0ken"}
    settings = {f"k{number}": "v" for number in range(ENTRIES_MAX + 1)}
    with secured.http() as http:
        for body in (settings, {"name": "a", "config": settings}):
            assert http.post("/connectors", json=body, headers=known).status_code == 413
        assert http.put("/connectors/a/config", json=settings, headers=known).status_code == 413
        long = {**CONFIG, "path": "x" * BODY_BYTES_MAX}
        assert http.put("/connectors/a/config", json=long, headers=known).status_code == 413


def test_a_specification_is_checked_beside_the_loop(
    secured: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQL of a few kilobytes may take seconds to parse."""
    threads = []

    def seen(*_: object) -> None:
        threads.append(asyncio._get_running_loop())
        raise InvalidSpec([])

    monkeypatch.setattr("barnabas.pipelines.service.service.spec_of_config", seen)
    monkeypatch.setattr("barnabas.pipelines.service.http.plugin_info.spec_of_config", seen)
    known = {"Authorization": "Bearer t0ken"}
    with secured.http() as http:
        assert http.put("/connectors/a/config", json=CONFIG, headers=known).status_code == 400
        http.put("/connector-plugins/FilesSink/config/validate", json=CONFIG, headers=known)
    assert threads == [None, None]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT reflect('java.lang.System', 'getenv', 'TOP_SECRET') AS a FROM input",
        "SELECT coalesce(reflect('javax.naming.InitialContext', 'doLookup', 'ldap://h'), '') AS a FROM input",
        "SELECT f.value AS a FROM input CROSS JOIN text.`/etc/passwd` f",
        "SELECT '${env:TOP_SECRET}' AS a FROM input",
    ],
)
def test_sql_over_rest_calls_no_java_and_reads_no_files(secured: Secured, query: str) -> None:
    """As `PUT /connectors/NAME/config` with a whole specification, which is how a client sends SQL."""
    source = {"type": "topic", "topics": ["in"], "schema": "a STRING"}
    spec = {"name": "leak", "source": source, "transforms": [{"sql": query}],
            "sink": {"type": "topic", "topic": "out"}}  # fmt: skip
    config = {"connector.class": "Pipeline", "name": "leak", "pipeline.spec": json.dumps(spec)}
    with secured.http() as http:
        known = {"Authorization": "Bearer t0ken"}
        answer = http.put("/connectors/leak/config", json=config, headers=known)
        assert answer.status_code == 400
        assert "transforms" in answer.json()["message"]
        assert "leak" not in http.get("/connectors", headers=known).json()


def test_the_command_line_gets_in(secured: Secured) -> None:
    spec = secured.directory / "copy.yaml"
    spec.write_text(SPEC)
    alice = {"http.user": "alice", "http.password": "${env:REST_PASSWORD}"}
    right = {"REST_PASSWORD": "alice-secret"}
    started = secured.command("start", str(spec), properties=alice, environment=right)
    assert started.output == "started copy: it begins at the earliest offsets\n"
    assert "copy" in secured.command("list", properties={"http.token": "t0ken"}).output
    certificate = str(secured.directory / "client.pem")
    assert "copy" in secured.command("list", properties={"ssl.keystore.location": certificate}).output
    refused = secured.command("list", properties=alice, environment={"REST_PASSWORD": "wrong-secret"})
    assert refused.exit_code == 1
    assert "authentication is required; --command-config has http.user" in refused.output
    assert "wrong-secret" not in refused.output
    missing = secured.command("list", properties=alice)
    assert "${env:REST_PASSWORD}: there is no such environment variable" in missing.output
    secured.command("delete", "copy", properties=alice, environment=right)


@pytest.mark.parametrize(
    ("settings", "missing"),
    [
        ("", "without TLS"),
        ("http.users.file={users}", "without TLS"),
        ("listener.name.rest.ssl.keystore.location={keys}", "without authentication"),
    ],
)
def test_a_service_is_not_started_where_everybody_reaches_it(
    secured: Secured, tmp_path: Path, settings: str, missing: str
) -> None:
    file = tmp_path / "service.properties"
    file.write_text(settings.format(users=secured.directory / "users", keys=secured.directory / "server.pem"))
    nobody = ("--bootstrap", "127.0.0.1:1", "--state", str(tmp_path))
    done = CliRunner().invoke(
        cli, ["pipeline", "serve", "--listen", "0.0.0.0:0", "--config", str(file), *nobody]
    )
    assert done.exit_code != 0
    assert f"would be served {missing}" in done.output
    for setting in ("listener.name.rest.ssl.keystore.location", "http.users.file", "http.open=true"):
        assert setting in done.output


def test_an_open_service_is_warned_of(tmp_path: Path) -> None:
    file = tmp_path / "service.properties"
    file.write_text("http.open=true\n")
    nobody = ("--bootstrap", "127.0.0.1:1", "--state", str(tmp_path))
    done = CliRunner().invoke(
        cli, ["pipeline", "serve", "--listen", "0.0.0.0:0", "--config", str(file), *nobody]
    )
    assert "is a broker running?" in done.output, "it got beyond its own address"
    assert "can be reached from other machines by every client" in done.output
