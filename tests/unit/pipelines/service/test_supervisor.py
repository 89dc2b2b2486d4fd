from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.support.manual_time import ManualClock, ManualScheduler

from barnabas.pipelines.service.metrics import render_metrics
from barnabas.pipelines.service.store import Target
from barnabas.pipelines.service.supervisor import Observer, State, Supervised, Supervisor, backoff_ms
from barnabas.pipelines.spec.model import PipelineSpec, Restart
from barnabas.pipelines.spec.validation import load_document
from barnabas.pipelines.state.progress import Progress


def spec_of(**more: Any) -> PipelineSpec:
    return load_document(
        {
            "name": "p",
            "source": {"type": "rate"},
            "sink": {"type": "console"},
            "restart": {"max_attempts": 2, "backoff": "1 second", "backoff_max": "3 seconds"},
            **more,
        }
    )


def progress_of(records: int = 1, lag: int = 7) -> Progress:
    return Progress("p", 0, records, 2.0, 3, 1, lag, {})


class Script:
    """Drivers that only remember their commands."""

    def __init__(self) -> None:
        self.orders: list[str] = []

    def start(self, spec: PipelineSpec, generation: int, attempt: int, observer: Observer) -> None:
        self.orders.append(f"start {spec.name} generation {generation} attempt {attempt}")

    def stop(self, name: str) -> None:
        self.orders.append(f"stop {name}")


class World:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.timers = ManualScheduler(self.clock)
        self.drivers = Script()
        self.supervisor = Supervisor(self.drivers, self.timers, self.clock)

    def state(self) -> State:
        return self.pipeline.state

    def pass_time(self, ms: int) -> None:
        self.clock.advance(ms)
        self.timers.run_due()

    @property
    def pipeline(self) -> Supervised:
        return self.supervisor.pipelines["p"]

    def running(self) -> None:
        self.supervisor.put(spec_of(), Target.RUNNING, 0)
        self.supervisor.on_running("p", self.pipeline.attempt)
        assert self.state() is State.RUNNING


@pytest.fixture
def world() -> World:
    return World()


def test_a_pipeline_is_started_and_says_when_it_runs(world: World) -> None:
    world.supervisor.put(spec_of(), Target.RUNNING, 3)
    assert world.drivers.orders == ["start p generation 3 attempt 1"]
    assert world.state() is State.STARTING
    world.supervisor.on_running("p", 1)
    assert world.state() is State.RUNNING


def test_a_failure_is_followed_by_restarts_that_come_later_and_later_and_then_by_failed(world: World) -> None:
    world.running()
    world.supervisor.on_ended("p", 1, "disk full")
    assert world.state() is State.RESTARTING
    world.pass_time(999)
    assert world.state() is State.RESTARTING
    world.pass_time(1)
    assert world.state() is State.STARTING
    world.supervisor.on_ended("p", 2, "disk full")
    world.pass_time(1_999)
    assert world.state() is State.RESTARTING
    world.pass_time(1)
    world.supervisor.on_ended("p", 3, "disk still full")
    assert world.state() is State.FAILED
    assert world.pipeline.last_error == "disk still full"
    world.pass_time(1_000_000)
    assert world.drivers.orders[-1] == "start p generation 0 attempt 3"
    assert world.pipeline.restarts == 2


def test_a_micro_batch_between_failures_makes_up_for_them(world: World) -> None:
    world.running()
    for attempt in range(1, 10):
        world.supervisor.on_running("p", attempt)
        world.supervisor.on_progress("p", attempt, progress_of())
        world.supervisor.on_ended("p", attempt, "broker away")
        assert world.state() is State.RESTARTING
        world.pass_time(1_000)


def test_a_pipeline_waits_for_a_broker_for_as_long_as_it_takes(world: World) -> None:
    world.running()
    for attempt in range(1, 100):
        world.supervisor.on_ended("p", attempt, "no broker answers", is_counted=False)
        assert world.state() is State.RESTARTING
        world.pass_time(3_000)
        assert world.state() is State.STARTING
    assert world.pipeline.failures == 0
    assert world.pipeline.last_error == "no broker answers"
    for attempt in range(100, 103):
        world.supervisor.on_ended("p", attempt, "disk full")
        world.pass_time(3_000)
    assert world.state() is State.FAILED


def test_pauses_while_a_pipeline_waits_double_as_well(world: World) -> None:
    world.running()
    world.supervisor.on_ended("p", 1, "no broker answers", is_counted=False)
    world.pass_time(1_000)
    world.supervisor.on_ended("p", 2, "no broker answers", is_counted=False)
    world.pass_time(1_999)
    assert world.state() is State.RESTARTING
    world.pass_time(1)
    assert world.state() is State.STARTING
    assert backoff_ms(spec_of().restart, 10**6) == 3_000


