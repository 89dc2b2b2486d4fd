"""The hint for a missing extra names the source that this installation came from."""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError

import pytest

from barnabas.core import optional_dependencies


class Installed:
    def __init__(self, direct_url: dict[str, object] | None) -> None:
        self._direct_url = direct_url

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return None if self._direct_url is None else json.dumps(self._direct_url)


@pytest.mark.parametrize(
    ("direct_url", "command"),
    [
        (None, "pip install 'barnabas[zookeeper,spark]'"),
        (
            {"url": "file:///home/a%20b/clone", "dir_info": {"editable": True}},
            "pip install -e '/home/a b/clone[zookeeper,spark]'",
        ),
        ({"url": "file:///clone", "dir_info": {}}, "pip install '/clone[zookeeper,spark]'"),
        (
            {"url": "file:///d/barnabas-1-py3-none-any.whl", "archive_info": {}},
            "pip install 'barnabas[zookeeper,spark] @ file:///d/barnabas-1-py3-none-any.whl'",
        ),
    ],
)
def test_the_command_adds_to_what_is_there(
    monkeypatch: pytest.MonkeyPatch, direct_url: dict[str, object] | None, command: str
) -> None:
    monkeypatch.setattr("importlib.metadata.distribution", lambda _: Installed(direct_url))
    assert optional_dependencies.install_command("zookeeper", "spark") == command


def test_source_that_is_not_installed_has_an_answer_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: str) -> None:
        raise PackageNotFoundError

    monkeypatch.setattr("importlib.metadata.distribution", missing)
    assert optional_dependencies.install_command("spark") == "pip install 'barnabas[spark]'"
