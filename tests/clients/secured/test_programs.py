"""Clients of other languages over TLS, with a certificate and with each mechanism that they were taught."""

from __future__ import annotations

import pytest

from tests.clients.programs import PROGRAMS, Program, ProgramUnavailable, run
from tests.clients.secured.broker import LOGINS, PREFIX, Secured

SHOWN = ("connect", "create-topic", "idempotence", "group", "transaction", "transaction-offsets")
PATIENCE_MS = 60_000
BUILD_AND_RUN_TIMEOUT_S = 2_400
JAVA = next(program for program in PROGRAMS if program.language == "Java" and not program.long)
FRANZ_GO = next(program for program in PROGRAMS if program.client == "franz-go")
KAFKAJS = next(program for program in PROGRAMS if program.client == "kafkajs")
CASES = [
    pytest.param(
        program, login, id=f"{program.name}-{login}", marks=[pytest.mark.java] if program is JAVA else []
    )
    for program in (JAVA, FRANZ_GO, KAFKAJS)
    for login in LOGINS
]


@pytest.mark.timeout(BUILD_AND_RUN_TIMEOUT_S)
@pytest.mark.parametrize(("program", "login"), CASES)
def test_a_client_of_another_language(secured: Secured, program: Program, login: str) -> None:
    prefix = f"{PREFIX}-{program.name}-{login.lower()}"
    try:
        outcome = run(
            program,
            secured.bootstrap(login),
            prefix,
            dict.fromkeys(SHOWN, PATIENCE_MS),
            secured.properties(login),
            secured.java_environment(login),
        )
    except ProgramUnavailable as reason:
        pytest.skip(f"{program.client} cannot be run here: {reason}")
    assert {
        name: outcome.results.get(name, ("silent", outcome.complaint)) for name in SHOWN
    } == dict.fromkeys(SHOWN, ("ok", ""))
