"""Sources of the keys that verify tokens, and sources that are rejected."""

from __future__ import annotations

import json
import os
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import trustme
from joserfc.jwk import ECKey
from tests.support.ports import free_port

from barnabas.core.errors import InvalidConfig
from barnabas.node.security import jwks
from barnabas.node.security.jwks import check_key_set_url, read_key_set

KEYS = json.dumps({"keys": [ECKey.generate_key("P-256", {"kid": "k"}).as_dict(private=False)]}).encode()


class Issuer(BaseHTTPRequestHandler):
    """`/keys` has them, `/moved` says that they are at `/keys`."""

    def do_GET(self) -> None:
        self.send_response(302 if self.path == "/moved" else 200)
        self.send_header("Location", "/keys")
        self.send_header("Content-Length", str(len(KEYS)))
        self.end_headers()
        self.wfile.write(KEYS)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextmanager
def issuer(authority: trustme.CA | None) -> Iterator[str]:
    """In the clear without an authority."""
    server = HTTPServer(("127.0.0.1", 0), Issuer)
    if authority is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"{'http' if authority is None else 'https'}://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> trustme.CA:
    """One that this machine trusts."""
    trusted = trustme.CA()
    trusted.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    return trusted


def test_keys_are_read_over_https(authority: trustme.CA) -> None:
    with issuer(authority) as url:
        assert len(read_key_set(f"{url}/keys").keys) == 1


def test_keys_are_read_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "of the issuer.json").write_bytes(KEYS)
    assert len(read_key_set((tmp_path / "of the issuer.json").as_uri()).keys) == 1


def test_an_issuer_without_a_trusted_certificate_is_not_believed(authority: trustme.CA) -> None:
    del authority
    with issuer(trustme.CA()) as url, pytest.raises(InvalidConfig, match="CERTIFICATE_VERIFY_FAILED"):
        read_key_set(f"{url}/keys")


def test_no_request_for_keys_is_redirected(authority: trustme.CA) -> None:
    with issuer(authority) as url, pytest.raises(InvalidConfig, match="302"):
        read_key_set(f"{url}/moved")


def test_keys_in_the_clear_come_through_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server in the place of the proxy would answer with its own keys."""
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with issuer(None) as proxy:
        monkeypatch.setenv("http_proxy", proxy)
        with pytest.raises(InvalidConfig, match="refused"):
            read_key_set(f"http://127.0.0.1:{free_port()}/keys")
        assert len(read_key_set(f"{proxy}/keys").keys) == 1


def test_more_than_a_key_set_can_be_is_not_taken(
    authority: trustme.CA, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jwks, "KEY_SET_BYTES_MAX", len(KEYS) - 1)
    with issuer(authority) as url, pytest.raises(InvalidConfig, match="larger than"):
        read_key_set(f"{url}/keys")


@pytest.mark.parametrize(
    "url",
    [
        "http://issuer.example/keys",
        "https:///keys",
        "https://[issuer/keys",
        "file://elsewhere/keys",
        "ftp://issuer/keys",
        "keys",
    ],
)
def test_keys_in_the_clear_verify_nothing(url: str) -> None:
    with pytest.raises(InvalidConfig, match="in the clear"):
        check_key_set_url(url)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-x\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 200 + b"\r\n",
    ],
    ids=range(4),
)
def test_an_answer_that_is_no_http_is_no_key_set(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            client, _ = server.accept()
            with client:
                client.recv(65_536)
                client.sendall(answer)

        serving = threading.Thread(target=serve)
        serving.start()
        with pytest.raises(InvalidConfig):
            read_key_set(f"http://127.0.0.1:{server.getsockname()[1]}/keys")
        serving.join()


def test_a_pipe_is_no_key_set(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidConfig, match="not a regular file"):
        read_key_set((tmp_path / "pipe").as_uri())