def test_a_new_generation_knows_nothing_of_the_progress_of_the_previous_one(world: World) -> None:
    world.running()
    world.supervisor.on_progress("p", 1, progress_of())
    assert (world.pipeline.progress, world.pipeline.lag) == (progress_of(), 7)
    world.supervisor.put(spec_of(), Target.STOPPED, 0)
    world.supervisor.on_ended("p", 1, None)
    world.supervisor.put(spec_of(), Target.STOPPED, 1)
    again = world.supervisor.pipelines["p"]
    assert again.progress is None
    assert again.lag is None


def test_a_batch_without_records_does_not_make_up_for_failures(world: World) -> None:
    world.running()
    for attempt in range(1, 4):
        world.supervisor.on_progress("p", attempt, progress_of(records=0))
        world.supervisor.on_ended("p", attempt, "poison")
        world.pass_time(3_000)
    assert world.state() is State.FAILED


def test_pause_stops_the_query_and_resume_starts_it_again(world: World) -> None:
    world.running()
    world.supervisor.put(spec_of(), Target.PAUSED, 0)
    assert world.state() is State.STOPPING
    world.supervisor.on_ended("p", 1, None)
    assert world.state() is State.PAUSED
    world.supervisor.put(spec_of(), Target.RUNNING, 0)
    assert world.drivers.orders == [
        "start p generation 0 attempt 1",
        "stop p",
        "start p generation 0 attempt 2",
    ]


def test_resuming_before_the_query_has_stopped_starts_it_when_it_has(world: World) -> None:
    world.running()
    world.supervisor.put(spec_of(), Target.PAUSED, 0)
    world.supervisor.put(spec_of(), Target.RUNNING, 0)
    assert world.state() is State.STOPPING
    world.supervisor.on_ended("p", 1, None)
    assert world.state() is State.STARTING


def test_pausing_a_pipeline_that_waits_for_its_restart_cancels_that(world: World) -> None:
    world.running()
    world.supervisor.on_ended("p", 1, "broker away")
    world.supervisor.put(spec_of(), Target.PAUSED, 0)
    assert world.state() is State.PAUSED
    world.pass_time(60_000)
    assert world.state() is State.PAUSED


def test_a_changed_spec_and_a_new_generation_start_again(world: World) -> None:
    world.running()
    world.supervisor.put(spec_of(trigger="1 second"), Target.RUNNING, 0)
    assert world.drivers.orders[-1] == "stop p"
    world.supervisor.on_ended("p", 1, None)
    assert world.state() is State.STARTING
    world.supervisor.on_ended("p", 2, "no")
    world.supervisor.put(spec_of(trigger="1 second"), Target.RUNNING, 1)
    assert world.drivers.orders[-1] == "start p generation 1 attempt 3"


def test_the_same_spec_again_changes_nothing(world: World) -> None:
    world.running()
    world.supervisor.put(spec_of(), Target.RUNNING, 0)
    assert len(world.drivers.orders) == 1


def test_a_failed_pipeline_is_restarted_by_hand(world: World) -> None:
    world.running()
    world.supervisor.put(replace(spec_of(), restart=Restart(0, 1, 1)), Target.RUNNING, 0)
    world.supervisor.on_ended("p", 1, None)
    world.supervisor.on_ended("p", 2, "bad")
    assert world.state() is State.FAILED
    world.supervisor.restart("p")
    assert world.state() is State.STARTING
    assert world.pipeline.last_error is None


def test_news_of_an_earlier_start_is_not_taken_for_news_of_this_one(world: World) -> None:
    world.running()
    world.supervisor.on_ended("p", 1, "broker away")
    world.pass_time(1_000)
    world.supervisor.on_running("p", 1)
    world.supervisor.on_ended("p", 1, "late")
    assert world.state() is State.STARTING


def test_a_pipeline_that_came_to_its_end_is_finished(world: World) -> None:
    world.running()
    world.supervisor.on_ended("p", 1, None)
    assert world.state() is State.FINISHED


def test_a_removed_pipeline_is_forgotten_once_it_has_stopped(world: World) -> None:
    world.running()
    world.supervisor.remove("p")
    assert world.drivers.orders[-1] == "stop p"
    world.supervisor.on_ended("p", 1, None)
    assert world.supervisor.pipelines == {}


@pytest.mark.parametrize("spec", [spec_of(), spec_of(delivery="at-least-once")])
def test_a_pipeline_that_is_made_again_while_its_namesake_stops_is_kept(
    world: World, spec: PipelineSpec
) -> None:
    world.running()
    world.supervisor.remove("p")
    world.supervisor.put(spec, Target.RUNNING, 0)
    world.supervisor.on_ended("p", 1, None)
    assert world.drivers.orders[-1] == "start p generation 0 attempt 2"
    world.supervisor.on_ended("p", 2, "boom")
    assert world.state() is State.RESTARTING
    world.pass_time(1_000)
    world.supervisor.on_running("p", 3)
    assert world.state() is State.RUNNING


