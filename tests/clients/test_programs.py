"""Clients in Java, Go, JavaScript and Rust, feature by feature.

A program runs once, with all features; each test then looks at what it said about one.
`--broker kafka` shows that the programs are right, but for clients that Apache Kafka gave up.
"""

from __future__ import annotations

import dataclasses
import fcntl
import functools
import json
import os
from collections.abc import Callable, Iterator

import pytest

from tests.clients.features import FEATURES, LITTLE_PATIENCE_MS, PATIENCE_MS, Feature, advertised_apis
from tests.clients.programs import PROGRAMS, Outcome, Program, ProgramUnavailable, run
from tests.support.broker import Broker, running
from tests.support.fixtures import chosen_broker

BUILD_AND_RUN_TIMEOUT_S = 2_400
Runner = Callable[[Program], Outcome]
DROPPED_BY_KAFKA_4 = {
    ("kafka-clients 0.11.0.3", "describe-configs"),
    ("kafka-clients 0.11.0.3", "alter-configs"),
}
"""Questions that only DescribeConfigs v0 can answer, which Barnabas serves and Apache Kafka has removed."""

OLDER_THAN_KAFKA_4_SERVES = {"kafka-clients 0.10.2.2", "kafka-clients 0.9.0.1"}
"""Clients that speak Produce 0-2 and Fetch 0-3 only."""


@pytest.fixture(scope="session")
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that lets the first member of a group begin at once: here no other member joins."""
    directory = tmp_path_factory.mktemp("programs")
    with running(chosen_broker(request.config, directory, group_initial_rebalance_delay_ms=0)) as started:
        yield started


@pytest.fixture(scope="session")
def apis(broker: Broker) -> frozenset[int]:
    return advertised_apis(broker.host, broker.port)


@pytest.fixture(scope="session")
def runner(broker: Broker, apis: frozenset[int], tmp_path_factory: pytest.TempPathFactory) -> Runner:
    """Runs a program once per session, however many workers ask for what it said."""
    directory = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        directory = directory.parent
    timeouts_ms = {f.name: PATIENCE_MS if f.needs <= apis else LITTLE_PATIENCE_MS for f in FEATURES}

    @functools.cache
    def outcome(program: Program) -> Outcome:
        kept = directory / f"{program.name}.json"
        with kept.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if kept.exists():
                return Outcome(**json.loads(kept.read_text()))
            try:
                found = run(program, broker.bootstrap, program.name, timeouts_ms)
            except ProgramUnavailable as reason:
                found = Outcome(unavailable=str(reason))
            kept.write_text(json.dumps(dataclasses.asdict(found)))
        return found

    return outcome


def cases() -> list[object]:
    return [
        pytest.param(
            program,
            feature,
            id=f"{program.name}-{feature.name}",
            marks=[
                pytest.mark.client(program.client),
                pytest.mark.feature(feature.name),
                pytest.mark.xdist_group(program.name),
                pytest.mark.timeout(BUILD_AND_RUN_TIMEOUT_S),
                *([pytest.mark.compatibility] if program.long else []),
                *([pytest.mark.java] if program.language == "Java" else []),
            ],
        )
        for program in PROGRAMS
        for feature in FEATURES
    ]


@pytest.mark.parametrize(("program", "feature"), cases())
def test_the_client_is_served(
    program: Program,
    feature: Feature,
    broker: Broker,
    runner: Runner,
    apis: frozenset[int],
    record_property: Callable[[str, object], None],
) -> None:
    if broker.name == "kafka" and program.client in OLDER_THAN_KAFKA_4_SERVES:
        pytest.skip(f"Apache Kafka no longer serves {program.client}")
    outcome = runner(program)
    if outcome.unavailable:
        pytest.skip(f"{program.client} cannot be run here: {outcome.unavailable}")
    record_property("version", outcome.version)
    result, note = outcome.results.get(feature.name, ("failed", outcome.complaint))
    if result == "absent":
        record_property("absent", True)
        pytest.skip(f"{program.client} has no such feature")
    if result != "ok" and not feature.needs <= apis:
        pytest.xfail(f"the broker does not advertise what this needs: {note}")
    if broker.name == "kafka" and (program.client, feature.name) in DROPPED_BY_KAFKA_4:
        pytest.xfail(f"Apache Kafka no longer serves this: {note}")
    assert result == "ok", note
