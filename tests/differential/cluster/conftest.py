"""Both clusters, once per session; the report at the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.differential.cluster.side import ClusterSide
from tests.differential.conftest import Sides
from tests.differential.driver import NEWEST
from tests.differential.report import Report
from tests.peers import kafka
from tests.support import wire
from tests.support.broker import REPOSITORY
from tests.support.clusters import any_cluster

REPORT = REPOSITORY / "build" / "differential-cluster.txt"
SETTINGS: dict[str, object] = {
    "group.initial.rebalance.delay.ms": 0,
    "log.retention.ms": -1,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
    "auto.leader.rebalance.enable": "false",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
}
LETTERS = {0: [1, 2, 3], 1: [2, 3, 1], 2: [3, 1, 2]}
PAIR = {0: [2, 1], 1: [1, 3]}
_report = Report()


@pytest.fixture(scope="session")
def cluster_sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    kafka.require_kafka()
    with ExitStack() as stack:
        found = []
        for name in ("kafka", "barnabas"):
            cluster = stack.enter_context(
                any_cluster(
                    name,
                    tmp_path_factory.mktemp(name),
                    SETTINGS,
                    session_timeout_ms=20_000,
                    each=lambda node: {"broker.rack": f"rack-{node}"},
                )
            )
            found.append(ClusterSide(cluster.brokers[0], cluster=cluster))
            _prepare(found[-1])
        theirs, ours = found
        for api, versions in ours.versions.items():
            NEWEST[api] = min(versions[-1], theirs.versions.get(api, versions)[-1])
        _report.version = kafka.kafka_version()
        yield Sides(ours, theirs, _report)
        _report.write(REPORT)


def _prepare(side: ClusterSide) -> None:
    """`letters` and `pair`; the first partition of `letters` holds ten records in four batches."""
    side.learn()
    side.shared["letters"] = side.place("letters", LETTERS)
    side.shared["pair"] = side.place("pair", PAIR)
    with side.connect(1) as connection:
        for values in ([b"a"], [b"b", b"c", b"d"], [b"e", b"f"], [b"g", b"h", b"i", b"j"]):
            error, _ = connection.produce("letters", wire.batch(values))
            assert error == 0, f"error {error} writing letters"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _report.count:
        terminalreporter.section("three beside three")
        terminalreporter.write(_report.text())
