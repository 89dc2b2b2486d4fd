"""The run does not pass for what it was not able to do."""

from __future__ import annotations

import argparse

import pytest
from tests.chaos import run


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """In which places a run has begun."""
    places: list[object] = []

    def begin(_: argparse.Namespace, place: object) -> int:
        places.append(place)
        return 0

    monkeypatch.setattr(run, "_run", begin)
    return places


def test_without_namespaces_it_fails_and_says_why(
    begun: list[object], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(run, "why_not", lambda: "network namespaces need root")
    assert run.main(["--seconds", "1"]) != 0
    assert begun == []
    assert "network namespaces need root" in caplog.text


def test_without_namespaces_it_runs_if_that_is_asked_for(
    begun: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "why_not", lambda: "network namespaces need root")
    assert run.main(["--seconds", "1", "--loopback"]) == 0
    assert begun == [None]
