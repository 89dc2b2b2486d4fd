"""MySQL and MariaDB by PyMySQL: pure Python, so that executors need no jar.

Three habits of MySQL would change or lose rows silently, and are turned off or refused:

- without a strict mode it cuts values that do not fit: each session is strict;
- tables of some engines (MyISAM) have no transactions: they are refused as targets;
- ON DUPLICATE KEY UPDATE replaces the row that any unique index finds: a second index on written columns is
  refused.

Text keys compare by the collation of the target, in which "a" may be "A". Staged keys have the same type and
collation, so that the last record of a key is found by the same rule. Keys of a table that the sink creates
compare by their bytes.
"""

from __future__ import annotations

import logging
import math
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, ClassVar

from pyspark.sql import types as T  # noqa: N812 - the name that Spark's users know

from barnabas.pipelines.spark.context.run_context import Away, PipelineFailed, Unavailable
from barnabas.pipelines.spark.databases.database import (
    BATCHES,
    ColumnType,
    Database,
    RowRefused,
    SourceColumn,
)

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 30
PREPARE_LOCK = "barnabas"
LOCK_WAIT_S = 30
"""Longest wait for a lock. A suspended driver may hold one for ever."""
_SESSION = (
    "SET SESSION sql_mode = 'TRADITIONAL,NO_AUTO_VALUE_ON_ZERO', time_zone = '+00:00',"
    f" lock_wait_timeout = {LOCK_WAIT_S}, innodb_lock_wait_timeout = {LOCK_WAIT_S}"
)
_KEY_CHARACTERS = 255
"""Four keys of this length fit into an index of InnoDB, almost: it holds 3,072 bytes."""
_WRITTEN: tuple[tuple[type[T.DataType], str], ...] = (
    (T.BooleanType, "tinyint(1)"), (T.ByteType, "tinyint"), (T.ShortType, "smallint"),
    (T.IntegerType, "int"), (T.LongType, "bigint"), (T.FloatType, "float"), (T.DoubleType, "double"),
    (T.DateType, "date"), (T.TimestampNTZType, "datetime(6)"),
)  # fmt: skip
_SCALE_MAX = 30
_PRECISION_MAX = 38
_REFUSALS = frozenset(
    (
        1048, 1062, 1216, 1217, 1264, 1265, 1292, 1364, 1366, 1367, 1406, 1411, 1441, 1451, 1452, 1525, 1644,
        1690, 3140, 3819, 4025,
    )
)  # fmt: skip
"""Errors that blame a row: null, duplicate, foreign key, range, length, form, check, a trigger's SIGNAL."""
_ABSENT = frozenset((1040, 1053, 1152, 1159, 1161, 1203, 1205, 1213, 1226))
"""Errors of a server that is full, stopping or busy."""
_LOCK_WAIT = 1205
_CLIENT_ERRORS = range(2000, 2100)
"""Errors of the connection."""
_BINARY = 63
"""Number of the character set of bytes."""
_UNSIGNED = 32


