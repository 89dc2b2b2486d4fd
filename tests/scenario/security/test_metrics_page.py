"""The metrics page of a broker where other machines reach it: by TLS, and for those who are known."""

from __future__ import annotations

import base64
import json
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme

from tests.support.broker import BarnabasBroker, running
from tests.support.ports import free_port

REFUSED = (urllib.error.URLError, ConnectionError)


@dataclass
class Page:
    broker: BarnabasBroker
    port: int
    authority: trustme.CA
    users: Path
    certificate: Path

    def status(self, authorization: str | None = None, *, with_certificate: bool = False) -> int:
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        if with_certificate:
            context.load_cert_chain(self.certificate)
        headers = {} if authorization is None else {"Authorization": authorization}
        request = urllib.request.Request(f"https://127.0.0.1:{self.port}/metrics", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=60, context=context) as answer:
                assert b"kafka_broker_state 3" in answer.read()
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    directory = tmp_path_factory.mktemp("page")
    authority = trustme.CA()
    for name in ("server", "client"):
        issued = authority.issue_cert("127.0.0.1", common_name=name)
        issued.private_key_and_cert_chain_pem.write_to_path(str(directory / f"{name}.pem"))
    authority.cert_pem.write_to_path(str(directory / "ca.pem"))
    (directory / "users").write_text("alice=alice-secret\n")
    (directory / "tokens").write_text("prometheus=t0ken\n")
    port = free_port()
    settings = {
        "listener.name.metrics.ssl.keystore.location": directory / "server.pem",
        "listener.name.metrics.ssl.truststore.location": directory / "ca.pem",
        "listener.name.metrics.ssl.client.auth": "requested",
        "http.users.file": directory / "users",
        "http.tokens.file": directory / "tokens",
    }
    broker = BarnabasBroker(
        directory / "data",
        settings=settings,
        arguments=["--metrics", f"0.0.0.0:{port}"],
    )
    with running(broker):
        yield Page(broker, port, authority, directory / "users", directory / "client.pem")


def basic(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


def test_the_page_is_for_those_who_are_known(page: Page) -> None:
    assert page.status(basic("alice", "alice-secret")) == 200
    assert page.status("Bearer t0ken") == 200
    assert page.status(with_certificate=True) == 200
    assert page.status() == 401
    assert page.status(basic("alice", "wrong")) == 401
    assert page.status("Bearer wrong") == 401


def test_who_is_refused_is_in_the_audit_log(page: Page) -> None:
    assert page.status("Bearer wr0ng") == 401
    said = page.broker.output_text()
    lines = [line[line.index("{") :] for line in said.splitlines() if '"resource_type": "HTTP"' in line]
    found = [json.loads(line) for line in lines]
    assert ("denied", "/metrics", "wrong credentials") in {
        (line["decision"], line["resource"], line["rule"]) for line in found
    }
    assert "wr0ng" not in said


def test_a_certificate_of_another_authority_is_no_certificate(page: Page, tmp_path: Path) -> None:
    stranger = trustme.CA().issue_cert("127.0.0.1", common_name="client")
    stranger.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "stranger.pem"))
    with pytest.raises(REFUSED):
        Page(page.broker, page.port, page.authority, page.users, tmp_path / "stranger.pem").status(
            with_certificate=True
        )


def test_a_client_without_tls_is_closed_without_an_answer(page: Page) -> None:
    with pytest.raises(REFUSED):
        urllib.request.urlopen(f"http://127.0.0.1:{page.port}/metrics", timeout=60)


def test_users_are_changed_while_the_broker_runs(page: Page) -> None:
    page.users.write_text("alice=alice-secret\nbob=bobs-own-secret\n")
    assert page.status(basic("bob", "bobs-own-secret")) == 200


def start(directory: Path, *settings: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "barnabas", "start", "--data-dir", str(directory)]
    command += ["--listener", "PLAINTEXT://127.0.0.1:0", "--metrics", "0.0.0.0:0"]
    command += [word for each in settings for word in ("--set", each)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_a_broker_does_not_start_with_a_page_that_is_open_to_all(tmp_path: Path) -> None:
    done = start(tmp_path / "data")
    assert done.returncode == 2
    assert "would be served without TLS" in done.stderr
    for setting in ("listener.name.metrics.ssl.keystore.location", "http.users.file", "http.open=true"):
        assert setting in done.stderr
    assert not list(tmp_path.glob("data/*/*")), "nothing was begun"
