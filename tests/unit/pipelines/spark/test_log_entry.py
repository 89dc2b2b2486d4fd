"""An entry of a log that several drivers write to: its number is taken by one of them."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

from barnabas.pipelines.spark.state.log_entry import link_entry

WRITERS = 8


def race(path: Path) -> list[str]:
    """Texts whose writers were answered that they have the entry."""
    together = threading.Barrier(WRITERS)
    winners: list[str] = []

    def write(number: int) -> None:
        text = f"v1\nwriter {number}"
        together.wait()
        if link_entry(path, text):
            winners.append(text)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return winners


def no_links(*_: object) -> None:
    raise OSError(errno.EPERM, os.strerror(errno.EPERM))


@pytest.mark.parametrize("has_links", [True, False])
def test_of_writers_that_want_the_same_number_one_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_links: bool
) -> None:
    if not has_links:
        monkeypatch.setattr(os, "link", no_links)
    for number in range(20):
        path = tmp_path / "log" / str(number)
        (text,) = race(path)
        assert path.read_text() == text
    assert sorted(each.name for each in (tmp_path / "log").iterdir()) == sorted(map(str, range(20)))


def test_an_entry_that_is_there_is_never_replaced(tmp_path: Path) -> None:
    assert link_entry(tmp_path / "0", "first")
    assert not link_entry(tmp_path / "0", "second")
    assert (tmp_path / "0").read_text() == "first"
