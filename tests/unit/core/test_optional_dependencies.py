"""The hint for a missing extra names the source that this installation came from."""

from __future__ import annotations

import json
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import pytest

from barnabas.core import optional_dependencies


class Installed:
    def __init__(self, direct_url: dict[str, object] | None) -> None:
        self._direct_url = direct_url

    requires = (
        "click>=8.1",
        "no-such-keeper==2.11.0 ; extra == 'zookeeper'",
        "no-such-spark>=4.3,<5; extra == 'spark'",
        'pytest>=8; extra == "spark"',
        "no-such-types>=1; extra == 'dev'",
    )

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return None if self._direct_url is None else json.dumps(self._direct_url)


def install(monkeypatch: pytest.MonkeyPatch, installed: Installed) -> None:
    """Take the place of Barnabas, beside the packages that are really installed."""

    def found(name: str) -> Installed | Distribution:
        return installed if name == "barnabas" else distribution(name)

    monkeypatch.setattr("importlib.metadata.distribution", found)


@pytest.mark.parametrize(
    ("direct_url", "command"),
    [
        (None, "pip install 'barnabas[zookeeper,spark]'"),
        (
            {"url": "file:///home/a%20b/clone", "dir_info": {"editable": True}},
            "pip install -e '/home/a b/clone[zookeeper,spark]'",
        ),
        (
            {"url": "file:///clone", "dir_info": {}},
            "pip install 'no-such-keeper==2.11.0' 'no-such-spark>=4.3,<5'",
        ),
        (
            {"url": "file:///d/barnabas-1-py3-none-any.whl", "archive_info": {}},
            "pip install 'barnabas[zookeeper,spark] @ file:///d/barnabas-1-py3-none-any.whl'",
        ),
    ],
)
def test_the_command_adds_to_what_is_there(
    monkeypatch: pytest.MonkeyPatch, direct_url: dict[str, object] | None, command: str
) -> None:
    install(monkeypatch, Installed(direct_url))
    assert optional_dependencies.install_command("zookeeper", "spark") == command


def test_source_that_is_not_installed_has_an_answer_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: str) -> None:
        raise PackageNotFoundError

    monkeypatch.setattr("importlib.metadata.distribution", missing)
    clone = Path(__file__).resolve().parents[3]
    assert optional_dependencies.install_command("spark") == f"pip install '{clone}[spark]'"


def test_a_clone_with_all_packages_is_installed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = Installed({"url": "file:///clone", "dir_info": {}})
    monkeypatch.setattr(installed, "requires", ("pytest>=8; extra == 'spark'",), raising=False)
    install(monkeypatch, installed)
    assert optional_dependencies.install_command("spark") == "pip install '/clone[spark]'"
