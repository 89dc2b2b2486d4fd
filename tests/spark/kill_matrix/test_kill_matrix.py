"""The kill matrix: drivers, executors and brokers die by SIGKILL or come back from the dead.

Whatever happened, a reader of committed data sees the transformed input, each record once, and the
group's offsets are the input's end. `make test` runs the first test, which is the matrix in short;
`make kill-matrix` runs all of it, on Barnabas and on Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.kill_matrix.harness import BATCH_RECORDS, Pipeline
from tests.support.broker import Broker
from tests.support.fixtures import TopicFactory
from tests.support.spark import require_spark

pytestmark = [pytest.mark.timeout(1_200)]
full = pytest.mark.kill_matrix

RECORDS = 2 * BATCH_RECORDS
LATE_RECORDS = 100
DRIVER_POINTS = ("before-begin", "after-begin", "mid-write", "after-writes", "mid-commit", "after-end")
TWO_EXECUTORS = "local-cluster[2,1,1024]"


@pytest.fixture
def pipeline(bootstrap: str, new_topic: TopicFactory, tmp_path: Path) -> Iterator[Pipeline]:
    require_spark()
    made = Pipeline(bootstrap, new_topic(partitions=2), new_topic(partitions=2), tmp_path)
    made.produce(RECORDS)
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
def test_an_executor_killed_while_it_writes_costs_no_record(pipeline: Pipeline) -> None:
    driver, worker = pipeline.start_until(point_in_second_batch("mid-write"), master=TWO_EXECUTORS)
    driver.kill_executor_of(worker)
    driver.release()
    driver.wait_end()
    pipeline.check_nothing_half_done()
    pipeline.run_until_caught_up(master=TWO_EXECUTORS)
    pipeline.check_exactly_once()
