"""Files of `start --secure`: made once, private to their owner, renewed in time."""

from __future__ import annotations

import datetime as dt
import stat
from pathlib import Path

import pytest

from barnabas.config.properties import read_properties
from barnabas.core.errors import InvalidConfig
from barnabas.localcluster.secure_setup import (
    AUTHORITY_LIFETIME,
    CERTIFICATE_LIFETIME,
    RENEWED_BEFORE,
    SecuredHome,
)

NOW = dt.datetime(2026, 11, 16, tzinfo=dt.UTC)
HOSTS = ("127.0.0.1", "broker.example")
DAY = dt.timedelta(days=1)


def opened(path: Path, now: dt.datetime = NOW, hosts: tuple[str, ...] = HOSTS) -> SecuredHome:
    return SecuredHome.open([path / "data"], hosts, now)


def content(home: SecuredHome) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in home.directory.iterdir()}


def test_everything_is_made_once(tmp_path: Path) -> None:
    first = opened(tmp_path)
    before = content(first)
    second = opened(tmp_path, NOW + DAY)
    assert content(second) == before
    assert second.secrets == first.secrets
    assert len(set(first.secrets.values())) == len(first.secrets)
    assert second.expires == NOW + CERTIFICATE_LIFETIME


def test_only_its_owner_reads_it(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o755)
    home = opened(tmp_path)
    home.settle("127.0.0.1:9093")
    directories = {tmp_path / "data", home.directory}
    assert {stat.S_IMODE(each.stat().st_mode) for each in directories} == {0o700}
    files = list(home.directory.iterdir())
    assert {stat.S_IMODE(each.stat().st_mode) for each in files} == {0o600}
    assert len(files) == 8
    assert not any(secret in repr(home) for secret in home.secrets.values())
    assert not any(secret in repr(home.first_users) for secret in home.secrets.values())


@pytest.mark.parametrize(
    ("passed", "renewed"),
    [
        (CERTIFICATE_LIFETIME - RENEWED_BEFORE - DAY, set()),
        (CERTIFICATE_LIFETIME - RENEWED_BEFORE + DAY, {"broker.pem"}),
        (CERTIFICATE_LIFETIME + DAY, {"broker.pem"}),
        (AUTHORITY_LIFETIME - CERTIFICATE_LIFETIME + DAY, {"broker.pem", "authority.pem", "ca.pem"}),
    ],
)
def test_a_start_renews_what_has_little_time_left(
    tmp_path: Path, passed: dt.timedelta, renewed: set[str]
) -> None:
    before = content(opened(tmp_path))
    home = opened(tmp_path, NOW + passed)
    after = content(home)
    assert {name for name in before if before[name] != after[name]} == renewed
    assert home.expires - (NOW + passed) >= RENEWED_BEFORE
    assert home.secrets == opened(tmp_path).secrets


def test_another_host_gets_another_certificate(tmp_path: Path) -> None:
    before = content(opened(tmp_path))
    after = content(opened(tmp_path, hosts=("127.0.0.1", "other.example")))
    assert {name for name in before if before[name] != after[name]} == {"broker.pem"}


def test_a_certificate_of_another_authority_is_replaced(tmp_path: Path) -> None:
    home = opened(tmp_path)
    (home.directory / "authority.pem").unlink()
    before = content(home)
    after = content(opened(tmp_path))
    assert before["broker.pem"] != after["broker.pem"]


def test_a_user_keeps_a_password_that_was_changed(tmp_path: Path) -> None:
    """But not before a start came so far as to store the first one."""
    assert opened(tmp_path).first_users.replaces == {"admin", "alice", "broker"}
    interrupted = opened(tmp_path)
    assert interrupted.first_users.replaces == {"admin", "alice", "broker"}
    interrupted.settle(None)
    settled = opened(tmp_path)
    assert settled.first_users.replaces == {"broker"}
    assert settled.secrets == interrupted.secrets


def test_a_file_that_is_spoilt_is_named(tmp_path: Path) -> None:
    home = opened(tmp_path)
    (home.directory / "broker.pem").write_text("spoilt")
    with pytest.raises(InvalidConfig, match=r"broker\.pem"):
        opened(tmp_path)


def test_the_files_of_clients(tmp_path: Path) -> None:
    home = opened(tmp_path)
    home.settle("127.0.0.1:9093,127.0.0.1:9094")
    java = read_properties(home.client_file("alice").read_text())
    assert java["bootstrap.servers"] == "127.0.0.1:9093,127.0.0.1:9094"
    assert java["ssl.truststore.location"] == str(home.directory / "ca.pem")
    assert java["ssl.truststore.type"] == "PEM"
    assert f'username="alice" password="{home.secrets["alice"]}";' in java["sasl.jaas.config"]
    assert home.secrets["admin"] not in home.client_file("alice").read_text()
    librdkafka = home.librdkafka_file("alice").read_text()
    assert librdkafka.startswith("# Needs librdkafka 2.6.1 or later")
    settings = read_properties(librdkafka)
    assert settings["sasl.password"] == home.secrets["alice"]
    assert settings.keys() - java.keys() == {"ssl.ca.location", "sasl.username", "sasl.password"}
