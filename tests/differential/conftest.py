"""Both brokers, once per session, in the same world; the report at the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from tests.differential.driver import NEWEST
from tests.differential.prepared import prepare
from tests.differential.report import Report
from tests.differential.world import Side
from tests.peers import kafka
from tests.support.broker import REPOSITORY, BarnabasBroker, running

REPORT = REPOSITORY / "build" / "differential.txt"
SETTINGS: dict[str, object] = {
    "group.initial.rebalance.delay.ms": 0,
    "log.retention.ms": -1,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
}
"""Records of cases have old timestamps; retention would take them away in the middle of a run."""
_report = Report()


@dataclass
class Sides:
    ours: Side
    kafka: Side
    report: Report


@pytest.fixture(scope="session")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    kafka.require_kafka()
    with ExitStack() as stack:
        peer = kafka.KafkaBroker(tmp_path_factory.mktemp("kafka"), settings=SETTINGS)
        peer.launch()
        stack.callback(peer.kill)
        ours = BarnabasBroker(tmp_path_factory.mktemp("ours") / "data", settings={"broker.id": 1, **SETTINGS})
        stack.enter_context(running(ours))
        peer.wait_ready()
        found = Sides(Side(ours), Side(peer), _report)
        for side in (found.ours, found.kafka):
            prepare(side)
        for api, versions in found.ours.versions.items():
            NEWEST[api] = min(versions[-1], found.kafka.versions.get(api, versions)[-1])
        _report.version = kafka.kafka_version()
        yield found
        _report.write(REPORT)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _report.count:
        terminalreporter.section("side by side")
        terminalreporter.write(_report.text())
        terminalreporter.write_line(f"written to {REPORT.relative_to(REPOSITORY)}")
