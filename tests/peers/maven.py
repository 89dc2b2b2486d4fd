"""Jars from Maven, fetched once into a cache outside the repository, by whichever process is first."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

COPY_DEPENDENCIES = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
FETCH_TIMEOUT_S = 600.0


class PeerUnavailable(Exception):
    """Java, Maven or the jars cannot be had here; the reason is the message."""


def cache_directory() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "barnabas" / "peers"


def fetched_jars(name: str, pom: str, *options: str) -> Path:
    """The directory `name` of the cache, with the jars that the project `pom` depends on."""
    directory = cache_directory() / name
    if not directory.is_dir():
        directory.parent.mkdir(parents=True, exist_ok=True)
        with (directory.parent / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not directory.is_dir():
                _fetch(directory, pom, options)
    return directory


def _fetch(directory: Path, pom: str, options: tuple[str, ...]) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise PeerUnavailable(f"Maven is not installed, and {directory.name} is not cached")
    partial = Path(tempfile.mkdtemp(dir=directory.parent, prefix="partial-"))
    project = partial / "pom.xml"
    project.write_text(pom)
    command = [maven, "-B", "-q", "-f", str(project), COPY_DEPENDENCIES, f"-DoutputDirectory={partial}"]
    try:
        done = subprocess.run(
            [*command, *options], capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False
        )
        if done.returncode != 0:
            raise PeerUnavailable(
                f"Maven could not fetch {directory.name}: {done.stdout[-2000:]}{done.stderr[-500:]}"
            )
        partial.rename(directory)
    except subprocess.TimeoutExpired:
        raise PeerUnavailable(f"Maven did not fetch {directory.name} in {FETCH_TIMEOUT_S:.0f} s") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
