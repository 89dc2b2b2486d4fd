"""Coordinator runtime under unexpected errors."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.coordinator.producer import ProducerIdAndEpoch
from barnabas.coordinator.runtime.load_queue import LOAD_BACKOFF
from barnabas.core.errors import CoordinatorLoadInProgress, UnknownServerError
from barnabas.core.reporting.metrics import render_prometheus
from barnabas.records.record import EndTransactionMarker
from tests.unit.coordinator.support import Groups


def broken(*_: Any, **__: Any) -> Any:
    raise RuntimeError("broken")


def test_a_failed_load_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = Groups()
    with monkeypatch.context() as patch:
        patch.setattr(groups.log, "end_offset", broken)
        groups.elect(1)
        assert not list(groups.runtime.active_shards())
        groups.clock.advance(LOAD_BACKOFF.first_ms)
        groups.scheduler.run_due()
        groups.scheduler.run_due()
        assert not list(groups.runtime.active_shards())
    groups.clock.advance(2 * LOAD_BACKOFF.first_ms)
    groups.scheduler.run_due()
    groups.scheduler.run_due()
    assert groups.shard is not None


def test_the_time_of_a_load_is_measured_from_its_beginning() -> None:
    groups = Groups()
    loaded = 'kafka_coordinator_load_time_ms_count{topic="__consumer_offsets"}'
    assert f"{loaded} 1" in render_prometheus(groups.metrics)
    groups.runtime.elected(0, 2)
    groups.clock.advance(70)
    groups.scheduler.run_due()
    text = render_prometheus(groups.metrics)
    assert f"{loaded} 2" in text
    assert 'kafka_coordinator_load_time_ms_sum{topic="__consumer_offsets"} 70' in text


def test_a_load_that_failed_is_not_tried_again_after_the_partition_was_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    groups = Groups()
    monkeypatch.setattr(groups.log, "end_offset", broken)
    groups.elect(1)
    groups.runtime.resigned(0, 2)
    monkeypatch.undo()
    groups.clock.advance(LOAD_BACKOFF.first_ms)
    groups.scheduler.run_due()
    groups.scheduler.run_due()
    assert not groups.runtime.partitions()


def test_an_append_that_breaks_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = Groups()
    with monkeypatch.context() as patch:
        patch.setattr(groups.log, "append", broken)
        assert groups.beat("m", 0, topics=["t"]).error_code == UnknownServerError.code
    assert groups.beat("m", 0, topics=["t"]).error_code == 0


def test_a_replay_that_breaks_brings_memory_back_to_what_the_log_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    groups = Groups()
    groups.topics.put("t", 1)
    groups.beat("first", 0, topics=["t"])
    half_done = groups.shard
    with monkeypatch.context() as patch:
        patch.setattr(half_done, "replay", broken)
        assert groups.beat("second", 0, topics=["t"]).error_code == CoordinatorLoadInProgress.code
    groups.scheduler.run_due()
    assert groups.shard is not half_done
    assert set(groups.shard.groups["g"].members) == {"first", "second"}, "both are in the log"
    groups.advance(45_000)
    assert groups.shard.groups["g"].state.value == "Empty", "its timers run, too"


def test_a_marker_whose_replay_breaks_brings_memory_back_to_what_the_log_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    groups = Groups()
    half_done = groups.shard
    refused: list[Any] = []
    marker = EndTransactionMarker(is_commit=True, coordinator_epoch=0)
    with monkeypatch.context() as patch:
        patch.setattr(half_done, "replay_marker", broken)
        groups.runtime.complete_transaction(
            0, ProducerIdAndEpoch(1, 0), marker, lambda _: None, refused.append
        )
    assert [type(each) for each in refused] == [CoordinatorLoadInProgress]
    groups.scheduler.run_due()
    assert groups.shard is not half_done


def test_a_marker_that_breaks_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = Groups()
    monkeypatch.setattr(groups.log, "append", broken)
    refused: list[Any] = []
    marker = EndTransactionMarker(is_commit=True, coordinator_epoch=0)
    groups.runtime.complete_transaction(0, ProducerIdAndEpoch(1, 0), marker, lambda _: None, refused.append)
    assert [type(each) for each in refused] == [UnknownServerError]


def test_a_timer_that_breaks_leaves_the_others() -> None:
    groups = Groups()
    groups.topics.put("t", 1)
    groups.beat("m", 0, topics=["t"])
    timers = groups.shard.registry.timers
    timers.schedule("first", 1, broken)
    groups.advance(45_000)
    assert groups.shard.groups["g"].state.value == "Empty"


def test_who_fails_when_a_partition_is_loaded_does_not_keep_others_from_it() -> None:
    groups = Groups()
    groups.log.leader_epoch = 1
    groups.runtime.elected(0, 1)
    told: list[str] = []

    def fail() -> None:
        raise ValueError("a bug")

    (context,) = groups.runtime._contexts.values()
    context.when_loaded(fail)
    context.when_loaded(lambda: told.append("loaded"))
    groups.scheduler.run_due()
    assert told == ["loaded"]
    groups.elect(2)
    assert groups.commit(1) == 0
