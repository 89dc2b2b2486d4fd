"""The web console as its users run it: a process of its own, reached by HTTP alone."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import unescape
from pathlib import Path
from typing import Any

import httpx

import barnabas
from tests.support.ports import free_port
from tests.support.process import ServerProcess
from tests.support.waiting import PATIENCE_S

READY_PREFIX = "console ready: "
_TOKEN = re.compile(r'name="form_token" value="([0-9a-f]{64})"')


class RunningConsole:
    def __init__(self, process: ServerProcess, url: str) -> None:
        self.process = process
        self.shown_url = url
        self.url = url.partition("/sign-in")[0]

    def client(self, **more: Any) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=PATIENCE_S, trust_env=False, **more)


@contextmanager
def running_console(bootstrap: str, *arguments: str, before: Sequence[str] = ()) -> Iterator[RunningConsole]:
    """`barnabas console`, from its ready line to its end. `before` are options of its client."""
    with _running("--bootstrap", bootstrap, *before, *arguments) as console:
        yield console


@contextmanager
def console_of_several(clusters: Mapping[str, str], *arguments: str) -> Iterator[RunningConsole]:
    """`barnabas console` of several clusters: addresses or files by their names."""
    given = [part for name, place in clusters.items() for part in ("--cluster", f"{name}={place}")]
    with _running(*given, *arguments) as console:
        yield console


@contextmanager
def _running(*arguments: str) -> Iterator[RunningConsole]:
    source = str(Path(barnabas.__file__).parents[1])
    search_path = os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "barnabas", "console", *arguments]
    process = ServerProcess(
        [*command, "--listen", f"127.0.0.1:{free_port()}"],
        is_ready=lambda line: line.startswith(READY_PREFIX),
        environment={"PYTHONPATH": search_path, "PYTHONUNBUFFERED": "1"},
    )
    try:
        line = process.wait_ready(PATIENCE_S)
        yield RunningConsole(process, line.removeprefix(READY_PREFIX).strip())
    finally:
        process.stop()


def form_token(page: httpx.Response) -> str:
    """The token that the page's forms carry."""
    found = _TOKEN.search(page.text)
    assert found is not None, f"{page.url} has no form"
    return found[1]


def submit(client: httpx.Client, page: str, action: str, **fields: str | list[str]) -> httpx.Response:
    """Load the page of a form, and send the form."""
    token = form_token(client.get(page))
    return client.post(action, data={"form_token": token, **fields}, follow_redirects=True)


def words(response: httpx.Response) -> str:
    """The text of a page, with single spaces."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", response.text)).split())
