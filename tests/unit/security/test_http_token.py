from __future__ import annotations

import contextlib
import stat
from pathlib import Path

import pytest

from barnabas.core.errors import InvalidConfig
from barnabas.security.http.access import HttpAccess
from barnabas.security.http.token import VARIABLE, kept_token, token_file, token_for


def test_commands_of_the_same_user_find_the_token_and_no_other_user_does(tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    with kept_token(8083, environment) as kept:
        assert len(kept.token) >= 40
        assert stat.S_IMODE(kept.file.stat().st_mode) == 0o600
        assert stat.S_IMODE(kept.file.parent.stat().st_mode) == 0o700
        for host in ("127.0.0.1", "localhost", "[::1]"):
            assert token_for(f"http://{host}:8083", environment) == kept.token
        assert token_for("http://127.0.0.1:8084", environment) is None
        assert token_for("http://10.0.0.1:8083", environment) is None
        with kept_token(8083, environment) as again:
            assert again.token != kept.token
    assert not token_file(8083, environment).exists()
    assert token_for("http://127.0.0.1:8083", environment) is None


def test_the_end_of_a_service_leaves_the_token_of_the_next_one(tmp_path: Path) -> None:
    """It closes its port first, and its drivers end seconds later."""
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    with contextlib.ExitStack() as later:
        with kept_token(8083, environment):
            kept = later.enter_context(kept_token(8083, environment))
        assert token_for("http://127.0.0.1:8083", environment) == kept.token
    assert not token_file(8083, environment).exists()


def test_a_token_of_the_environment_is_used_on_loopback_only(tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path), VARIABLE: "mine"}
    with kept_token(8083, environment) as kept:
        assert kept.token == "mine"
    assert token_for("http://127.0.0.1:8083", environment) == "mine"
    assert token_for("http://example.org:8083", environment) is None


def test_a_link_that_waits_in_the_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    victim = tmp_path / "victim"
    victim.write_text("precious")
    file = token_file(8083, environment)
    file.parent.mkdir(parents=True)
    file.symlink_to(victim)
    with kept_token(8083, environment):
        assert not file.is_symlink()
    assert victim.read_text() == "precious"


def test_a_token_that_cannot_be_kept_is_told_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "barnabas").write_text("no directory")
    with (
        pytest.raises(InvalidConfig, match=r"http\.open=true"),
        kept_token(8083, {"XDG_CACHE_HOME": str(tmp_path)}),
    ):
        pass


def test_the_file_is_one_of_tokens(tmp_path: Path) -> None:
    with kept_token(8083, {"XDG_CACHE_HOME": str(tmp_path)}) as kept:
        access = HttpAccess(None, kept.file)
        assert access.accept(f"Bearer {kept.token}", certificate_of=None) == "local"
        for wrong in (None, "Bearer ", "Bearer x", f"Basic {kept.token}"):
            assert access.accept(wrong, certificate_of=None) is None
