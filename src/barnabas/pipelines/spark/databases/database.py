"""Database of a jdbc source or sink: connections, and the SQL in which dialects differ.

The sink and the source are written once, in `sinks.jdbc` and `sources.jdbc`. A dialect answers what they ask:
names, types, unique keys, and the three statements without a portable form (the lock while tables are
created, the replacement of rows by key, the deletion of rows by key).

A database is picklable: tasks on other machines open their own connections.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, ClassVar, NamedTuple

from pyspark.sql import types as T  # noqa: N812 - the name that Spark's users know

from barnabas.pipelines.spark.context.run_context import PipelineFailed

BATCHES = "barnabas_batches"
"""Table with the last micro-batch of each query, in the database of its target."""


class RowRefused(PipelineFailed):
    """A row that the sink refuses, although the database would take it."""


class ColumnType(NamedTuple):
    """Type of a column that the sink writes."""

    sql: str
    is_moment: bool = False
    """Whether values are moments. Spark hands them over in the process's time zone, without the zone."""


class SourceColumn(NamedTuple):
    """Column that the source reads."""

    name: str
    kind: str
    """Type in Spark."""
    selected: str
    """Expression in the SELECT."""


class Database(ABC):
    placeholder: ClassVar[str] = "%s"
    parameters_max: ClassVar[int] = 32_767
    """Parameters of one statement."""
    stages_in_tasks: ClassVar[bool] = True
    """False where only the driver writes: the database is a file of its machine, with one writer."""
    latest_first: ClassVar[str] = "_offset DESC, _barnabas_row DESC"
    """Order in which the last record of a key comes first. Rows without an offset come last."""
    names_fold: ClassVar[bool] = False
    """Whether names of columns are the same in upper and lower case."""

    # --- connections ---

    @abstractmethod
    def connect(self) -> Any:
        """A new connection by the interface of PEP 249. Raises Away or Unavailable."""

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """Cursor of a transaction that is committed if the block succeeds."""
        connection = self.connect()
        try:
            yield connection.cursor()
            connection.commit()
        finally:
            connection.close()

    @contextmanager
    def trial(self) -> Iterator[Any]:
        """Cursor of a transaction that is rolled back."""
        connection = self.connect()
        try:
            yield connection.cursor()
        finally:
            connection.close()

    @contextmanager
    def reading(self) -> Iterator[Any]:
        """Cursor that reads large results."""
        with self.transaction() as cursor:
            yield cursor

    # --- names and values ---

    @abstractmethod
    def quote_name(self, name: str) -> str:
        """Column name quoted for SQL. `Flatten` makes names with dots."""

    def quote(self, table: str) -> str:
        """Table name quoted for SQL; dots separate schema and table."""
        return ".".join(map(self.quote_name, table.split(".")))

    def list_of(self, names: Sequence[str]) -> str:
        return ", ".join(map(self.quote_name, names))

    @abstractmethod
    def type_of(self, kind: T.DataType, name: str, *, is_key: bool) -> ColumnType:
        """Type of a created column. Raises PipelineFailed where there is none."""

    def adapted(self, value: Any) -> Any:
        """Value as the driver takes it. Moments arrive with their time zone."""
        return value

    def parameter(self, value: Any, kind: ColumnType) -> Any:
        if value is None:
            return None
        if isinstance(value, bytearray):
            return bytes(value)
        if kind.is_moment and isinstance(value, datetime):
            value = value.astimezone()
        return self.adapted(value)

    # --- sink: the target and the mark ---

    @abstractmethod
    @contextmanager
    def preparing(self) -> Iterator[Any]:
        """Cursor of a transaction in which no other pipeline creates or alters tables."""

    @abstractmethod
    def columns_of(self, cursor: Any, table: str) -> Mapping[str, str] | None:
        """Columns of a table with their types; None if there is no such table."""

    @abstractmethod
    def unique_keys(self, cursor: Any, table: str) -> list[set[str]]:
        """Columns of each primary key and unique index that holds for all rows."""

    def check_target(  # noqa: B027 - most dialects have nothing to check
        self, cursor: Any, table: str, key: Sequence[str], names: Sequence[str]
    ) -> None:
        """Raises PipelineFailed for a table that cannot give the guarantee."""

    batches_table: ClassVar[str] = (
        f"CREATE TABLE IF NOT EXISTS {BATCHES} (pipeline text PRIMARY KEY, batch_id bigint NOT NULL)"
    )

    @abstractmethod
    def mark(self, cursor: Any, noted_as: str, batch_id: int) -> bool:
        """Record the batch; False if it or a later one is recorded.

        The row is locked until the transaction ends. Another driver with this batch waits, and then finds it.
        """

    # --- sink: staged rows ---

    @abstractmethod
    def create_staging(self, staging: str, columns: str) -> str:
        """Statement that creates a staging table."""

    def staging_types(
        self,
        cursor: Any,  # noqa: ARG002
        table: str,  # noqa: ARG002
        names: Sequence[str],  # noqa: ARG002
        kinds: Sequence[ColumnType],
        key: Sequence[str],  # noqa: ARG002
    ) -> list[str]:
        """Types of the staged columns. Where keys compare by the target's rules, they have its types."""
        return [kind.sql for kind in kinds]

    @abstractmethod
    def staging_tables(self, cursor: Any, prefix: str) -> list[str]:
        """Names of the tables with this prefix."""

    def drop_staging(self, name: str) -> None:
        with self.transaction() as cursor:
            cursor.execute(f"DROP TABLE IF EXISTS {self.quote_name(name)}")

    def selected(
        self,
        cursor: Any,  # noqa: ARG002
        table: str,  # noqa: ARG002
        names: Sequence[str],
        kinds: Sequence[ColumnType],  # noqa: ARG002
    ) -> list[str]:
        """Staged columns as the target takes them."""
        return [self.quote_name(name) for name in names]

    @abstractmethod
    def replace_rows(
        self, table: str, names: Sequence[str], key: Sequence[str], selected: Sequence[str], latest: str
    ) -> str:
        """Statement that replaces or adds the rows of `latest`, one for each key."""

    def delete_rows(self, table: str, key: Sequence[str], selected: Sequence[str], latest: str) -> str:
        """Statement that deletes the rows whose keys are in `latest`. `selected` are its key columns."""
        keys = self.list_of(key)
        return f"DELETE FROM {table} WHERE ({keys}) IN (SELECT {', '.join(selected)} FROM {latest})"  # noqa: S608

    def check_constraints(self, cursor: Any) -> None:  # noqa: B027 - most check at once
        """Check constraints now that a commit would check: a trial has no commit."""

    # --- source ---

    @abstractmethod
    def described(self, cursor: Any, relation: str) -> list[SourceColumn]:
        """Columns of a table or query."""

    @abstractmethod
    def as_text(self, expression: str) -> str:
        """Expression with every digit of a value as text: the form of an offset."""

    def bound(self, text: str, kind: str) -> Any:  # noqa: ARG002
        """Parameter for comparisons with a column of Spark's type `kind`."""
        return text

    def raw(self, sql: str) -> str:
        """SQL of the user without placeholders, for a statement that has some."""
        return sql.replace("%", "%%")


def replacement(
    database: Database,
    table: str,
    names: Sequence[str],
    key: Sequence[str],
    selected: Sequence[str],
    latest: str,
) -> str:
    """`replace_rows` of the dialects with ON CONFLICT."""
    changed = [database.quote_name(name) for name in names if name not in key]
    update = ", ".join(f"{name} = excluded.{name}" for name in changed)
    action = f"DO UPDATE SET {update}" if update else "DO NOTHING"
    return (
        f"INSERT INTO {table} ({database.list_of(names)})"  # noqa: S608 - the user's own table
        f" SELECT {', '.join(selected)} FROM {latest} WHERE true"  # SQLite reads ON as a join without WHERE
        f" ON CONFLICT ({database.list_of(key)}) {action}"
    )
