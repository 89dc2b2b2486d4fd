"""Reactions of clients in Java and Go to faults that they ask for over HTTP (`barnabas start --control`).

The programs are built as those of `test_programs`, with Maven and Go. Each runs once, with all its cases.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.clients.programs import (
    GO,
    NEWEST_JAVA_CLIENT,
    Outcome,
    Program,
    ProgramUnavailable,
    java,
    run,
)
from tests.clients.tokens import Issuer
from tests.support.process import ServerProcess
from tests.support.waiting import PATIENCE_S

REPOSITORY = Path(__file__).resolve().parents[2]
CASES = (
    "lost-response", "half-response", "moved-leader", "slow-broker", "zombie", "fenced-member",
    "clock-jump", "restart", "poison-record", "full-disk",
)  # fmt: skip
CASES_OF_CLUSTERS = ("unclean-leader",)
CASES_OF_TOKENS = ("expired-token",)
TOKEN_S = 1_800
"""The first token ends when the program lets an hour pass."""
CASE_TIMEOUT_MS = 40_000
BUILD_AND_RUN_TIMEOUT_S = 2_400
JAVA = ("java", "-Xmx256M", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", "classes:jars/*")
PROGRAMS = (
    Program("franz-go", "Go", GO, ("bin/controlled",)),
    Program(
        f"kafka-clients {NEWEST_JAVA_CLIENT}",
        "Java",
        java(NEWEST_JAVA_CLIENT, "controlled/*.java"),
        (*JAVA, "Controlled", NEWEST_JAVA_CLIENT),
    ),
)

pytestmark = pytest.mark.timeout(BUILD_AND_RUN_TIMEOUT_S)


@contextmanager
def controlled(
    directory: Path, *more: str, listeners: Sequence[str] = ("PLAINTEXT://127.0.0.1:0",)
) -> Iterator[tuple[str, str]]:
    """Addresses of the last listener, and the URL of the control interface."""
    words = [
        sys.executable, "-m", "barnabas", "start", "--data-dir", str(directory),
        "--control", "127.0.0.1:0", *more, *(word for each in listeners for word in ("--listener", each)),
    ]  # fmt: skip
    process = ServerProcess(
        words,
        is_ready=lambda line: line.startswith("control on"),
        environment={"PYTHONPATH": str(REPOSITORY / "src")},
    )
    try:
        process.wait_ready(PATIENCE_S)
        said = process.output_text().split()
        shown = next(each for each in said if "PLAINTEXT://" in each).strip(",").split(",")
        name = listeners[-1].partition("://")[0]
        address = ",".join(each.partition("://")[2] for each in shown if each.partition("://")[0] == name)
        page = next(each for each in said if each.endswith("/openapi.json"))
        yield address, page.removesuffix("/openapi.json")
    finally:
        process.stop()


@pytest.fixture(scope="module")
def control(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    with controlled(tmp_path_factory.mktemp("controlled")) as control:
        yield control


@pytest.fixture(scope="module")
def control_of_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    unclean = ("--brokers", "2", "--set", "unclean.leader.election.enable=true")
    with controlled(tmp_path_factory.mktemp("cluster"), *unclean) as control:
        yield control


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Issuer:
    return Issuer(tmp_path_factory.mktemp("issuer"))


@pytest.fixture
def control_by_token(issuer: Issuer, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """A broker whose time each program moves for itself."""
    settings = dict(issuer.settings)
    listeners = settings.pop("listeners").split(",")
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    with controlled(tmp_path / "by-token", *words, listeners=listeners) as control:
        yield control


@pytest.fixture(scope="module", params=PROGRAMS, ids=[each.name for each in PROGRAMS])
def program(request: pytest.FixtureRequest) -> Program:
    chosen: Program = request.param
    return chosen


@pytest.fixture(scope="module")
def outcome(program: Program, control: tuple[str, str]) -> Outcome:
    return run_cases(program, control, CASES)


@pytest.fixture(scope="module")
def outcome_of_cluster(program: Program, control_of_cluster: tuple[str, str]) -> Outcome:
    return run_cases(program, control_of_cluster, CASES_OF_CLUSTERS)


def run_cases(
    program: Program, control: tuple[str, str], cases: Sequence[str], environment: Mapping[str, str] = {}
) -> Outcome:
    bootstrap, url = control
    timeouts_ms = dict.fromkeys(cases, CASE_TIMEOUT_MS)
    try:
        return run(
            program, bootstrap, program.name, timeouts_ms, environment={"CONTROL_URL": url, **environment}
        )
    except ProgramUnavailable as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("case", CASES)
def test_the_client_reacts_as_it_is_known_to(outcome: Outcome, case: str) -> None:
    assert outcome.results.get(case) == ("ok", ""), f"{outcome.results.get(case)}; {outcome.complaint}"


@pytest.mark.parametrize("case", CASES_OF_CLUSTERS)
def test_the_client_reacts_to_the_cluster_as_it_is_known_to(outcome_of_cluster: Outcome, case: str) -> None:
    found = outcome_of_cluster.results.get(case)
    assert found == ("ok", ""), f"{found}; {outcome_of_cluster.complaint}"


@pytest.mark.parametrize("case", CASES_OF_TOKENS)
def test_the_client_replaces_an_expired_token(
    program: Program, control_by_token: tuple[str, str], issuer: Issuer, case: str
) -> None:
    now_s = int(time.time())
    tokens = {
        "FIRST_TOKEN": issuer.token(ends_s=now_s + TOKEN_S),
        "SECOND_TOKEN": issuer.token(ends_s=now_s + 86_400),
    }
    outcome = run_cases(program, control_by_token, (case,), tokens)
    assert outcome.results.get(case) == ("ok", ""), f"{outcome.results.get(case)}; {outcome.complaint}"
