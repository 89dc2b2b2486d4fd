"""Unzipped Spark home, whose Python is the installed package instead of a zip of sources.

Spark puts `python/lib/pyspark.zip` of its home first on the path of its Python processes, so that executors
have PySpark anywhere. A zip keeps no bytecode. Each of the dozen processes before the first micro-batch
compiles some 250 modules of PySpark again. That takes half a second of CPU and more. On a busy machine,
workers then miss the ten seconds that Spark gives them to connect back.

A single machine needs no shipping. There Spark gets a home in the user's cache with links to everything in
the installed one. Directories with the packages replace the zips, under the same names.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from contextlib import suppress
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

LINKED = ("bin", "jars", "sbin", "conf")


def cache_directory() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "barnabas"


def unzipped_home() -> Path | None:
    """The home, created if missing; None if Spark has another layout or the home cannot be created."""
    installed, bridge = _package("pyspark"), _package("py4j")
    if installed is None or bridge is None:
        return None
    zips = sorted(each.name for each in (installed / "python" / "lib").glob("*.zip"))
    bridges = [name for name in zips if name.startswith("py4j-")]
    if not (installed / "bin" / "spark-submit").is_file() or "pyspark.zip" not in zips or len(bridges) != 1:
        return None
    digest = hashlib.sha256(f"{installed}\n{bridge}\n{zips}".encode()).hexdigest()[:12]
    home = cache_directory() / f"spark-{version('pyspark')}-{digest}"
    links = {Path(name): installed / name for name in LINKED if (installed / name).exists()}
    links[Path("python", "lib", "pyspark.zip", "pyspark")] = installed
    links[Path("python", "lib", bridges[0], "py4j")] = bridge
    if not _is_complete(home, links):
        with suppress(OSError):
            _make(home, links)
    return home if _is_complete(home, links) else None


def _package(name: str) -> Path | None:
    found = find_spec(name)
    if found is None or not found.submodule_search_locations:
        return None
    return Path(found.submodule_search_locations[0]).resolve()


def _is_complete(home: Path, links: dict[Path, Path]) -> bool:
    return all((home / name).resolve() == target for name, target in links.items())


def _make(home: Path, links: dict[Path, Path]) -> None:
    """Create the home atomically: another process may create an equal one at the same time.

    An incomplete home has links to files that no longer exist.
    """
    home.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=f"{home.name}.", dir=home.parent))
    try:
        for name, target in links.items():
            (made / name).parent.mkdir(parents=True, exist_ok=True)
            (made / name).symlink_to(target)
        shutil.rmtree(home, ignore_errors=True)
        with suppress(OSError):
            made.rename(home)
    finally:
        shutil.rmtree(made, ignore_errors=True)
