from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

import pyspark

from barnabas.pipelines.spark.jvm.spark_home import unzipped_home


@pytest.fixture(autouse=True)
def _cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_a_worker_imports_pyspark_from_where_its_bytecode_is() -> None:
    home = unzipped_home()
    assert home is not None
    assert (home / "bin" / "spark-submit").is_file()
    assert next((home / "jars").glob("spark-core_*.jar")).is_file()
    # As Spark puts its PYTHONPATH together.
    path = os.pathsep.join(str(each) for each in sorted((home / "python" / "lib").iterdir(), reverse=True))
    program = "import pyspark.daemon, py4j; print(pyspark.daemon.__cached__); print(py4j.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    cached, bridge = map(Path, done.stdout.split())
    assert home in cached.parents
    assert home in bridge.parents
    assert cached.resolve().parents[1] == Path(pyspark.__file__).resolve().parent
    assert cached.is_file()


def test_it_is_made_once_and_mended_if_it_is_broken(tmp_path: Path) -> None:
    home = unzipped_home()
    assert home is not None
    made = (home / "bin").lstat().st_ino
    assert unzipped_home() == home
    assert (home / "bin").lstat().st_ino == made
    (home / "jars").unlink()
    assert unzipped_home() == home
    assert (home / "jars").is_dir()
    assert [each.name for each in (tmp_path / "barnabas").iterdir()] == [home.name], "nothing is left over"


def test_where_it_cannot_be_made_there_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert unzipped_home() is None
