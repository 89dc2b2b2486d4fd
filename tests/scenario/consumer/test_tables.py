"""Topics as tables: Arrow batches of a consumer, bounded reads, SQL."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from click.testing import CliRunner

import barnabas
from barnabas.cli.main import cli
from barnabas.client import Producer
from barnabas.client.admin.topics_and_configs import TopicAdmin
from barnabas.client.tables.read import TopicTable, _Reading, read
from barnabas.core.errors import RequestTimedOut
from tests.scenario.consumer.conftest import PATIENCE_S, Bench
from tests.scenario.consumer.test_consumer import numbered

pa = pytest.importorskip("pyarrow")


async def filled(bench: Bench) -> None:
    """Ten old records and ten new ones, on two partitions."""
    await bench.create(2)
    now_ms = bench.cluster.clock.now_ms()
    await bench.write(numbered(10), partition=0, timestamp_ms=now_ms - 3_600_000)
    await bench.write(numbered(5, 10), partition=0, timestamp_ms=now_ms)
    await bench.write(numbered(5, 15), partition=1, timestamp_ms=now_ms)


def table(bench: Bench, **options: Any) -> TopicTable:
    assert barnabas.read is read
    made: TopicTable = read(bench.topic, config=bench.bootstrap, **options)
    return made


async def test_a_consumer_gives_arrow_batches_and_commits_them(bench: Bench) -> None:
    await filled(bench)
    values: list[bytes] = []
    async with bench.consumer() as consumer, asyncio.timeout(PATIENCE_S):
        async for batch in consumer.arrow(columns=["value", "partition", "offset"]):
            assert batch.schema.names == ["value", "partition", "offset"]
            values += batch.column("value").to_pylist()
            if len(values) == 20:
                break
    assert sorted(values) == numbered(20)
    async with bench.consumer() as consumer:
        assert [batch async for batch in consumer.arrow(timeout_ms=300)] == []
        with pytest.raises(ValueError, match="no column 'valeu'"):
            await anext(consumer.arrow(columns=["valeu"]))


async def test_records_and_arrow_in_turn_neither_lose_nor_repeat(bench: Bench) -> None:
    await bench.create(1)
    await bench.write(numbered(10))
    await bench.write(numbered(10, 10))
    async with bench.consumer() as consumer, asyncio.timeout(PATIENCE_S):
        values = [(await consumer.get_one()).value for _ in range(3)]
        async for batch in consumer.arrow():
            values += batch.column("value").to_pylist()
            if len(values) >= 20:
                break
    assert values == numbered(20)


async def test_a_bounded_read(bench: Bench) -> None:
    await filled(bench)

    def check() -> None:
        whole = table(bench).to_arrow()
        assert sorted(whole.column("value").to_pylist()) == numbered(20)
        assert whole.schema.field("timestamp").type == pa.timestamp("us", "UTC")
        recent = table(bench, since="10m").to_arrow()
        assert sorted(recent.column("value").to_pylist()) == numbered(10, 10)
        old = table(bench, until="10m", columns=["value"]).to_arrow()
        assert sorted(old.column("value").to_pylist()) == numbered(10)
        assert table(bench, partitions=[1]).to_arrow().num_rows == 5
        assert table(bench, since="0s").to_arrow().num_rows == 0
        assert len(table(bench).to_pandas()) == 20

    await asyncio.to_thread(check)


async def test_a_bounded_read_ends_behind_the_marker_of_a_transaction(bench: Bench) -> None:
    await bench.create(1)
    async with Producer(bench.bootstrap, transactional_id=bench.topic) as producer:
        async with producer.transaction():
            for value in numbered(5):
                await producer.send(bench.topic, value)
    reading = await _Reading.begin(table(bench))
    values: list[bytes] = []
    try:
        async with asyncio.timeout(PATIENCE_S / 4):
            while (found := await reading.next()) is not None:
                values += [value for batch in found for value in batch.column("value").to_pylist()]
    finally:
        await reading.close()
    assert values == numbered(5)


async def test_polars_and_duckdb(bench: Bench) -> None:
    pytest.importorskip("polars")
    duckdb = pytest.importorskip("duckdb")
    await filled(bench)

    def check() -> None:
        assert table(bench).to_polars().height == 20
        assert len(table(bench).to_duckdb(duckdb.connect()).fetchall()) == 20

    await asyncio.to_thread(check)


async def test_sql_over_topics_with_pushed_down_time(bench: Bench) -> None:
    pytest.importorskip("duckdb")
    await filled(bench)

    def sql(query: str, *options: str) -> str:
        outcome = CliRunner().invoke(cli, ["--bootstrap", bench.bootstrap, "sql", query, *options])
        assert outcome.exit_code == 0, outcome.output
        return outcome.output

    def check() -> None:
        query = f'SELECT partition, count(*) AS n FROM "{bench.topic}"'
        by_partition = sql(f"{query} GROUP BY partition ORDER BY partition", "--json")
        assert [json.loads(line) for line in by_partition.splitlines()] == [
            {"partition": 0, "n": 15},
            {"partition": 1, "n": 5},
        ]
        recent = sql(
            f'SELECT min("offset") AS first, count(*) AS n FROM "{bench.topic}"'
            " WHERE timestamp > now() - INTERVAL 10 MINUTE AND partition = 0",
            "--json",
        )
        assert json.loads(recent) == {"first": 10, "n": 5}
        assert "20" in sql(f'SELECT count(*) FROM "{bench.topic}"')
        assert '"n": 10' in sql(f'SELECT count(*) AS n FROM "{bench.topic}"', "--since", "10m", "--json")
        wrong = CliRunner().invoke(cli, ["--bootstrap", bench.bootstrap, "sql", "SELEC 1"])
        assert wrong.exit_code != 0
        assert "Traceback" not in wrong.output

    await asyncio.to_thread(check)


async def test_a_bounded_read_of_a_topic_that_is_deleted_ends(bench: Bench) -> None:
    await bench.create(1)
    await bench.write(numbered(5))
    reading = await _Reading.begin(table(bench, default_api_timeout_ms=1_000, max_partition_fetch_bytes=1))
    try:
        assert await reading.next()
        await bench.write(numbered(5))
        await TopicAdmin(bench.cluster).delete_topic(bench.topic)
        reading._ends = {bench.at(): 10}
        async with asyncio.timeout(PATIENCE_S / 2):
            with pytest.raises(RequestTimedOut, match=f"{bench.topic}-0 up to offset 10"):
                await reading.next()
    finally:
        await reading.close()
