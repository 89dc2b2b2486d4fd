"""Two streams of topics joined on a real Spark, with watermarks that bound what is remembered."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark_barnabas import exactly_once
from tests.support.fixtures import TopicFactory
from tests.support.topics import consume, produce

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def at(minute: int) -> str:
    return f"2024-05-01T{minute // 60:02}:{minute % 60:02}:00Z"


class OrdersAndPayments:
    """Orders, each with a payment of at most ten minutes later, or with none."""

    def __init__(self, spark: SparkSession, bootstrap: str, new_topic: TopicFactory, directory: Path) -> None:
        self.spark, self.bootstrap, self.directory = spark, bootstrap, directory
        self.orders, self.payments, self.out = new_topic(), new_topic(), new_topic()

    def stream(self, topic: str, prefix: str) -> DataFrame:
        rows = (
            self.spark.readStream.format("barnabas")
            .option("kafka.bootstrap.servers", self.bootstrap)
            .options(subscribe=topic, startingOffsets="earliest")
            .load()
            .selectExpr("from_json(cast(value as string), 'id BIGINT, at TIMESTAMP') AS row")
        )
        named = rows.selectExpr(f"row.id AS {prefix}_id", f"row.at AS {prefix}_at")
        return named.withWatermark(f"{prefix}_at", "5 minutes")

    def run(self) -> list[dict[str, Any]]:
        """All that there is; what has come out so far."""
        joined = self.stream(self.orders, "order").join(
            self.stream(self.payments, "payment"),
            self._condition(),
            "leftOuter",
        )
        target = {"kafka.bootstrap.servers": self.bootstrap, "topic": self.out}
        rows = joined.selectExpr("to_json(struct(order_id, payment_at IS NOT NULL AS paid)) AS value")
        query = (
            exactly_once(rows, **target)
            .writeStream.format("barnabas")
            .options(**target, delivery="exactly-once", pipelineId=self.out)
            .option("checkpointLocation", str(self.directory / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return sorted(
            (each.json for each in consume(self.bootstrap, self.out)), key=lambda row: row["order_id"]
        )

    def _condition(self) -> Any:
        from pyspark.sql import functions

        return functions.expr(
            "order_id = payment_id AND payment_at BETWEEN order_at AND order_at + INTERVAL 10 MINUTES"
        )

    def order(self, number: int, minute: int) -> None:
        produce(self.bootstrap, self.orders, [{"id": number, "at": at(minute)}])

    def pay(self, number: int, minute: int) -> None:
        produce(self.bootstrap, self.payments, [{"id": number, "at": at(minute)}])


def test_two_topics_are_joined_and_what_found_no_partner_comes_out_when_none_can_come(
    spark: SparkSession, bootstrap: str, new_topic: TopicFactory, tmp_path: Path
) -> None:
    case = OrdersAndPayments(spark, bootstrap, new_topic, tmp_path)
    case.order(1, 0)
    case.order(2, 1)
    case.pay(1, 5)
    assert case.run() == [{"order_id": 1, "paid": True}], "order 2 may still be paid"
    case.pay(2, 9)
    case.order(3, 10)
    case.pay(3, 25)
    paid = [{"order_id": 1, "paid": True}, {"order_id": 2, "paid": True}]
    assert case.run() == paid, (
        "state was lost from one run to the next, or a payment came too late and counted"
    )
    case.order(4, 100)
    case.pay(99, 100)
    assert case.run() == [*paid, {"order_id": 3, "paid": False}], "the watermark has passed order 3"
    case.order(5, 20)
    case.pay(5, 21)
    assert case.run() == [*paid, {"order_id": 3, "paid": False}], "rows behind the watermark are dropped"
