"""PostgreSQL, MariaDB and SQLite under one sink and source, without Spark: the same questions to each."""

from __future__ import annotations

import sqlite3
import threading
import traceback
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")
pytest.importorskip("pg8000", reason="pg8000 is not installed")

import pg8000.dbapi
import trustme
from pyspark.sql import types as T  # noqa: N812 - the name that Spark's users know

from barnabas.pipelines.spark.context.run_context import Away, PipelineFailed, Run
from barnabas.pipelines.spark.databases import mysql, postgres, sqlite
from barnabas.pipelines.spark.databases.database import Database, RowRefused
from barnabas.pipelines.spark.databases.mysql import Mysql
from barnabas.pipelines.spark.databases.postgres import Postgres
from barnabas.pipelines.spark.databases.sqlite import Sqlite
from barnabas.pipelines.spark.recovery.error_reasons import is_of_absence
from barnabas.pipelines.spark.sinks.jdbc import Staged, _insert, _stage, _staging_of, _Target
from barnabas.pipelines.spark.sources.jdbc import _columns, _fetch, _Range, _Table
from barnabas.pipelines.spec.model import Part
from tests.support.mariadb import Mariadb, run_mariadb
from tests.support.postgres import run_postgres

Query = Callable[[str], list[Any]]


@dataclass
class World:
    database: Database
    query: Query

    def target(self, kinds: dict[str, T.DataType], **options: Any) -> _Target:
        part = Part("jdbc", {"mode": "upsert", "create": True, "table": "t", **options})
        key = options.get("key", [])
        types = [self.database.type_of(kind, name, is_key=name in key) for name, kind in kinds.items()]
        made = _Target(self.database, part, "pipeline", list(kinds), types)
        made.prepare()
        return made

    def take(self, made: _Target, batch: int, *rows: tuple[Any, ...]) -> None:
        """A micro-batch of rows (offset, deleted, values …), as one task stages it."""
        staging = self.database.quote_name(f"{_staging_of('query')}{uuid.uuid4().hex[:8]}")
        if isinstance(self.database, Sqlite):
            with self.database.session() as cursor:
                cursor.execute(self.database.create_staging(staging, made._staged_columns()))
                count = _insert(cursor, self.database, staging, made._names, made._kinds, rows, 0)  # type: ignore[arg-type]
                with self.database.locked(cursor):
                    made._enter(cursor, "query", batch, staging, [Staged(0, count)])
            return
        made._create_staging(staging)
        report = _stage(self.database, staging, made._names, made._kinds, rows)  # type: ignore[arg-type]
        made._commit("query", batch, staging, [report])

    def read(self, table: str, kinds: Sequence[T.DataType], **options: Any) -> tuple[list[str], list[Any]]:
        bare = _Table(self.database, self.database.quote(table), options.pop("column", "id"), 100)
        columns = _columns(bare)
        fields = [T.StructField(each.name, kind) for each, kind in zip(columns, kinds, strict=True)]
        whole = replace(
            bare,
            columns=T.StructType(fields),
            selected=", ".join(each.selected for each in columns),
            column_kind=next(each.kind for each in columns if each.name == bare.column),
            is_lenient=options.pop("is_lenient", False),
        )
        batches = _fetch(whole, _Range(options.pop("after", None), options.pop("upto", None)))
        return [each.kind for each in columns], [tuple(r.values()) for b in batches for r in b.to_pylist()]


@pytest.fixture(scope="module")
def mariadb() -> Iterator[Mariadb]:
    with run_mariadb() as running:
        yield running


@pytest.fixture(scope="module")
def servers(mariadb: Mariadb) -> Iterator[dict[str, tuple[Database, Query]]]:
    with run_postgres() as running:
        yield {
            "postgresql": (Postgres("127.0.0.1", running.port, "postgres", "postgres"), running.query),
            "mysql": (Mysql("127.0.0.1", mariadb.port, "shop", "root"), mariadb.query),
        }


