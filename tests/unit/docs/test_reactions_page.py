"""Reactions of clients in docs/TESTING.md: rows for all cases, cells for all clients, names of the tests."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
CLIENTS = REPOSITORY / "tests" / "clients"
PYTHON = (CLIENTS / "test_fault_reactions.py").read_text(encoding="utf-8")
CONTROLLED = (CLIENTS / "test_controlled.py").read_text(encoding="utf-8")
JAVA = (CLIENTS / "java" / "controlled" / "Controlled.java").read_text(encoding="utf-8")
GO = (CLIENTS / "go" / "controlled" / "main.go").read_text(encoding="utf-8")

TESTS = {
    "lost response": "test_a_lost_response_is_no_duplicate",
    "half response": "test_a_lost_response_is_no_duplicate",
    "moved leader": "test_a_moved_leader_is_found_again",
    "fenced member": "test_a_fenced_member_joins_again",
    "clock jump": "test_a_member_misses_its_session_when_the_clock_jumps",
    "restart": "test_a_producer_goes_on_after_a_restart",
    "poison record": "test_a_poison_record_is_reported",
    "slow broker": "test_a_slow_broker_runs_into_the_clients_timeout",
    "full disk": "test_a_full_disk_runs_into_the_clients_timeout",
    "zombie": "test_a_zombie_cannot_commit",
    "unclean leader": "test_an_unclean_leader_loses_what_it_missed",
    "expired token": "test_an_expired_token_is_replaced",
}
"""Tests of Python's clients, each of which runs with all four."""
ATTRIBUTES = {
    "fenced member": "commit_error",
    "clock jump": "commit_error",
    "poison record": "poison_error",
    "slow broker": "slow_broker_error",
    "full disk": "slow_broker_error",
    "zombie": "zombie_error",
}
PYTHON_CLIENTS = ("Own", "Confluent", "Aiokafka", "KafkaPython")
COLUMNS = ["our client", "confluent-kafka", "aiokafka", "kafka-python", "Java's client", "franz-go"]


def rows() -> dict[str, list[str]]:
    page = (REPOSITORY / "docs" / "TESTING.md").read_text(encoding="utf-8")
    head, _, *body = re.findall(r"\| recipe \|.*?\n\n", page, re.DOTALL)[0].strip().splitlines()
    assert cells(head)[1:] == COLUMNS
    return {re.sub(r" \(.*\)", "", cells(line)[0]): cells(line)[1:] for line in body}


def cells(line: str) -> list[str]:
    return [each.strip() for each in line.strip("|").split("|")]


def cases(name: str) -> tuple[str, ...]:
    found: tuple[str, ...] = ast.literal_eval(
        re.findall(rf"^{name} = (\(.*?\))", CONTROLLED, re.DOTALL | re.MULTILINE)[0]
    )
    return found


def attributes(client: str) -> dict[str, str]:
    """Names of errors, as a client of the Python tests gives them."""
    (found,) = (
        each for each in ast.parse(PYTHON).body if isinstance(each, ast.ClassDef) and each.name == client
    )
    return {
        each.targets[0].id: str(each.value.value)
        for each in found.body
        if isinstance(each, ast.Assign)
        and isinstance(each.targets[0], ast.Name)
        and isinstance(each.value, ast.Constant)
    }


def test_every_case_has_a_row_and_every_client_a_cell() -> None:
    shown = rows()
    controlled = {*cases("CASES"), *cases("CASES_OF_CLUSTERS"), *cases("CASES_OF_TOKENS")}
    assert {each.replace(" ", "-") for each in shown} == controlled
    assert shown.keys() == TESTS.keys()
    assert all(len(each) == len(COLUMNS) and all(each) for each in shown.values())


@pytest.mark.parametrize("case", TESTS)
def test_a_case_runs_with_every_client(case: str) -> None:
    assert re.search(rf"^async def {TESTS[case]}\(.*client: Client", PYTHON, re.MULTILINE)
    name = case.replace(" ", "-")
    assert f'case "{name}" ->' in JAVA
    assert f'"{name}":' in GO


@pytest.mark.parametrize("case", ATTRIBUTES)
def test_names_of_errors_are_those_of_the_tests(case: str) -> None:
    *python, java, go = rows()[case]
    for client, cell in zip(PYTHON_CLIENTS, python, strict=True):
        assert f"`{attributes(client)[ATTRIBUTES[case]]}`" in cell
    for cell, source in ((java, JAVA), (go, GO)):
        assert all(re.search(rf"\b{name}\b", source) for name in re.findall(r"`(.*?)`", cell))
