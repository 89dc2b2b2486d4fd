"""The table of docs/CLIENT.md that compares clients, written from the outcomes of the behavioural suite.

    python -m pytest tests/clients/behaviour --comparison docs/CLIENT.md

A behaviour is a test with the marker `behaviour(title)`, run for each client and each broker. Only a complete
run writes the table, so no cell is left over from another day.
"""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.peers.kafka import kafka_version

OK, ABSENT, FAILED = "✓", "–", "✗"
BROKERS = ("barnabas", "kafka")
CLIENTS = ("Barnabas", "aiokafka", "kafka-python", "confluent-kafka")
PART = re.compile(r"(<!-- compared -->\n).*?(<!-- end -->)", re.DOTALL)


class Comparison:
    """Pytest plugin: gathers outcomes by behaviour, client and broker, and renders them at the end."""

    def __init__(self, page: Path) -> None:
        self._page = page
        self._cells: dict[tuple[str, str, str], str] = {}
        self._where: dict[str, tuple[str, str, str]] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            mark = item.get_closest_marker("behaviour")
            if mark is not None and isinstance(item, pytest.Function):
                names = item.callspec.params
                self._where[item.nodeid] = (str(mark.args[0]), str(names["driver"]), str(names["peer"]))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        cell = self._where.get(report.nodeid)
        if cell is None or (report.when != "call" and report.outcome == "passed"):
            return
        absent = dict(report.user_properties).get("absent")
        symbol = {"passed": OK, "failed": FAILED}.get(report.outcome, ABSENT if absent else "")
        if symbol:
            self._cells[cell] = FAILED if FAILED in (symbol, self._cells.get(cell)) else symbol

    def pytest_sessionfinish(self) -> None:
        missing = set(self._where.values()) - self._cells.keys()
        clients = {client for _, client, _ in self._cells}
        if missing or clients != set(CLIENTS):
            print(f"\nthe run is not complete, {self._page} stays as it is: {sorted(missing)[:3]}")
            return
        text = self._page.read_text(encoding="utf-8")
        table = "\n".join(self._rows())
        self._page.write_text(PART.sub(lambda part: f"{part[1]}{table}\n{part[2]}", text), encoding="utf-8")

    def _rows(self) -> Iterator[str]:
        yield "| behaviour | " + " | ".join(map(_titled, CLIENTS)) + " |"
        yield "|---" * (len(CLIENTS) + 1) + "|"
        for title in dict.fromkeys(title for title, _, _ in self._where.values()):
            cells = [self._cell(title, client) for client in CLIENTS]
            yield f"| {title} | " + " | ".join(cells) + " |"
        yield ""
        yield (
            f"✓ works with Barnabas and with Apache Kafka {kafka_version()} · – the client has no such thing"
            " · ✗ fails with the broker that is named"
        )

    def _cell(self, title: str, client: str) -> str:
        found = {broker: self._cells[title, client, broker] for broker in BROKERS}
        if len(set(found.values())) == 1:
            return found["kafka"]
        return ", ".join(f"{symbol} {broker}" for broker, symbol in found.items())


def _titled(client: str) -> str:
    return "Barnabas" if client == "Barnabas" else f"{client} {importlib.metadata.version(client)}"
