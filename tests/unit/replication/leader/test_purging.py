"""Purge intervals of the purgatories are configuration."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.config.broker_config import BrokerConfig
from barnabas.purgatory.purgatory import Purgatory
from barnabas.replication.leader.delayed_delete_records import PendingDeletion
from tests.unit.replication.support import ME, ONE, OTHER, ZERO, Replicas, at

KEPT = 3


def fetch(replicas: Replicas) -> None:
    """Waits for both partitions; the second alone has news."""
    replicas.ask(at(0, ZERO), at(replicas.partition(*ONE).log.log_end_offset, ONE))
    replicas.append(replicas.partition(*ONE))


def produce(replicas: Replicas) -> None:
    partition = replicas.partition(*ZERO)
    replicas.await_ack(partition, replicas.append(partition), -1)
    replicas.pass_time(1_001)


def delete_records(replicas: Replicas) -> None:
    partition = replicas.partition(*ZERO)
    replicas.await_deletion(1_000, [PendingDeletion(partition, 1)], lambda: None)
    replicas.pass_time(1_001)


@pytest.mark.parametrize(
    ("key", "wait", "purgatory"),
    [
        ("fetch.purgatory.purge.interval.requests", fetch, lambda each: each.delayed.fetches),
        ("producer.purgatory.purge.interval.requests", produce, lambda each: each.delayed.produces),
        (
            "delete.records.purgatory.purge.interval.requests",
            delete_records,
            lambda each: each.delayed.deletions,
        ),
    ],
)
def test_answered_requests_are_swept_out_by_their_number(
    tmp_path: Path, key: str, wait: Callable[[Replicas], None], purgatory: Callable[[Replicas], Purgatory]
) -> None:
    settings = BrokerConfig.load({key: str(KEPT)})
    replicas = Replicas(str(tmp_path), settings=settings)
    replicas.lead(ZERO, isr=(ME, OTHER))
    replicas.lead(ONE)
    watched = []
    for _ in range(3 * KEPT):
        wait(replicas)
        watched.append(purgatory(replicas).watched)
    assert max(watched) == KEPT + 1
    assert watched.count(KEPT + 1) >= 2, "they are swept out when one too many is there, and not before"
