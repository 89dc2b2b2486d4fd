"""The matrix of clients and features, written from the outcomes of the tests themselves.

A test says what it shows by two markers, `client(name)` and `feature(name)`; a feature named
`codec-{codec}` takes the word from the test's parameter. Several tests may stand behind one
cell: it is as good as the worst of them. Only a complete run may write the file
(`make test-clients`), so a cell is never left over from another day; the text holds no times
and no host, so the same outcome is the same file.
"""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.clients.features import BY_NAME, FEATURES
from tests.clients.programs import PROGRAMS
from tests.peers.kafka import kafka_version

OK, NOT_YET, FAILED, ABSENT, UNTRIED = "✓", "not yet", "✗", "–", "?"
WORST_FIRST = (FAILED, NOT_YET, UNTRIED, OK, ABSENT)
PYTHON_CLIENTS = ("confluent-kafka", "kafka-python", "aiokafka")
CLIENTS: tuple[tuple[str, str], ...] = (
    *((program.client, program.language) for program in PROGRAMS),
    *((name, "Python") for name in PYTHON_CLIENTS),
    ("kcat", "C"),
)
TOOLS = "Kafka's tools"
NOT_FOR = {
    "kcat": {
        "create-topic",
        "describe-configs",
        "alter-configs",
        "create-partitions",
        "delete-records",
        "delete-topic",
    }
}
"""Features that no test can show, because the client does not administer."""
HEAD = """\
# Compatibility

Which client does what against Barnabas, as its own tests found it. This file is written by
`make test-clients`; a change by hand is lost at the next run.

✓ works · not yet: the broker does not advertise what this needs ·
✗ fails, see the notes · – the client has no such thing · ? not tried
"""


class Matrix:
    """A pytest plugin: gathers outcomes by client and feature, writes them at the end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._cells: dict[tuple[str, str], set[str]] = {}
        self._notes: dict[tuple[str, str], str] = {}
        self._versions: dict[str, str] = {}
        self._marks: dict[str, list[tuple[str, str]]] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            self._marks[item.nodeid] = marked_cells(item)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call" and report.outcome == "passed":
            return
        said = dict(report.user_properties)
        for client, feature in self._marks.get(report.nodeid, ()):
            if said.get("version"):
                self._versions[client] = str(said["version"])
            symbol = symbol_of(report, absent=bool(said.get("absent")))
            self._cells.setdefault((client, feature), set()).add(symbol)
            if symbol == FAILED:
                self._notes[client, feature] = last_line(report)

    def pytest_sessionfinish(self) -> None:
        self._path.write_text(self._render())

    def _render(self) -> str:
        parts = [HEAD, "## Clients\n", *self._client_table(), ""]
        parts += [f"## Kafka's own tools ({kafka_version()})\n", *self._tool_table()]
        if self._notes:
            parts += ["", "## Notes\n"]
            parts += [
                f"- {client}, {feature}: {note}" for (client, feature), note in sorted(self._notes.items())
            ]
        return "\n".join(parts).rstrip() + "\n"

    def _client_table(self) -> Iterable[str]:
        clients = [(name, language) for name, language in CLIENTS if self._has(name)]
        yield "| feature | " + " | ".join(f"{language}: {self._title(n)}" for n, language in clients) + " |"
        yield "|---" * (len(clients) + 1) + "|"
        for feature in FEATURES:
            row = [self._symbol(name, feature.name) for name, _ in clients]
            yield f"| {feature.title} | " + " | ".join(row) + " |"

    def _tool_table(self) -> Iterable[str]:
        yield "| tool | |"
        yield "|---|---|"
        for client, tool in sorted(self._cells):
            if client == TOOLS:
                yield f"| {tool} | {self._symbol(client, tool)} |"

    def _has(self, client: str) -> bool:
        return any(name == client for name, _ in self._cells)

    def _title(self, client: str) -> str:
        version = self._versions.get(client) or installed_version(client)
        return client if version in client else f"{client} {version}"

    def _symbol(self, client: str, feature: str) -> str:
        if feature in NOT_FOR.get(client, ()):
            return ABSENT
        found = self._cells.get((client, feature), set())
        return next((symbol for symbol in WORST_FIRST if symbol in found), UNTRIED)


def marked_cells(item: pytest.Item) -> list[tuple[str, str]]:
    client = item.get_closest_marker("client")
    if client is None:
        return []
    parameters = (
        item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    )
    words = {name: "none" if value is None else value for name, value in parameters.items()}
    names = [str(n).format(**words) for mark in item.iter_markers("feature") for n in mark.args]
    if client.args[0] != TOOLS:
        unknown = [name for name in names if name not in BY_NAME]
        assert not unknown, f"{item.nodeid} shows what no table lists: {unknown}"
    return [(client.args[0], name) for name in names]


def symbol_of(report: pytest.TestReport, *, absent: bool) -> str:
    if report.outcome == "passed":
        return OK
    if report.outcome == "failed":
        return FAILED
    if hasattr(report, "wasxfail"):
        return NOT_YET
    return ABSENT if absent else UNTRIED


def last_line(report: pytest.TestReport) -> str:
    """The reason without what differs from run to run."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = str(crash.message if crash else report.longrepr)
    return re.sub(r"127\.0\.0\.1:\d+", "the broker", " ".join(text.split()))[:200]


def installed_version(client: str) -> str:
    if client == "kcat":
        if shutil.which("kcat") is None:
            return ""
        said = subprocess.run(["kcat", "-V"], capture_output=True, text=True, check=False).stdout
        found = re.search(r"Version (\S+).*librdkafka (\S+)", said)
        return f"{found[1]} (librdkafka {found[2]})" if found else ""
    try:
        return importlib.metadata.version(client)
    except importlib.metadata.PackageNotFoundError:
        return ""
