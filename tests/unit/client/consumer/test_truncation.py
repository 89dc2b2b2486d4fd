"""Positions after a change of leaders: the log of the new one may be shorter (KIP-320)."""

from __future__ import annotations

import random

import pytest
from tests.support.manual_time import ManualClock

from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.consumer.core.fetched_data import Chunk
from barnabas.client.consumer.core.positions import Need, PartitionState, Positions
from barnabas.client.consumer.core.reset_strategy import TO_EARLIEST, ResetStrategy
from barnabas.client.consumer.position_updates import PositionUpdates
from barnabas.client.core.client_errors import LogTruncated
from barnabas.client.core.metadata import Leader
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.ids import TopicPartition
from barnabas.records.builder import BatchBuilder

AT = TopicPartition("t", 0)


def at_position(position: int, buffered: int) -> PartitionState:
    """A partition at `position`, with `buffered` records of epoch 2, whose leader changed to epoch 5."""
    state = PartitionState(AT)
    state.seek(position, 2)
    state.validated(2)
    if buffered:
        builder = BatchBuilder(base_offset=position, leader_epoch=2)
        for _ in range(buffered):
            builder.append(None, b"", (), 0)
        state.add(Chunk(AT, memoryview(builder.build())))
    state.leader_changed(Leader(1, 5), can_validate=True)
    assert state.need is Need.VALIDATION
    return state


def compare(
    state: PartitionState, end_offset: int, end_epoch: int, reset_to: ResetStrategy | None = TO_EARLIEST
) -> PositionUpdates:
    cluster = ClusterClient([Endpoint("127.0.0.1", 1)], clock=ManualClock(), randomness=random.Random(1))
    updates = PositionUpdates(
        cluster,
        Positions(),
        None,
        reset_to=reset_to,
        isolation=0,
        retry_ms=100,
        timeout_ms=1_000,
        on_update=lambda: None,
        on_failure=lambda error: None,
    )
    updates._compare(state, 5, end_offset, end_epoch)
    return updates


def test_a_log_that_reaches_the_fetch_position_is_valid() -> None:
    state = at_position(10, 5)
    compare(state, 15, 2)
    assert (state.need, state.leader_epoch, state.fetch_offset) == (Need.NOTHING, 5, 15)
    assert state.chunks


def test_batches_that_nobody_was_given_are_fetched_again() -> None:
    state = at_position(10, 5)
    compare(state, 12, 2)
    assert (state.need, state.position, state.fetch_offset) == (Need.NOTHING, 10, 10)
    assert not state.chunks


def test_a_position_in_the_truncated_part_goes_back() -> None:
    state = at_position(10, 0)
    compare(state, 7, 1)
    assert (state.need, state.position, state.leader_epoch) == (Need.NOTHING, 7, 5)


@pytest.mark.parametrize(("end_offset", "end_epoch"), [(-1, -1), (-1, 3)])
def test_an_epoch_that_the_leader_does_not_know_resets(end_offset: int, end_epoch: int) -> None:
    state = at_position(10, 0)
    compare(state, end_offset, end_epoch)
    assert state.need is Need.RESET


def test_without_a_reset_policy_the_application_is_told() -> None:
    state = at_position(10, 3)
    updates = compare(state, 7, 1, None)
    (error,) = updates.errors
    assert isinstance(error, LogTruncated)
    assert "offset 7" in str(error)
    assert not state.chunks
    state.seek(7)
    assert state.need is Need.NOTHING
