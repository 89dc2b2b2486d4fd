"""`pipeline run` with `available_now` says that windows which are still open are not written."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from barnabas.cli.commands.pipelines.pipeline_run import OPEN_WINDOWS
from barnabas.cli.main import cli

pytest.importorskip("pyspark", reason="Spark is not installed")

SPEC = """\
name: counts
source: {type: rate}
transforms:
  - {type: window, time: timestamp, size: 1 minute, emit: EMIT}
sink: {type: console}
trigger: TRIGGER
"""


@pytest.mark.parametrize(
    ("emit", "trigger", "is_said"),
    [("final", "available_now", True), ("updates", "available_now", False)],
)
def test_open_windows_are_mentioned_where_they_stay(
    emit: str, trigger: str, is_said: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from barnabas.pipelines.spark import runner
    from barnabas.pipelines.spark.jvm import session

    monkeypatch.setattr(session, "open_session", lambda *_, **__: SimpleNamespace(stop=lambda: None))
    monkeypatch.setattr(session, "discard_stderr", lambda _: None)
    monkeypatch.setattr(runner, "run_pipeline", lambda *_, **__: None)
    file = tmp_path / "counts.yaml"
    file.write_text(SPEC.replace("EMIT", emit).replace("TRIGGER", trigger))
    ended = CliRunner().invoke(cli, ["pipeline", "run", str(file), "--state", str(tmp_path)])
    assert ended.exit_code == 0, ended.output
    assert (f"counts: {OPEN_WINDOWS}" in ended.output) == is_said
    assert "counts: done" in ended.output
