"""Checkpoints of pipelines that are run without --state."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.pipelines.state.location import default_state


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    return tmp_path / "home"


def test_the_working_directory_does_not_matter(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = set()
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        found.add(default_state())
    assert found == {str(home / ".local" / "state" / "barnabas" / "pipelines")}


def test_the_users_state_directory_may_be_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/elsewhere")
    assert default_state() == "/elsewhere/barnabas/pipelines"
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    assert default_state().endswith(".local/state/barnabas/pipelines")


def test_a_directory_of_an_earlier_version_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("barnabas-pipelines").mkdir()
    assert default_state() == "barnabas-pipelines"
