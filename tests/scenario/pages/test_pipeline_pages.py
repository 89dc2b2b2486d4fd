"""docs/PIPELINES.md and examples/README.md: what their commands do without Spark.

With Spark, `tests/spark/pipelines/test_run_command.py`, `test_service.py` and `test_examples.py` run them.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.broker import BarnabasBroker, running
from tests.support.pages import REPOSITORY, Shell, blocks

pytest.importorskip("pyspark", reason="the service needs Spark's package")


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    with running(BarnabasBroker(tmp_path / "data")) as broker:
        yield Shell(tmp_path, broker.bootstrap)


def test_the_spec_of_the_page_is_valid_and_every_command_exists(shell: Shell) -> None:
    spec = next(each.text for each in blocks("docs/PIPELINES.md", "yaml") if "clean-clicks" in each.text)
    (shell.directory / "clean.yaml").write_text(spec)
    commands = next(each for each in blocks("docs/PIPELINES.md", "sh") if "validate" in each.text).commands
    (validate,) = (each for each in commands if " validate " in each)
    assert "clean-clicks" in shell.run(validate)
    for each in commands:
        if each.startswith("barnabas "):
            for name in each.split()[2].split("|"):
                assert f"barnabas pipeline {name} " in shell.run(f"barnabas pipeline {name} --help")


def test_the_examples_are_valid_and_their_topic_is_filled(shell: Shell) -> None:
    shutil.copytree(REPOSITORY / "examples", shell.directory / "examples")
    commands = blocks("examples/README.md", "sh")[0].commands
    quick = [
        each
        for each in commands
        if " validate " in each or " topic create " in each or "| barnabas produce" in each
    ]
    assert len(quick) == 3
    shell.run("\n".join(quick))
    assert "ann" in shell.run("barnabas consume clicks --from-beginning --count 1")
