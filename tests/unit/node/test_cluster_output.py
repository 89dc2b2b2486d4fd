"""Output of a cluster: routine lines are left out while it stops, and nothing else is."""

from __future__ import annotations

import pytest

from barnabas.localcluster.cluster_output import ClusterOutput

ROUTINE = "2026-01-31T12:00:00.123Z INFO  controller.controller  broker 1 resigns as the controller"


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def output(said: list[str]) -> ClusterOutput:
    return ClusterOutput(lambda name, line: said.append(f"{name}: {line}"))


def test_every_line_is_shown_while_the_cluster_runs(output: ClusterOutput, said: list[str]) -> None:
    output.say("broker-1", ROUTINE)
    assert said == [f"broker-1: {ROUTINE}"]


def test_routine_is_left_out_while_the_cluster_stops(output: ClusterOutput, said: list[str]) -> None:
    output.begin_stop(3)
    output.begin_stop(3)
    output.say("broker-1", ROUTINE)
    assert said == ["supervisor: stopping 3 brokers, one after the other"]


@pytest.mark.parametrize(
    "line",
    [
        "2026-01-31T12:00:00.123Z WARNING storage.log  orders-0: the disk is full",
        "2026-01-31T12:00:00.123Z ERROR controller.controller  failed",
        "2026-01-31T12:00:00.123Z INFO  kafka.authorizer.logger  Principal = User:mallory is Denied",
        "Traceback (most recent call last):",
        "    ValueError: 2026-01-31T12:00:00.123Z INFO  quoted",
        "barnabas: cannot write",
    ],
)
def test_everything_else_is_shown_while_the_cluster_stops(
    output: ClusterOutput, said: list[str], line: str
) -> None:
    output.begin_stop(3)
    output.say("broker-1", line)
    assert said[1:] == [f"broker-1: {line}"]