def test_an_error_is_over_once_a_batch_is_written(world: World) -> None:
    world.running()
    world.supervisor.on_ended("p", 1, "disk full")
    world.pass_time(1_000)
    world.supervisor.on_running("p", 2)
    assert world.pipeline.last_error == "disk full"
    world.supervisor.on_progress("p", 2, progress_of(records=0))
    assert world.pipeline.last_error == "disk full", "nothing was written yet"
    world.supervisor.on_progress("p", 2, progress_of(records=1))
    assert world.pipeline.last_error is None


def test_pauses_double_up_to_the_longest() -> None:
    restart = Restart(10, 1_000, 5_000)
    assert [backoff_ms(restart, failures) for failures in range(1, 6)] == [1_000, 2_000, 4_000, 5_000, 5_000]


def test_metrics_say_how_pipelines_are(world: World) -> None:
    world.running()
    world.supervisor.on_progress("p", 1, progress_of(records=5))
    text = render_metrics(world.supervisor)
    assert 'barnabas_pipeline_running{pipeline="p"} 1' in text
    assert 'barnabas_pipeline_records_total{pipeline="p"} 5' in text
    assert 'barnabas_pipeline_lag_records{pipeline="p"} 7' in text
    assert 'barnabas_pipeline_dead_letters_total{pipeline="p"} 1' in text
    assert 'barnabas_pipeline_records_per_second{pipeline="p"} 2' in text
    assert 'barnabas_pipeline_batch_ms{pipeline="p"} 3' in text
    assert 'barnabas_pipeline_restarts_total{pipeline="p"} 0' in text
    assert 'barnabas_pipeline_failed{pipeline="p"} 0' in text
    world.supervisor.on_ended("p", 1, "it broke")
    world.pass_time(10_000)
    assert 'barnabas_pipeline_restarts_total{pipeline="p"} 1' in render_metrics(world.supervisor)


def test_metrics_say_that_a_pipeline_has_failed(world: World) -> None:
    world.running()
    world.supervisor.on_ended("p", 1, "no such column", is_final=True)
    assert world.state() is State.FAILED
    text = render_metrics(world.supervisor)
    assert 'barnabas_pipeline_failed{pipeline="p"} 1' in text
    assert 'barnabas_pipeline_running{pipeline="p"} 0' in text


@pytest.mark.parametrize("target", list(Target))
def test_a_supervisor_that_lets_go_stops_everything_and_starts_nothing(target: Target) -> None:
    world = World()
    world.supervisor.put(spec_of(), target, 0)
    if target is Target.RUNNING:
        world.supervisor.on_running("p", 1)
    world.supervisor.release("others do it")
    if target is Target.RUNNING:
        assert world.state() is State.STOPPING
        assert world.drivers.orders[-1] == "stop p"
        world.supervisor.on_ended("p", 1, None)
    assert (world.pipeline.state, world.pipeline.last_error) == (State.UNASSIGNED, "others do it")
    told = list(world.drivers.orders)
    world.supervisor.put(spec_of(trigger="5 seconds"), Target.RUNNING, 1)
    world.supervisor.put(spec_of(name="q"), Target.RUNNING, 0)
    world.supervisor.restart("p")
    assert world.drivers.orders == told
    assert {each.state for each in world.supervisor.pipelines.values()} == {State.UNASSIGNED}
    world.supervisor.remove("p")
    assert list(world.supervisor.pipelines) == ["q"]


def test_a_retry_that_was_due_does_not_come_after_letting_go() -> None:
    world = World()
    world.supervisor.put(spec_of(), Target.RUNNING, 0)
    world.supervisor.on_ended("p", 1, "broken")
    assert world.state() is State.RESTARTING
    world.supervisor.release("others do it")
    world.pass_time(60_000)
    assert world.state() is State.UNASSIGNED
    assert len(world.drivers.orders) == 1


def test_what_cannot_succeed_is_not_tried_again(world: World) -> None:
    world.running()
    world.supervisor.on_ended("p", 1, "there is no column 'idd'", is_final=True)
    assert world.state() is State.FAILED
    world.pass_time(1_000_000)
    assert world.drivers.orders == ["start p generation 0 attempt 1"]
    world.supervisor.restart("p")
    assert world.state() is State.STARTING


def test_the_log_shows_the_states_of_a_pipeline(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    world.running()
    world.supervisor.on_ended("p", 1, "the disk is full")
    said = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert ("INFO", "pipeline p is RUNNING") in said
    assert ("WARNING", "pipeline p is RESTARTING: the disk is full") in said