@dataclass(frozen=True, slots=True)
class Mysql(Database):
    host: str
    port: int
    name: str
    user: str
    password: str | None = field(default=None, repr=False)
    tls: str = "preferred"
    """MySQL's modes: `disabled`, `preferred`, `required`, `verify_ca` or `verify_identity`."""
    authorities: str | None = None
    """File with the certificate authorities to trust, instead of the system's."""

    names_fold: ClassVar[bool] = True
    batches_table: ClassVar[str] = (
        f"CREATE TABLE IF NOT EXISTS {BATCHES} (pipeline varchar(255) CHARACTER SET ascii COLLATE ascii_bin"
        " PRIMARY KEY, batch_id bigint NOT NULL) ENGINE = InnoDB"
    )

    def connect(self) -> Any:
        return self._connect()

    def _connect(self, **options: Any) -> Any:
        try:
            import pymysql  # noqa: PLC0415 - an extra
        except ImportError:
            raise PipelineFailed("MySQL needs its driver: pip install pymysql") from None
        try:
            return pymysql.connect(
                host=self.host, port=self.port, user=self.user, password=self.password or "",
                database=self.name, charset="utf8mb4", connect_timeout=CONNECT_TIMEOUT_S,
                init_command=_SESSION, autocommit=False, local_infile=False,
                ssl=self._tls(), ssl_disabled=self.tls == "disabled", **options,
            )  # fmt: skip
        except (pymysql.err.Error, OSError) as error:
            kind = Away if is_of_absence(error) else Unavailable
            raise kind(f"no connection to {self}: {error.args[-1] if error.args else error}") from None

    def _tls(self) -> ssl.SSLContext | None:
        if self.tls in ("disabled", "preferred"):  # the driver prefers it by itself
            return None
        context = ssl.create_default_context(cafile=self.authorities)
        context.check_hostname = self.tls == "verify_identity"
        if self.tls == "required":
            context.verify_mode = ssl.CERT_NONE
        return context

    @contextmanager
    def reading(self) -> Iterator[Any]:
        """The server keeps the result, and the client takes it in pieces."""
        import pymysql.cursors  # noqa: PLC0415 - an extra

        with (
            closing(self._connect(cursorclass=pymysql.cursors.SSCursor)) as connection,
            closing(connection.cursor()) as cursor,
        ):
            yield cursor

    def __str__(self) -> str:
        return f"mysql://{self.host}:{self.port}/{self.name}"

    def quote_name(self, name: str) -> str:
        return "`" + name.replace("`", "``") + "`"

    def type_of(self, kind: T.DataType, name: str, *, is_key: bool) -> ColumnType:
        for spark, sql in _WRITTEN:
            if isinstance(kind, spark):
                return ColumnType(sql)
        if isinstance(kind, T.TimestampType):
            return ColumnType("datetime(6)", is_moment=True)
        if isinstance(kind, T.StringType):
            key = f"varchar({_KEY_CHARACTERS}) CHARACTER SET utf8mb4 COLLATE {self._bytewise()}"
            return ColumnType(key if is_key else "longtext CHARACTER SET utf8mb4")
        if isinstance(kind, T.BinaryType):
            return ColumnType(f"varbinary({_KEY_CHARACTERS})" if is_key else "longblob")
        if isinstance(kind, T.DecimalType) and kind.scale <= _SCALE_MAX:
            return ColumnType(f"decimal({kind.precision}, {kind.scale})")
        raise PipelineFailed(
            f"column {name} of type {kind.simpleString()} has no MySQL type; cast or flatten it"
        )

    def _bytewise(self) -> str:
        """Collation in which texts are equal if their bytes are: `_bin` alone ignores spaces at the end."""
        with self.transaction() as cursor:
            cursor.execute("SELECT VERSION()")
            is_mariadb = "mariadb" in str(cursor.fetchone()[0]).lower()
        return "utf8mb4_nopad_bin" if is_mariadb else "utf8mb4_0900_bin"

    def adapted(self, value: Any) -> Any:
        if isinstance(value, float) and not math.isfinite(value):
            raise RowRefused(f"sink.table: a row has the number {value}, which MySQL does not hold")
        if isinstance(value, datetime) and value.tzinfo is not None:
            return value.astimezone(UTC).replace(tzinfo=None)
        return value

    @contextmanager
    def preparing(self) -> Iterator[Any]:
        with self.transaction() as cursor:
            cursor.execute("SELECT GET_LOCK(%s, %s)", (PREPARE_LOCK, LOCK_WAIT_S))
            if cursor.fetchone()[0] != 1:
                raise Away(f"{self}: another pipeline has held the lock {PREPARE_LOCK} for {LOCK_WAIT_S} s")
            yield cursor

    def columns_of(self, cursor: Any, table: str) -> Mapping[str, str] | None:
        cursor.execute(
            "SELECT column_name, CONCAT(column_type, IF(collation_name IS NULL, '',"  # noqa: S608 - a constant
            " CONCAT(' CHARACTER SET ', character_set_name, ' COLLATE ', collation_name)))"
            f" FROM information_schema.columns WHERE {_IN_TABLE} ORDER BY ordinal_position",
            _split(table),
        )
        found = dict(cursor.fetchall())
        return found or None

    def unique_keys(self, cursor: Any, table: str) -> list[set[str]]:
        return [columns for columns, is_whole in self._unique(cursor, table) if is_whole]

    def _unique(self, cursor: Any, table: str) -> list[tuple[set[str], bool]]:
        """Columns of each unique index, and whether it covers whole values."""
        cursor.execute(
            "SELECT index_name, column_name, sub_part FROM information_schema.statistics"  # noqa: S608 - a constant
            f" WHERE {_IN_TABLE} AND non_unique = 0",
            _split(table),
        )
        found: dict[str, list[tuple[str, Any]]] = {}
        for index, column, part in cursor.fetchall():
            found.setdefault(index, []).append((str(column), part))
        return [
            ({column for column, _ in rows}, all(part is None for _, part in rows)) for rows in found.values()
        ]

    def check_target(self, cursor: Any, table: str, key: Sequence[str], names: Sequence[str]) -> None:
        cursor.execute(
            "SELECT t.engine, e.transactions FROM information_schema.tables t"  # noqa: S608 - a constant
            " LEFT JOIN information_schema.engines e ON e.engine = t.engine"
            f" WHERE {_IN_TABLE}",
            _split(table),
        )
        engine, transactions = cursor.fetchone()
        if transactions != "YES":
            found = f"has the engine {engine}" if engine else "is a view"
            raise PipelineFailed(
                f"sink.table: {table} {found}, which has no transactions; expected an InnoDB table"
            )
        wanted, written = {name.lower() for name in key}, {name.lower() for name in names}
        for columns, _ in self._unique(cursor, table) if key else ():
            other = {name.lower() for name in columns}
            if other != wanted and other & written:
                raise PipelineFailed(
                    f"sink.key: {table} has another unique index, on {', '.join(sorted(columns))}; MySQL"
                    " would replace a row by either; drop it, leave its columns out, or set mode: insert"
                )

    def mark(self, cursor: Any, noted_as: str, batch_id: int) -> bool:
        # One statement: two that lock the row first for reading and then for writing would deadlock.
        cursor.execute(
            f"INSERT INTO {BATCHES} VALUES (%s, %s)"  # noqa: S608 - a table of ours
            " ON DUPLICATE KEY UPDATE batch_id = GREATEST(batch_id, VALUES(batch_id))",
            (noted_as, batch_id),
        )
        return bool(cursor.rowcount)

    def create_staging(self, staging: str, columns: str) -> str:
        return f"CREATE TABLE {staging} ({columns}) ENGINE = InnoDB"

    def staging_types(
        self, cursor: Any, table: str, names: Sequence[str], kinds: Sequence[ColumnType], key: Sequence[str]
    ) -> list[str]:
        target = {name.lower(): kind for name, kind in (self.columns_of(cursor, table) or {}).items()}
        return [
            f"{target[name.lower()]} NULL" if name in key else f"{kind.sql} NULL"
            for name, kind in zip(names, kinds, strict=True)
        ]

    def staging_tables(self, cursor: Any, prefix: str) -> list[str]:
        cursor.execute(
            "SELECT table_name FROM information_schema.tables"
            " WHERE table_schema = DATABASE() AND LEFT(table_name, %s) = %s",
            (len(prefix), prefix),
        )
        return [name for (name,) in cursor.fetchall()]

    def drop_staging(self, name: str) -> None:
        import pymysql  # noqa: PLC0415 - an extra

        try:
            super(Mysql, self).drop_staging(name)
        except pymysql.err.OperationalError as error:
            if error.args[0] != _LOCK_WAIT:
                raise
            logger.warning("%s: table %s is in use, and is left for the next start", self, name)

    def replace_rows(
        self, table: str, names: Sequence[str], key: Sequence[str], selected: Sequence[str], latest: str
    ) -> str:
        changed = [name for name in names if name not in key] or [key[0]]
        update = ", ".join(f"{each} = VALUES({each})" for each in map(self.quote_name, changed))
        return (
            f"INSERT INTO {table} ({self.list_of(names)}) SELECT {', '.join(selected)} FROM {latest}"  # noqa: S608
            f" ON DUPLICATE KEY UPDATE {update}"
        )

    def delete_rows(self, table: str, key: Sequence[str], selected: Sequence[str], latest: str) -> str:  # noqa: ARG002
        """By a join: MySQL would look at every row of the table for an IN."""
        same = " AND ".join(f"t.{name} = latest.{name}" for name in map(self.quote_name, key))
        return f"DELETE t FROM {table} AS t JOIN {latest} ON {same}"

    def described(self, cursor: Any, relation: str) -> list[SourceColumn]:
        cursor.execute(f"SELECT * FROM {relation} LIMIT 0", ())  # noqa: S608 - the user's own table
        return [self._column(each) for each in cursor._result.fields]

    def _column(self, found: Any) -> SourceColumn:
        quoted = self.quote_name(found.name)
        kind, code = _READ.get(found.type_code, "STRING"), found.type_code
        selected = quoted
        is_unsigned = bool(found.flags & _UNSIGNED)
        if code == _BIT:
            kind, selected = "DECIMAL(20, 0)", f"({quoted} + 0)"
        elif is_unsigned and kind in _WIDER:
            kind = _WIDER[kind]
        elif code in _DECIMALS:
            signs = (found.scale > 0) + (not is_unsigned)
            kind = f"DECIMAL({min(max(found.length - signs, found.scale, 1), _PRECISION_MAX)}, {found.scale})"
        elif code in _TEXTS:
            kind = "BINARY" if found.charsetnr == _BINARY and code != _JSON else "STRING"
        elif code not in _READ:
            selected = f"CAST({quoted} AS CHAR)"
        return SourceColumn(found.name, kind, selected)

    def as_text(self, expression: str) -> str:
        return f"CAST({expression} AS CHAR)"

    def bound(self, text: str, kind: str) -> Any:
        """MySQL compares a number with text as floating-point numbers, which lose digits."""
        if kind in ("TINYINT", "SMALLINT", "INT", "BIGINT"):
            return int(text)
        if kind.startswith("DECIMAL"):
            return Decimal(text)
        return float(text) if kind in ("FLOAT", "DOUBLE") else text


