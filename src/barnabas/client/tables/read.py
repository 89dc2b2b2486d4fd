"""Bounded read of a topic without a group: `barnabas.read("orders", since="10m").to_polars()`.

The ends of all partitions are taken once, before the first record is read. So the read ends although
producers go on writing. It runs on the loop thread of the synchronous clients, and works inside of a running
loop (a notebook) too.

A time is found by the broker's index. `since` begins with the first record at or after it; records behind it
may be older, where producers set the times. `until` ends before the first record at or after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from barnabas.client.consumer.arrow_decoding import ARROW_BYTES, arrow_decoder
from barnabas.client.consumer.consumer import Consumer
from barnabas.client.sync.loop_thread import SHARED
from barnabas.client.tables.time_bounds import Time, time_ms
from barnabas.core.errors import RequestTimedOut
from barnabas.core.ids import TopicPartition
from barnabas.core.optional_dependencies import MissingExtra, install_command

if TYPE_CHECKING:
    import duckdb
    import polars as pl
    import pyarrow as pa

DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"
ROUND_MS: Final = 50
"""Time between two looks at the positions: the marker of a transaction moves one, and gives no batch."""


class TopicTable:
    """A topic between two bounds. Each `to_…` reads it again."""

    def __init__(
        self,
        topic: str,
        *,
        since: Time | None = None,
        until: Time | None = None,
        partitions: Sequence[int] | None = None,
        columns: Sequence[str] | None = None,
        config: str | Sequence[str] | Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        self.topic = topic
        self._since = since
        self._until = until
        self._partitions = partitions
        self._columns = columns
        self._config = DEFAULT_BOOTSTRAP if config is None and "bootstrap_servers" not in settings else config
        self._settings = settings
        self._decode = arrow_decoder(columns)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Arrow batches, each of one partition."""
        reading = SHARED.run(_Reading.begin(self))
        try:
            while (found := SHARED.run(reading.next())) is not None:
                yield from found
        finally:
            SHARED.run(reading.close())

    def to_arrow(self) -> pa.Table:
        import pyarrow as arrow  # noqa: ICN001, PLC0415 - an extra; `pa` is for types

        from barnabas.records.columnar.schema import DEFAULT_COLUMNS, arrow_schema  # noqa: PLC0415

        schema = arrow_schema(self._columns or DEFAULT_COLUMNS)
        return arrow.Table.from_batches(list(self.batches()), schema)

    def to_pandas(self) -> Any:
        need("pandas", "tables")
        return self.to_arrow().to_pandas()

    def to_polars(self) -> pl.DataFrame:
        polars = need("polars", "tables")
        frame: pl.DataFrame = polars.from_arrow(self.to_arrow())
        return frame

    def to_duckdb(self, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
        """The table as a relation of a connection, by default the one of the module."""
        duckdb_ = need("duckdb", "sql")
        relation: duckdb.DuckDBPyRelation = (connection or duckdb_).from_arrow(self.to_arrow())
        return relation


class _Reading:
    """One pass over the partitions, on the loop of the synchronous clients."""

    def __init__(self, table: TopicTable, consumer: Consumer, ends: dict[TopicPartition, int]) -> None:
        self._table = table
        self._consumer = consumer
        self._ends = ends
        self._positions: dict[TopicPartition, int] = {}
        self._moved_ms = consumer.clock.monotonic_ms()

    @classmethod
    async def begin(cls, table: TopicTable) -> _Reading:
        settings = {"auto_offset_reset": "earliest", **table._settings}
        consumer = Consumer(table._config, **settings)
        await consumer.start()
        try:
            starts, ends = await _bounds(table, consumer)
            left = {at: end for at, end in ends.items() if starts[at] < end}
            await consumer.assign(left)
            for at in left:
                consumer.seek(at, starts[at])
        except BaseException:
            await consumer.close()
            raise
        return cls(table, consumer, left)

    async def next(self) -> list[pa.RecordBatch] | None:
        """Batches of the next answer; None at the end."""
        while self._ends:
            taken = await self._consumer.take_batches(ARROW_BYTES, ROUND_MS)
            end = None if taken is None else self._ends.get(taken.at)
            found = [] if taken is None or end is None else list(self._table._decode(taken, end))
            await self._finish()
            if found:
                return found
            self._check_progress()
        return None

    def _check_progress(self) -> None:
        """REQUEST_TIMED_OUT when no broker gives what is left: it is down, or the topic is deleted."""
        timeout_ms = self._consumer.settings.default_api_timeout_ms
        if self._ends and self._consumer.clock.monotonic_ms() - self._moved_ms >= timeout_ms:
            left = ", ".join(f"{at} up to offset {end}" for at, end in sorted(self._ends.items())[:3])
            raise RequestTimedOut(f"no records came for {timeout_ms} ms, and these are left: {left}")

    async def _finish(self) -> None:
        """Drop partitions that reached their end."""
        for at, end in list(self._ends.items()):
            position = await self._consumer.position(at)
            if position != self._positions.get(at):
                self._positions[at] = position
                self._moved_ms = self._consumer.clock.monotonic_ms()
            if position >= end:
                del self._ends[at]
                self._consumer.pause(at)

    async def close(self) -> None:
        await self._consumer.close()


async def _bounds(
    table: TopicTable, consumer: Consumer
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    partitions = await consumer.partitions_for(table.topic)
    if table._partitions is not None:
        partitions = [at for at in partitions if at.partition in table._partitions]
    ends = await consumer.end_offsets(partitions)
    starts = await consumer.beginning_offsets(partitions)
    now_ms = consumer.clock.now_ms()
    for time, bound in ((table._since, starts), (table._until, ends)):
        if time is None:
            continue
        found = await consumer.offsets_for_times(dict.fromkeys(partitions, time_ms(time, now_ms)))
        for at, first in found.items():
            bound[at] = ends[at] if first is None else min(first.offset, ends[at])
    return starts, ends


def read(topic: str, **options: Any) -> TopicTable:
    """Read a topic as a table: `read("orders", since="10m", bootstrap_servers="…").to_arrow()`.

    `since` and `until` are durations before now ("10m"), datetimes, ISO 8601 text, or milliseconds.
    """
    return TopicTable(topic, **options)


def need(module: str, extra: str) -> Any:
    from importlib import import_module  # noqa: PLC0415

    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtra(f"{module} is not installed: {install_command(extra)}") from error
