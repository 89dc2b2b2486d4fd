"""The kill matrix: drivers, executors and brokers die by SIGKILL or come back from the dead.

After any of these faults, a reader of committed data sees the transformed input, each record once, and the
group's offsets are the input's end. `make test` runs the first test, which is the matrix in short;
`make kill-matrix` runs all of it, on Barnabas and on Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.kill_matrix.harness import Pipeline
from tests.spark.kill_matrix.two_hosts import SPECULATION, standalone_spark
from tests.support.broker import Broker
from tests.support.fixtures import TopicFactory
from tests.support.spark import require_spark

pytestmark = [pytest.mark.timeout(1_200)]
full = pytest.mark.kill_matrix

LATE_RECORDS = 100
DRIVER_POINTS = ("before-begin", "after-begin", "mid-write", "after-writes", "mid-commit", "after-end")
COPY_POINTS = ("before-copy", "mid-copy", "after-copy", "mid-commit", "after-end")
TASK_POINTS = ("before-write", "mid-write", "after-write")
TWO_EXECUTORS = "local-cluster[2,1,1024]"
TASKS_RUN_AGAIN = "local[2,4]"
"""Each task may fail three times, as on clusters; with `local[2]`, not once."""


@pytest.fixture
def row_bytes() -> int:
    """Size of the values; 0 for their natural length."""
    return 0


@pytest.fixture
def pipeline(bootstrap: str, new_topic: TopicFactory, tmp_path: Path, row_bytes: int) -> Iterator[Pipeline]:
    require_spark()
    source, sink = (new_topic(partitions=2, max_message_bytes=4_000_000) for _ in range(2))
    made = Pipeline(bootstrap, source, sink, tmp_path, row_bytes=row_bytes)
    made.produce(2 * made.batch_records)
    yield made
    made.kill_all()


def point_in_second_batch(point: str) -> str:
    """Tasks come to `mid-write` twice a batch: once for each output partition."""
    return f"{point}:3" if point == "mid-write" else f"{point}:2"


def test_a_driver_killed_in_its_commit_and_after_it_leaves_every_record_once(pipeline: Pipeline) -> None:
    for point in ("mid-commit", "after-end"):
        driver, _ = pipeline.start_until(point)
        driver.kill()
        pipeline.check_nothing_half_done()
    pipeline.run_until_caught_up()
    pipeline.check_exactly_once()


@full
def test_one_pipeline_survives_all_of_it_in_a_row(pipeline: Pipeline, broker: Broker) -> None:
    """The matrix in short: each run of the driver is caught at another point."""
    for point in ("after-end", "mid-commit", "mid-write"):
        driver, _ = pipeline.start_until(point)
        driver.kill()
        pipeline.check_nothing_half_done()
    zombie, _ = pipeline.start_until("after-writes")
    zombie.suspend()
    zombie.release()
    pipeline.produce(LATE_RECORDS)
    successor, _ = pipeline.start_until("mid-commit")
    broker.kill()
    successor.release()
    broker.start()
    successor.wait_end()
    zombie.resume()
    assert zombie.wait_end() != 0, "a driver that was replaced took itself for successful"
    pipeline.check_nothing_half_done()
    pipeline.run_until_caught_up()
    pipeline.check_exactly_once()


@full
@pytest.mark.parametrize("point", DRIVER_POINTS)
def test_a_driver_killed_anywhere_leaves_every_record_once(pipeline: Pipeline, point: str) -> None:
    driver, _ = pipeline.start_until(point_in_second_batch(point))
    driver.kill()
    pipeline.check_nothing_half_done()
    pipeline.produce(LATE_RECORDS)
    pipeline.run_until_caught_up()
    pipeline.check_exactly_once()


@full
@pytest.mark.parametrize("point", DRIVER_POINTS)
def test_a_driver_thought_dead_changes_nothing_when_it_goes_on(pipeline: Pipeline, point: str) -> None:
    zombie, _ = pipeline.start_until(point_in_second_batch(point))
    zombie.suspend()
    zombie.release()
    pipeline.produce(LATE_RECORDS)
    pipeline.run_until_caught_up()
    pipeline.check_exactly_once()
    zombie.resume()
    assert zombie.wait_end() != 0, "a driver that was replaced took itself for successful"
    pipeline.check_exactly_once()
    pipeline.produce(LATE_RECORDS)
    pipeline.run_until_caught_up()
    pipeline.check_exactly_once()


@full
@pytest.mark.parametrize("point", ["mid-write", "after-writes", "mid-commit"])
def test_a_zombie_that_wakes_beside_its_successor_costs_no_record(pipeline: Pipeline, point: str) -> None:
    zombie, _ = pipeline.start_until(point_in_second_batch(point))
    zombie.suspend()
    zombie.release()
    successor, _ = pipeline.start_until("mid-commit:1")
    zombie.resume()
    zombie.wait_end()
    successor.release()
    successor.wait_end()
    pipeline.check_nothing_half_done()
    pipeline.run_until_caught_up()
    pipeline.check_exactly_once()


@full
@pytest.mark.parametrize("point", ["after-begin", "mid-write", "after-writes", "mid-commit", "after-end"])
def test_a_broker_killed_anywhere_keeps_every_record_once(
    pipeline: Pipeline, broker: Broker, point: str
) -> None:
    driver, _ = pipeline.start_until(point_in_second_batch(point))
    broker.kill()
    driver.release()
    broker.start()
    driver.wait_end()
    pipeline.check_nothing_half_done()
    pipeline.run_until_caught_up()
    pipeline.check_exactly_once()


@full
@pytest.mark.parametrize("point", ["mid-write", "mid-commit"])
def test_a_broker_and_a_driver_killed_together_keep_every_record_once(
    pipeline: Pipeline, broker: Broker, point: str
) -> None:
    driver, _ = pipeline.start_until(point_in_second_batch(point))
    broker.kill()
    driver.kill()
    broker.start()
    pipeline.check_nothing_half_done()
    pipeline.run_until_caught_up()
    pipeline.check_exactly_once()


@full
@pytest.mark.parametrize("point", TASK_POINTS)
def test_an_executor_killed_while_it_writes_costs_no_record(pipeline: Pipeline, point: str) -> None:
    """Its shuffle files go with it, so the stage before is run again, and so is the one that writes."""
    driver, worker = pipeline.start_until(f"{point}:3", master=TWO_EXECUTORS)
    driver.kill_executor_of(worker)
    driver.release()
    assert driver.wait_end() == 0, f"the query failed:\n{driver.output}"
    pipeline.check_exactly_once()


@pytest.mark.parametrize("row_bytes", [50_000])
def test_a_task_that_dies_between_its_flushes_is_run_again(pipeline: Pipeline, row_bytes: int) -> None:
    pipeline.run_through(dies="mid-write", master=TASKS_RUN_AGAIN)
    pipeline.check_exactly_once()


@full
@pytest.mark.parametrize("row_bytes", [100, 5_000, 400_000, 1_000_000])
@pytest.mark.parametrize("point", TASK_POINTS)
def test_a_task_that_dies_anywhere_is_run_again(pipeline: Pipeline, row_bytes: int, point: str) -> None:
    pipeline.run_through(dies=f"{point}:3", master=TASKS_RUN_AGAIN)
    pipeline.check_exactly_once()


@full
@pytest.mark.parametrize("row_bytes", [100, 400_000])
@pytest.mark.parametrize("point", TASK_POINTS)
def test_a_speculative_copy_that_is_faster_counts_alone(
    pipeline: Pipeline, tmp_path: Path, row_bytes: int, point: str
) -> None:
    """The task that stands still is copied; when the copy has won, Spark ends the first attempt."""
    with standalone_spark(tmp_path) as master:
        driver, _ = pipeline.start_until(point, master=master, settings=SPECULATION)
        assert driver.wait_end() == 0, f"the query failed:\n{driver.output}"
    pipeline.check_exactly_once()


@full
@pytest.mark.parametrize("point", COPY_POINTS)
def test_a_driver_killed_after_a_task_was_run_again_leaves_every_record_once(
    pipeline: Pipeline, point: str
) -> None:
    driver, _ = pipeline.start_until(point, dies="mid-write", master=TASKS_RUN_AGAIN)
    driver.kill()
    pipeline.check_nothing_half_done()
    pipeline.produce(LATE_RECORDS)
    pipeline.run_until_caught_up()
    pipeline.check_exactly_once()


@full
@pytest.mark.parametrize("point", COPY_POINTS)
def test_a_driver_thought_dead_copies_nothing_when_it_goes_on(pipeline: Pipeline, point: str) -> None:
    zombie, _ = pipeline.start_until(point, dies="mid-write", master=TASKS_RUN_AGAIN)
    zombie.suspend()
    zombie.release()
    pipeline.produce(LATE_RECORDS)
    pipeline.run_until_caught_up()
    pipeline.check_exactly_once()
    zombie.resume()
    assert zombie.wait_end() != 0, "a driver that was replaced took itself for successful"
    pipeline.check_exactly_once()


@full
@pytest.mark.parametrize("point", ["before-copy", "mid-copy", "after-copy"])
def test_a_broker_killed_while_a_batch_is_copied_keeps_every_record_once(
    pipeline: Pipeline, broker: Broker, point: str
) -> None:
    driver, _ = pipeline.start_until(point, dies="mid-write", master=TASKS_RUN_AGAIN)
    broker.kill()
    driver.release()
    broker.start()
    driver.wait_end()
    pipeline.check_nothing_half_done()
    pipeline.run_until_caught_up()
    pipeline.check_exactly_once()
