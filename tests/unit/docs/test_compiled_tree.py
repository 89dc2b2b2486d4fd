"""`make run` takes compiled code where there is some of this very source, and the source otherwise."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.fixture
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("compiled_tree", REPOSITORY / "tools" / "compiled_tree.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    there = tmp_path / "repository"
    (there / "src" / "barnabas").mkdir(parents=True)
    (there / "src" / "barnabas" / "hot.py").write_text("one = 1\n")
    for name in ("pyproject.toml", "hatch_build.py"):
        shutil.copy(REPOSITORY / name, there)
    return there


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Command that would have been started."""
    begun: list[list[str]] = []
    monkeypatch.setattr(subprocess, "Popen", lambda command, **_: begun.append(command))
    monkeypatch.delenv("BARNABAS_COMPILE", raising=False)
    return begun


def test_the_source_runs_at_once_and_is_compiled_beside_it(
    tool: ModuleType, repository: Path, builds: list[list[str]], tmp_path: Path
) -> None:
    assert tool.find_or_begin(repository, tmp_path / "compiled") == ""
    assert [command[2:] for command in builds] == [
        ["--build", str(repository), str(tmp_path / "compiled" / tool.digest_of(repository))]
    ]


def test_what_was_compiled_runs_until_a_line_changes(
    tool: ModuleType, repository: Path, builds: list[list[str]], tmp_path: Path
) -> None:
    tree = tmp_path / "compiled" / tool.digest_of(repository)
    (tree / "barnabas").mkdir(parents=True)
    assert tool.find_or_begin(repository, tmp_path / "compiled") == str(tree)
    assert not builds
    (repository / "src" / "barnabas" / "hot.py").write_text("one = 2\n")
    assert tool.find_or_begin(repository, tmp_path / "compiled") == ""
    assert len(builds) == 1


def test_what_cannot_be_compiled_is_not_tried_again(
    tool: ModuleType,
    repository: Path,
    builds: list[list[str]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    tree = tmp_path / "compiled" / tool.digest_of(repository)
    tree.mkdir(parents=True)
    (tree / tool.WHY_NOT).write_text("compiling did not work")
    assert tool.find_or_begin(repository, tmp_path / "compiled") == ""
    assert not builds
    assert "compiling did not work" in capsys.readouterr().err


def test_it_can_be_switched_off(
    tool: ModuleType,
    repository: Path,
    builds: list[list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BARNABAS_COMPILE", "0")
    (tmp_path / "compiled" / tool.digest_of(repository) / "barnabas").mkdir(parents=True)
    assert tool.find_or_begin(repository, tmp_path / "compiled") == ""
    assert not builds
