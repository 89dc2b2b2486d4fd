"""Clients in Java, Go, JavaScript and Rust, feature by feature.

A program runs once, with all features; each test then looks at what it said about one.
`--broker kafka` shows that the programs are right.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.clients.features import FEATURES, LITTLE_PATIENCE_MS, PATIENCE_MS, Feature, advertised_apis
from tests.clients.programs import PROGRAMS, Outcome, Program, ProgramUnavailable, run
from tests.support.broker import Broker

BUILD_AND_RUN_TIMEOUT_S = 2_400
Runner = Callable[[Program], Outcome | ProgramUnavailable]


@pytest.fixture(scope="session")
def apis(broker: Broker) -> frozenset[int]:
    return advertised_apis(broker.host, broker.port)


@pytest.fixture(scope="session")
def runner(broker: Broker, apis: frozenset[int]) -> Runner:
    known: dict[str, Outcome | ProgramUnavailable] = {}
    timeouts_ms = {f.name: PATIENCE_MS if f.needs <= apis else LITTLE_PATIENCE_MS for f in FEATURES}

    def outcome(program: Program) -> Outcome | ProgramUnavailable:
        if program.name not in known:
            try:
                known[program.name] = run(program, broker.bootstrap, program.name, timeouts_ms)
            except ProgramUnavailable as reason:
                known[program.name] = reason
        return known[program.name]

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
    runner: Runner,
    apis: frozenset[int],
    record_property: Callable[[str, object], None],
) -> None:
    outcome = runner(program)
    if isinstance(outcome, ProgramUnavailable):
        pytest.skip(f"{program.client} cannot be run here: {outcome}")
    record_property("version", outcome.version)
    result, note = outcome.results.get(feature.name, ("failed", outcome.complaint))
    if result == "absent":
        record_property("absent", True)
        pytest.skip(f"{program.client} has no such feature")
    if result != "ok" and not feature.needs <= apis:
        pytest.xfail(f"the broker does not advertise what this needs: {note}")
    assert result == "ok", note
