"""Fixtures for tests on a real Spark: one session for the run, one broker beside it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.fixtures import bootstrap, broker, new_topic, topic
from tests.support.spark import activate, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["bootstrap", "broker", "new_topic", "topic"]

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.spark)
            if item.get_closest_marker("timeout") is None:
                # Starting Spark's processes takes seconds on an idle machine and minutes on a busy one.
                item.add_marker(pytest.mark.timeout(1_200))


@pytest.fixture(scope="session")
def shared_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with spark_session(tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture
def spark(shared_spark: SparkSession) -> Iterator[SparkSession]:
    """The run's session, active as if it were the only one; queries that a test left are stopped after it."""
    activate(shared_spark)
    yield shared_spark
    for query in shared_spark.streams.active:
        query.stop()
    shared_spark.catalog.clearCache()
