"""Waiting in tests: a client's timeout is "not yet", and a failure names the last one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException

from tests.support.waiting import eventually, eventually_async

TIMED_OUT = KafkaException(KafkaError(KafkaError._TIMED_OUT))


def test_a_timeout_of_a_client_is_not_yet() -> None:
    outcomes: Iterator[int | Exception] = iter([TIMED_OUT, 0, OSError("refused"), 7])

    def look() -> int:
        outcome = next(outcomes)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    assert eventually(look) == 7


def test_the_failure_names_the_event_the_last_exception_and_the_output() -> None:
    def look() -> bool:
        raise TIMED_OUT

    with pytest.raises(AssertionError, match=r"(?s)three brokers.*_TIMED_OUT.*the log") as failure:
        eventually(look, "three brokers", timeout_s=0.0, report=lambda: "the log")
    assert failure.value.__cause__ is TIMED_OUT


def test_a_failed_assertion_is_not_awaited() -> None:
    def look() -> bool:
        raise AssertionError("wrong")

    with pytest.raises(AssertionError, match=r"^wrong$"):
        eventually(look)


async def test_beside_other_tasks() -> None:
    outcomes: Iterator[int | Exception] = iter([TIMED_OUT, 0, 7])

    async def look() -> int:
        outcome = next(outcomes)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    assert await eventually_async(look) == 7


async def test_a_failure_beside_other_tasks() -> None:
    async def look() -> bool:
        raise TIMED_OUT

    with pytest.raises(AssertionError, match=r"three brokers.*_TIMED_OUT") as failure:
        await eventually_async(look, "three brokers", timeout_s=0.05)
    assert failure.value.__cause__ is TIMED_OUT