@pytest.fixture(params=["postgresql", "mysql", "sqlite"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    if request.param == "sqlite":
        place = tmp_path / "shop.db"

        def query(sql: str) -> list[Any]:
            with sqlite3.connect(place) as connection:
                found = connection.execute(sql).fetchall()
            connection.close()
            return found

        return World(Sqlite(str(place), may_create=True), query)
    database, query = request.getfixturevalue("servers")[request.param]
    for name in ("t", "barnabas_batches"):
        query(f"DROP TABLE IF EXISTS {name}")
    return World(database, query)


ID, NAME = T.LongType(), T.StringType()


def test_a_batch_counts_once_and_the_last_of_a_key_wins(world: World) -> None:
    made = world.target({"id": ID, "name": NAME}, key=["id"])
    world.take(made, 0, (5, 0, 1, "new"), (3, 0, 1, "old"), (4, 0, 2, "x"))
    world.take(made, 0, (9, 0, 1, "again"))
    assert sorted(world.query("SELECT id, name FROM t")) == [(1, "new"), (2, "x")]
    world.take(made, 1, (None, 0, 2, "y"), (None, 0, 2, "z"), (None, 0, 3, "w"))
    assert sorted(world.query("SELECT id, name FROM t")) == [(1, "new"), (2, "z"), (3, "w")]
    assert not made._is_done("query", 2)
    assert made._is_done("query", 1)


def test_a_tombstone_deletes_the_row_of_its_key(world: World) -> None:
    made = world.target({"id": ID, "name": NAME}, key=["id"], delete=True)
    world.take(made, 0, (0, 0, 1, "a"), (1, 0, 2, "b"), (2, 0, 3, "c"), (3, 1, 3, None))
    assert sorted(world.query("SELECT id, name FROM t")) == [(1, "a"), (2, "b")]
    world.take(made, 1, (4, 1, 1, None), (5, 0, 2, "d"), (6, 1, 9, None), (7, 1, 4, None), (8, 0, 4, "e"))
    assert sorted(world.query("SELECT id, name FROM t")) == [(2, "d"), (4, "e")]


def test_a_tombstone_or_a_null_key_that_means_no_row_is_refused(world: World) -> None:
    made = world.target({"id": ID, "name": NAME}, key=["id"])
    with pytest.raises(RowRefused, match=r"no value, and sink\.delete is not set"):
        world.take(made, 0, (0, 0, 1, "a"), (1, 1, 1, None))
    with pytest.raises(RowRefused, match="a null in its key"):
        world.take(made, 0, (0, 0, None, "a"))
    assert world.query("SELECT * FROM t") == []
    assert not made._is_done("query", 0)


def test_missing_columns_are_added_where_the_spec_says_so(world: World) -> None:
    world.query("CREATE TABLE t (id integer PRIMARY KEY)")
    with pytest.raises(PipelineFailed, match="t has no column name; it has id"):
        world.target({"id": ID, "name": NAME}, key=["id"])
    made = world.target({"id": ID, "name": NAME}, key=["id"], evolve=True)
    world.take(made, 0, (0, 0, 1, "a"))
    assert world.query("SELECT id, name FROM t") == [(1, "a")]
    with pytest.raises(PipelineFailed, match="t has no column other"):
        world.target({"id": ID, "other": ID}, key=["other"], evolve=True)
    with pytest.raises(PipelineFailed, match="no primary key or unique index on name"):
        world.target({"id": ID, "name": NAME}, key=["name"])


def test_keys_are_equal_only_if_their_bytes_are(world: World) -> None:
    made = world.target({"id": NAME, "n": ID}, key=["id"])
    keys = ["a", "A", "a ", "é", "e", "ß", "ss", "", "\U0001f600", "a\\b", "a'b", "a%sb"]
    world.take(made, 0, *((at, 0, key, at) for at, key in enumerate(keys)))
    assert sorted(world.query("SELECT id, n FROM t")) == sorted(zip(keys, range(len(keys)), strict=True))


VALUES: dict[str, tuple[T.DataType, Any]] = {
    "id": (T.LongType(), -(2**63)),
    "flag": (T.BooleanType(), True),
    "tiny": (T.ByteType(), -128),
    "small": (T.ShortType(), 32_767),
    "whole": (T.IntegerType(), 2**31 - 1),
    "real": (T.DoubleType(), 0.1),
    "large": (T.DoubleType(), 1.7976931348623157e308),
    "money": (T.DecimalType(38, 18), Decimal("12345678901234567890.123456789012345678")),
    "text": (T.StringType(), "q'\"\\%s é\U0001f600\n"),
    "bytes": (T.BinaryType(), bytearray(range(256))),
    "day": (T.DateType(), date(1582, 10, 15)),
    "wall": (T.TimestampNTZType(), datetime(9999, 12, 31, 23, 59, 59, 999_999)),  # noqa: DTZ001
    "long": (T.StringType(), "x" * 1_000_000),
}


def test_values_come_back_as_they_were_written(world: World) -> None:
    kinds = {name: kind for name, (kind, _) in VALUES.items()}
    values = [value for _, value in VALUES.values()]
    made = world.target(kinds, key=["id"])
    world.take(made, 0, (0, 0, *values), (1, 0, 7, *([None] * (len(values) - 1))))
    if isinstance(world.database, Sqlite):
        for name in ("day", "wall", "money"):
            kinds[name] = T.StringType()
        kinds["flag"] = T.LongType()
    if isinstance(world.database, Mysql):
        kinds["flag"] = T.ByteType()
    _, (first, second) = world.read("t", list(kinds.values()))
    assert second == (7, *([None] * (len(values) - 1)))
    expected = [bytes(value) if isinstance(value, bytearray) else value for value in values]
    if isinstance(world.database, Sqlite):
        expected[7], expected[10] = str(expected[7]), "1582-10-15"
        expected[11] = "9999-12-31 23:59:59.999999"
    assert list(first) == expected


def test_moments_are_stored_in_utc(world: World) -> None:
    made = world.target({"id": ID, "at": T.TimestampType()}, key=["id"])
    local = datetime(2024, 5, 1, 12, tzinfo=UTC).astimezone().replace(tzinfo=None)  # as Spark hands it over
    world.take(made, 0, (0, 0, 1, local), (1, 0, 2, None))
    found = dict(world.query("SELECT id, at FROM t"))
    assert str(found[1])[:19] == "2024-05-01 12:00:00"
    assert found[2] is None


def test_rows_of_a_batch_come_in_statements_of_bounded_size(world: World) -> None:
    """MariaDB takes 16 MB of a statement by default."""
    made = world.target({"id": ID, "text": NAME}, key=["id"])
    world.take(made, 0, *((at, 0, at, "\\'" * 500_000) for at in range(24)))
    assert world.query("SELECT count(*), min(length(text)) FROM t") == [(24, 1_000_000)]


def test_a_row_that_the_table_forbids_is_a_refusal_and_leaves_nothing(world: World) -> None:
    world.query("CREATE TABLE t (id integer PRIMARY KEY, n integer NOT NULL CHECK (n < 10))")
    made = world.target({"id": ID, "n": ID}, key=["id"])
    for batch, value in enumerate((None, 11)):
        with pytest.raises(Exception) as raised:  # noqa: PT011 - each driver has its own
            world.take(made, batch, (0, 0, 1, 5), (1, 0, 2, value))
        assert any(each.blames_row(raised.value) for each in (postgres, mysql, sqlite)), raised.value
        assert not made._is_done("query", batch)
    assert world.query("SELECT * FROM t") == []


def test_two_drivers_with_the_same_batch_write_it_once(world: World) -> None:
    made = world.target({"id": ID}, mode="insert")
    failures: list[BaseException] = []

    def take() -> None:
        try:
            world.take(made, 0, (0, 0, 1), (1, 0, 2))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=take) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(world.query("SELECT id FROM t")) == [(1,), (2,)], failures
    assert failures == []


def test_a_driver_whose_staged_rows_are_gone_writes_nothing(world: World) -> None:
    """Its successor has dropped them; or the server crashed, and Spark ran some of the tasks again."""
    if isinstance(world.database, Sqlite):
        pytest.skip("the staged rows of SQLite are in the driver's own connection")
    made = world.target({"id": ID}, mode="insert")
    staging = world.database.quote_name(f"{_staging_of('query')}zombie")
    made._create_staging(staging)
    report = _stage(world.database, staging, made._names, made._kinds, [(None, 0, 1)])  # type: ignore[list-item]
    with pytest.raises(Away, match="1 of 4 staged rows for t are in"):
        made._commit("query", 0, staging, [report, Staged(attempt=5, rows=3)])
    made._drop(_staging_of("query"))
    with pytest.raises((pg8000.dbapi.Error, Exception), match=r"does not exist|doesn't exist"):
        made._commit("query", 0, staging, [report])
    assert world.query("SELECT * FROM t") == []
    assert not made._is_done("query", 0)


def test_ranges_of_a_growing_column_leave_no_row_out(world: World) -> None:
    """A comparison by floating-point numbers would take 2^53 and 2^53 + 1 for the same."""
    world.query("CREATE TABLE t (id bigint PRIMARY KEY)")
    world.query(f"INSERT INTO t VALUES ({2**53}), ({2**53 + 1}), ({2**53 + 2}), ({2**53 + 3})")
    assert world.read("t", [ID], after=str(2**53 + 1), upto=str(2**53 + 3)) == (
        ["BIGINT"],
        [(2**53 + 2,), (2**53 + 3,)],
    )
    text = world.database.as_text("max(id)")
    assert world.query(f"SELECT {text} FROM t") == [(str(2**53 + 3),)]


# --- MySQL's own ---


def test_a_table_without_transactions_is_refused(mariadb: Mariadb) -> None:
    world = World(Mysql("127.0.0.1", mariadb.port, "shop", "root"), mariadb.query)
    mariadb.query("CREATE TABLE isam (id bigint PRIMARY KEY) ENGINE = MyISAM")
    with pytest.raises(PipelineFailed, match="isam has the engine MyISAM, which has no transactions"):
        world.target({"id": ID}, key=["id"], table="isam")


def test_a_second_unique_index_is_refused(mariadb: Mariadb) -> None:
    world = World(Mysql("127.0.0.1", mariadb.port, "shop", "root"), mariadb.query)
    mariadb.query("CREATE TABLE twice (n bigint AUTO_INCREMENT PRIMARY KEY, id bigint UNIQUE, name text)")
    made = world.target({"id": ID, "name": NAME}, key=["id"], table="twice")
    world.take(made, 0, (0, 0, 1, "a"), (1, 0, 1, "b"))
    assert mariadb.query("SELECT id, name FROM twice") == [(1, "b")]
    mariadb.query("ALTER TABLE twice ADD UNIQUE (name(10))")
    with pytest.raises(PipelineFailed, match="twice has another unique index, on name"):
        world.target({"id": ID, "name": NAME}, key=["id"], table="twice")


def test_keys_follow_the_collation_of_the_target(mariadb: Mariadb) -> None:
    world = World(Mysql("127.0.0.1", mariadb.port, "shop", "root"), mariadb.query)
    mariadb.query(
        "CREATE TABLE folded (id varchar(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci PRIMARY KEY,"
        " n bigint)"
    )
    made = world.target({"id": NAME, "n": ID}, key=["id"], table="folded", delete=True)
    world.take(made, 10, (2, 0, "a", 2), (3, 0, "A", 3), (1, 0, "a", 1), (4, 0, "b", 4), (5, 1, "B ", None))
    assert [n for _, n in mariadb.query("SELECT id, n FROM folded")] == [3]


def test_numbers_and_texts_of_mysql_have_types_that_hold_them(mariadb: Mariadb) -> None:
    world = World(Mysql("127.0.0.1", mariadb.port, "shop", "root"), mariadb.query)
    mariadb.query(
        "CREATE TABLE typed (id bigint unsigned, u int unsigned, d decimal(10, 2), b bit(4), t time, y year,"
        " j json, e enum('x', 'y'), at timestamp(6) NULL, raw varbinary(4), f float)"
    )
    mariadb.query(
        "INSERT INTO typed VALUES (18446744073709551615, 4294967295, 12345678.25, b'1010', '01:02:03', 2024,"
        " '{\"a\": 1.10}', 'y', '2024-05-01 12:00:00.5', x'00ff', 0.5)"
    )
    long, number = T.LongType(), T.DecimalType(20, 0)
    kinds: list[T.DataType] = [number, long, T.DecimalType(10, 2), number, NAME, T.IntegerType(), NAME, NAME]
    kinds += [T.TimestampType(), T.BinaryType(), T.FloatType()]
    found, (row,) = world.read("typed", kinds)
    assert found[:3] == ["DECIMAL(20, 0)", "BIGINT", "DECIMAL(10, 2)"]
    assert row[:4] == (Decimal(2**64 - 1), 2**32 - 1, Decimal("12345678.25"), Decimal(10))
    assert row[4:8] == ("01:02:03", 2024, '{"a": 1.10}', "y")
    assert row[8:] == (datetime(2024, 5, 1, 12, 0, 0, 500_000, tzinfo=UTC), b"\x00\xff", 0.5)


def test_a_server_is_reached_by_tls_and_known_by_its_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from barnabas.pipelines.spark.databases.addresses import database_of
    from barnabas.pipelines.spec.validation import load_document

    ours, foreign = trustme.CA(), trustme.CA()
    known, unknown = tmp_path / "ca.pem", tmp_path / "other.pem"
    ours.cert_pem.write_to_path(str(known))
    foreign.cert_pem.write_to_path(str(unknown))
    issued = ours.issue_cert("localhost")
    issued.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    issued.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
    tls = [f"--ssl-cert={tmp_path}/cert.pem", f"--ssl-key={tmp_path}/key.pem"]
    with run_mariadb(*tls) as running:

        def cipher(host: str, mode: str, authorities: Path) -> str:
            url = f"mysql://root@{host}:{running.port}/shop?sslMode={mode}&sslCa={authorities}"
            sink = {"type": "jdbc", "url": url, "table": "t", "mode": "insert"}
            spec = load_document({"name": "p", "source": {"type": "rate"}, "sink": sink})
            run = Run(None, spec, "", "")  # type: ignore[arg-type]
            with database_of(spec.sink, run).transaction() as cursor:
                cursor.execute("SHOW STATUS LIKE 'Ssl_cipher'")
                return str(cursor.fetchone()[1])

        assert cipher("localhost", "VERIFY_IDENTITY", known)
        assert cipher("127.0.0.1", "verify_ca", known)
        assert cipher("127.0.0.1", "required", unknown)
        assert cipher("127.0.0.1", "preferred", unknown)
        assert cipher("127.0.0.1", "disabled", known) == ""
        for host, mode, authorities in (
            ("127.0.0.1", "verify-full", known),
            ("localhost", "verify_ca", unknown),
        ):
            with pytest.raises(PipelineFailed, match=r"(?i)certificate.verify.failed"):
                cipher(host, mode, authorities)


def test_a_server_that_crashes_keeps_what_was_marked(mariadb: Mariadb) -> None:
    world = World(Mysql("127.0.0.1", mariadb.port, "shop", "root"), mariadb.query)
    made = world.target({"id": ID}, mode="insert", table="crashed")
    staging = world.database.quote_name(f"{_staging_of('crash')}1")
    made._create_staging(staging)
    report = _stage(world.database, staging, made._names, made._kinds, [(None, 0, 1), (None, 0, 2)])  # type: ignore[list-item]
    mariadb.crash()
    made._commit("crash", 0, staging, [report])
    mariadb.crash()
    assert made._is_done("crash", 0)
    assert sorted(mariadb.query("SELECT id FROM crashed")) == [(1,), (2,)]


# --- PostgreSQL's own ---


def test_a_lock_that_a_suspended_driver_holds_is_not_waited_for_without_end(
    servers: dict[str, tuple[Database, Query]], monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """It stands in its commit, or in its staging table, and its connection is open."""
    monkeypatch.setattr(postgres, "LOCK_WAIT_S", 1)
    database, query = servers["postgresql"]
    for name in ("t", "barnabas_batches"):
        query(f"DROP TABLE IF EXISTS {name}")
    world = World(database, query)
    made = world.target({"id": ID}, mode="insert")
    world.take(made, 0, (0, 0, 1))
    prefix = _staging_of("suspended")
    staging = database.quote_name(f"{prefix}1")
    made._create_staging(staging)
    with database.transaction() as cursor:
        assert database.mark(cursor, made._noted_as("query"), 1)
        cursor.execute(f"LOCK TABLE {staging}")
        with pytest.raises(pg8000.dbapi.Error, match="lock timeout") as raised:
            world.take(made, 1, (1, 0, 2))
        text = "".join(traceback.format_exception(raised.value))
        assert is_of_absence(text), "a server that is busy is no failed attempt"
        made._drop(prefix)
        assert "is in use, and is left for the next start" in caplog.text
    made._drop(prefix)
    with database.transaction() as cursor:
        assert database.staging_tables(cursor, prefix) == []


# --- SQLite's own ---


def test_a_value_of_another_type_is_refused_by_name(tmp_path: Path) -> None:
    place = tmp_path / "odd.db"
    with sqlite3.connect(place) as connection:
        connection.execute("CREATE TABLE t (id integer, n integer, free, at datetime)")
        connection.execute("INSERT INTO t VALUES (1, 'word', 1.5, '2024'), (2, 3, 0.1, 5)")
    connection.close()
    world = World(Sqlite(str(place)), lambda _: [])
    with pytest.raises(PipelineFailed, match="column n: word does not fit"):
        world.read("t", [ID, ID, NAME, NAME])
    kinds, rows = world.read("t", [ID, ID, NAME, NAME], is_lenient=True)
    assert kinds == ["BIGINT", "BIGINT", "STRING", "STRING"]
    assert rows == [(1, None, "1.5", "2024"), (2, 3, "0.10000000000000001", "5")]


def test_a_missing_file_is_no_empty_database(tmp_path: Path) -> None:
    with pytest.raises(PipelineFailed, match=r"no connection to sqlite:.*unable to open"):
        Sqlite(str(tmp_path / "nothing.db")).connect()
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_another_program_locks_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "BUSY_TIMEOUT_S", 0.05)
    database = Sqlite(str(tmp_path / "busy.db"), may_create=True)
    with database.transaction(), pytest.raises(Away, match="locked by another program"):
        database.transaction().__enter__()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_the_database_cannot_hold_blames_its_row(world: World, value: float) -> None:
    made = world.target({"id": ID, "x": T.DoubleType()}, key=["id"])
    rows = (0, 0, 1, value)
    if isinstance(world.database, Postgres) or (isinstance(world.database, Sqlite) and value == value):
        world.take(made, 0, rows)
        assert [str(found) for (found,) in world.query("SELECT x FROM t")] == [str(value)]
        return
    with pytest.raises(RowRefused, match=r"nan|inf"):
        world.take(made, 0, rows)
    assert world.query("SELECT * FROM t") == []


@pytest.mark.parametrize(
    ("column", "kind", "one", "other"),
    [
        ("char(5)", T.StringType(), "a", "a "),
        ("numeric(10, 1)", T.DoubleType(), 1.01, 1.04),
        ("timestamp(0)", T.TimestampNTZType(), datetime(2024, 1, 1, 0, 0, 0, 1), datetime(2024, 1, 1)),  # noqa: DTZ001 - times without a zone
        ("text COLLATE caseless", T.StringType(), "a", "A"),
        (
            "uuid",
            T.StringType(),
            "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11",
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        ),
    ],
)
def test_keys_that_are_equal_in_postgresqls_target_are_one_row(
    servers: dict[str, tuple[Database, Query]], column: str, kind: T.DataType, one: Any, other: Any
) -> None:
    database, query = servers["postgresql"]
    for name in ("t", "barnabas_batches"):
        query(f"DROP TABLE IF EXISTS {name}")
    query(
        "CREATE COLLATION IF NOT EXISTS caseless"
        " (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
    )
    query(f"CREATE TABLE t (k {column} PRIMARY KEY, n bigint)")
    world = World(database, query)
    made = world.target({"k": kind, "n": ID}, key=["k"])
    world.take(made, 0, (0, 0, one, 1), (1, 0, other, 2))
    assert [n for (n,) in query("SELECT n FROM t")] == [2]
