"""Kill matrix of the database sink: drivers die by SIGKILL or come back, and each row is there once.

A process takes one micro-batch with the sink's own code and is killed at a point. Its successor takes the
batch again, and another one. The database's own answer must be exactly the rows of the input.
"""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")
pytest.importorskip("pg8000", reason="pg8000 is not installed")

from tests.scenario.pipelines.database_driver import POINTS, rows_of, take, text_of
from tests.support.broker import REPOSITORY
from tests.support.mariadb import Mariadb, run_mariadb
from tests.support.postgres import Postgres, run_postgres
from tests.support.waiting import eventually

pytestmark = [pytest.mark.kill_matrix, pytest.mark.timeout(600)]

FIRST, SECOND, THIRD = [*range(6)], [4, 5, 6, 7], [0, 7, 8]
DELETED = [1, 99]
PATIENCE_S = 240
MODES = pytest.mark.parametrize("is_upsert", [False, True], ids=["insert", "upsert"])
HOLDS_LOCKS = ("mid-staging", "in-commit")
"""Points at which a driver is in a transaction, for whose end a successor waits."""


class Place:
    """A table of one test."""

    def __init__(self, url: str, query: Callable[[str], Any], *, is_upsert: bool, row_bytes: int) -> None:
        self.url, self.query = url, query
        self.table = f"orders_{uuid4().hex[:12]}"
        self.is_upsert, self.row_bytes = is_upsert, row_bytes

    def batch(self, number: int) -> list[tuple[Any, ...]]:
        ids = (FIRST, SECOND, THIRD)[number]
        deleted = DELETED if number == 1 and self.is_upsert else ()
        return rows_of(ids, number, self.row_bytes, deleted)

    def take(self, number: int, at: Callable[[str], None] = lambda _: None) -> None:
        take(self.url, self.table, number, self.batch(number), is_upsert=self.is_upsert, at=at)

    def rows(self) -> list[tuple[Any, ...]]:
        return sorted(map(tuple, self.query(f"SELECT id, text, batch FROM {self.table}")))

    def expected(self) -> list[tuple[Any, ...]]:
        """The input's rows: in upsert mode, the last of each id that was not deleted after it."""
        found: dict[Any, tuple[Any, ...]] = {}
        for number in range(3):
            for _, is_deleted, at, text, batch in self.batch(number):
                if is_deleted:
                    found.pop(at, None)
                else:
                    found[at if self.is_upsert else (at, batch)] = (at, text, batch)
        return sorted(found.values())


class Process:
    """A driver of the second batch that stops at a point."""

    def __init__(self, place: Place, directory: Path, point: str, *, dies: bool) -> None:
        directory.mkdir()
        self._directory = directory
        given = {
            "url": place.url, "table": place.table, "directory": str(directory), "point": point,
            "dies": dies, "batch": 1, "rows": place.batch(1), "is_upsert": place.is_upsert,
        }  # fmt: skip
        (directory / "given.json").write_text(json.dumps(given))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.scenario.pipelines.database_driver", str(directory / "given.json")],
            env={"PYTHONPATH": f"{REPOSITORY / 'src'}:{REPOSITORY}", "PATH": "/usr/bin:/bin"},
            stderr=subprocess.PIPE,
        )

    def wait_killed(self) -> None:
        _, errors = self._process.communicate(timeout=PATIENCE_S)
        assert self._process.returncode == -signal.SIGKILL, errors.decode()

    def wait_reached(self) -> None:
        def stands() -> bool:
            assert self._process.poll() is None, "the driver came to its end"
            return (self._directory / "reached").exists()

        eventually(stands, timeout_s=PATIENCE_S)

    def release(self) -> int:
        """Exit code of the driver, which goes on to its end."""
        (self._directory / "released").touch()
        self._process.communicate(timeout=PATIENCE_S)
        return self._process.returncode

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture(scope="module")
def mariadb() -> Iterator[Mariadb]:
    with run_mariadb() as running:
        yield running


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with run_postgres() as running:
        yield running


@pytest.fixture(params=["postgresql", "mysql", "sqlite"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Callable[[str], Any]]:
    if request.param == "postgresql":
        server = request.getfixturevalue("postgres")
        return f"{server.url.replace('://', '://postgres@')}", server.query
    if request.param == "mysql":
        running = request.getfixturevalue("mariadb")
        return running.url, running.query
    file = tmp_path / "shop.db"

    def query(sql: str) -> list[Any]:
        with closing(sqlite3.connect(file, timeout=60)) as connection, connection:
            return connection.execute(sql).fetchall()

    return f"sqlite:{file}", query


@pytest.mark.parametrize("row_bytes", [100, 1_000_000])
@pytest.mark.parametrize("point", POINTS)
@MODES
def test_a_driver_killed_anywhere_leaves_every_row_once(
    opened: tuple[str, Callable[[str], Any]], tmp_path: Path, is_upsert: bool, point: str, row_bytes: int
) -> None:
    place = Place(*opened, is_upsert=is_upsert, row_bytes=row_bytes)
    place.take(0)
    Process(place, tmp_path / "killed", point, dies=True).wait_killed()
    place.take(1)
    place.take(2)
    assert place.rows() == place.expected()


@pytest.mark.parametrize("row_bytes", [100, 1_000_000])
@pytest.mark.parametrize("point", POINTS)
@MODES
def test_a_driver_thought_dead_changes_nothing_when_it_goes_on(
    opened: tuple[str, Callable[[str], Any]], tmp_path: Path, is_upsert: bool, point: str, row_bytes: int
) -> None:
    place = Place(*opened, is_upsert=is_upsert, row_bytes=row_bytes)
    place.take(0)
    zombie = Process(place, tmp_path / "zombie", point, dies=False)

    def succeed() -> None:
        place.take(1)
        place.take(2)

    def succeed_beside_it() -> None:
        with suppress(Exception):  # it has waited too long for the zombie; it runs again below
            succeed()

    try:
        zombie.wait_reached()
        if point in HOLDS_LOCKS:
            beside = threading.Thread(target=succeed_beside_it)
            beside.start()
            zombie.release()
            beside.join()
        succeed()
        zombie.release()
    finally:
        zombie.kill()
    assert place.rows() == place.expected()
    succeed()
    assert place.rows() == place.expected()


@pytest.mark.parametrize("row_bytes", [100, 1_000_000])
@MODES
def test_a_foreign_writer_before_the_commit_costs_no_row(
    opened: tuple[str, Callable[[str], Any]], is_upsert: bool, row_bytes: int
) -> None:
    """It adds a row and changes one that the batch has too."""
    place = Place(*opened, is_upsert=is_upsert, row_bytes=row_bytes)
    place.take(0)

    def at(point: str) -> None:
        if point == "staged" and not place.query(f"SELECT id FROM {place.table} WHERE id = 500"):
            place.query(f"INSERT INTO {place.table} (id, text, batch) VALUES (500, 'foreign', 7)")
            place.query(f"UPDATE {place.table} SET text = 'foreign' WHERE id = 4")

    place.take(1, at)
    place.take(2)
    changed = [(4, text_of(0, 4, row_bytes), 0), (4, "foreign", 0)]
    wanted = [changed[1] if row == changed[0] else row for row in place.expected()]
    assert place.rows() == sorted([*wanted, (500, "foreign", 7)])