_READ: Mapping[int, str] = {
    1: "TINYINT", 2: "SMALLINT", 9: "INT", 3: "INT", 8: "BIGINT", 13: "INT", 4: "FLOAT", 5: "DOUBLE",
    0: "DECIMAL", 246: "DECIMAL", 10: "DATE", 14: "DATE", 12: "TIMESTAMP_NTZ", 7: "TIMESTAMP",
    16: "BIT", 245: "STRING", 249: "STRING", 250: "STRING", 251: "STRING", 252: "STRING", 253: "STRING",
    254: "STRING", 15: "STRING",
}  # fmt: skip
"""MySQL's type numbers; all other types (time, geometry) are read as text."""
_WIDER = {"TINYINT": "SMALLINT", "SMALLINT": "INT", "INT": "BIGINT", "BIGINT": "DECIMAL(20, 0)"}
_DECIMALS = frozenset((0, 246))
_TEXTS = frozenset((15, 245, 249, 250, 251, 252, 253, 254))
_JSON = 245
_BIT = 16
_IN_TABLE = "table_schema = COALESCE(%s, DATABASE()) AND table_name = %s"


def blames_row(error: BaseException) -> bool:
    """True if an error of the database blames the rows, not the server."""
    return _number(error) in _REFUSALS


def is_of_absence(error: BaseException) -> bool:
    """True if the server is missing, stopping, full or busy; a refused password is none of these."""
    number = _number(error)
    return number is None or number in _ABSENT or number in _CLIENT_ERRORS


def _number(error: BaseException) -> int | None:
    is_mysqls = type(error).__module__.startswith("pymysql")
    first = error.args[0] if is_mysqls and error.args else None
    return first if isinstance(first, int) else None


def _split(table: str) -> tuple[str | None, str]:
    schema, _, name = table.rpartition(".")
    return schema or None, name
