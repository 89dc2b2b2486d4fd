"""Authentication over HTTP, and the files of users and tokens."""

from __future__ import annotations

import base64
import hashlib
import os
from pathlib import Path

import pytest

from barnabas.core.errors import InvalidConfig
from barnabas.security.credentials.scram_credential import ScramCredential, ScramMechanism
from barnabas.security.http.access import HttpAccess, hashed_password


def basic(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


@pytest.fixture
def users(tmp_path: Path) -> Path:
    path = tmp_path / "users"
    path.write_text(f"alice=se:cret=1\nbob={hashed_password('hidden', 4096)}\n")
    return path


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    path = tmp_path / "tokens"
    path.write_text(f"scraper=t0ken\nother=sha256:{hashlib.sha256(b'second').hexdigest()}\n")
    return path


def test_passwords_plain_and_hashed(users: Path) -> None:
    access = HttpAccess(users, None)
    assert access.accept(basic("alice", "se:cret=1"), certificate_of=None) == "alice"
    assert access.accept(basic("bob", "hidden"), certificate_of=None) == "bob"
    wrong = (
        basic("alice", "hidden"),
        basic("bob", "se:cret=1"),
        basic("carol", "hidden"),
        basic("alice", ""),
        basic("bob", users.read_text().splitlines()[1].partition("=")[2]),
        "Basic " + base64.b64encode(b"alice").decode(),
        "Basic \xff",
        "Basic",
        "Bearer t0ken",
        None,
    )
    for each in wrong:
        assert access.accept(each, certificate_of="CN=carol") is None, each


def test_a_pipe_is_no_file_of_users(tmp_path: Path) -> None:
    """A pipe has no writer: a read would wait forever."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidConfig, match="not a regular file"):
        HttpAccess(tmp_path / "pipe", None)


def test_an_unknown_user_takes_as_many_iterations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the time of an answer reveals the known users."""
    users, derive, taken = tmp_path / "users", ScramCredential.derive, list[int]()
    users.write_text(f"alice={hashed_password('hidden', 12_000)}\n")
    access = HttpAccess(users, None)

    def noted(mechanism: ScramMechanism, password: str, iterations: int, salt: bytes) -> ScramCredential:
        taken.append(iterations)
        return derive(mechanism, password, iterations, salt)

    monkeypatch.setattr(ScramCredential, "derive", noted)
    for name in ("alice", "bob", "carol"):
        assert access.accept(basic(name, "wrong"), certificate_of=None) is None
    assert taken == [12_000] * 3


def test_tokens_plain_and_hashed(tokens: Path) -> None:
    access = HttpAccess(None, tokens)
    assert access.accept("Bearer t0ken", certificate_of=None) == "scraper"
    assert access.accept("bearer second", certificate_of=None) == "other"
    digest = hashlib.sha256(b"second").hexdigest()
    for wrong in (
        "Bearer",
        "Bearer t0ke",
        f"Bearer sha256:{digest}",
        f"Bearer {digest}",
        basic("scraper", "t0ken"),
    ):
        assert access.accept(wrong, certificate_of=None) is None, wrong


def test_a_certificate_counts_only_where_it_is_asked_for(tokens: Path) -> None:
    assert HttpAccess(None, tokens, by_certificate=True).accept(None, certificate_of="CN=carol") == "CN=carol"
    assert HttpAccess(None, None, by_certificate=True).accept(None, certificate_of=None) is None
    assert HttpAccess(None, tokens).accept(None, certificate_of="CN=carol") is None


def test_only_what_asks_for_nothing_is_open(users: Path) -> None:
    assert HttpAccess(None, None).is_open
    assert HttpAccess(None, None).accept(None, certificate_of=None) == "ANONYMOUS"
    assert not HttpAccess(users, None).is_open
    assert not HttpAccess(None, None, by_certificate=True).is_open


def test_a_file_is_read_again_and_a_useless_one_changes_nothing(
    users: Path, caplog: pytest.LogCaptureFixture
) -> None:
    access = HttpAccess(users, None)
    users.write_text("alice=changed\n")
    os.utime(users, ns=(1, 1))
    assert access.accept(basic("alice", "se:cret=1"), certificate_of=None) is None
    assert access.accept(basic("alice", "changed"), certificate_of=None) == "alice"
    users.write_text("alice=scram-sha-256:salt=s3cr3t\n")
    assert access.accept(basic("alice", "changed"), certificate_of=None) == "alice"
    assert "alice" in caplog.text
    assert "s3cr3t" not in caplog.text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "names no user"),
        ("alice=\n", "it is empty"),
        ("alice=scram-sha-256:salt=hidden\n", "it is not a SCRAM credential"),
        ("".join(f"user{number}=x\n" for number in range(1_001)), "more than 1000"),
    ],
)
def test_a_file_that_is_of_no_use_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "users"
    path.write_text(text)
    with pytest.raises(InvalidConfig, match=reason) as refused:
        HttpAccess(path, None)
    assert "hidden" not in refused.value.message


def test_a_token_s_digest_that_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    for text in ("a=sha256:beef\n", "a=sha256:hidden\n"):
        path.write_text(text)
        with pytest.raises(InvalidConfig, match="secret of a is unusable") as refused:
            HttpAccess(None, path)
        assert "hidden" not in refused.value.message


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="nothing cannot be read: No such file"):
        HttpAccess(tmp_path / "nothing", None)
