"""An archive of Spark's classes, which a JVM maps in place of reading them from their jars.

Starting Spark is in good part loading classes: some ten thousand are found in jars, checked and linked, each
time anew. A JVM can keep them as they lie in its memory (class data sharing). The first driver on a machine
writes the archive when it ends, into the user's cache; all that follow start from it. The JVM checks
by itself that an archive fits its version and its class path, and goes without where it does not.

Its header is written last, so one that was cut short has none, and is written again.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from barnabas.pipelines.spark.spark_home import cache_directory

_DYNAMIC_ARCHIVE: Final = 0xF00BABA8
"""What the header of an archive begins with, in the machine's own byte order."""
QUIET: Final = "-Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
"""A JVM that goes without says so in vain, on standard output."""


def sharing_options(settings: Mapping[str, str], spark_version: str) -> str:
    """For the driver's JVM on this machine; nothing where there is no place for an archive."""
    archive = archive_path(settings, spark_version)
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
    except OSError:
        return ""
    if any(letter in str(archive) for letter in " \"'"):
        return ""  # Spark splits its options at spaces
    if is_whole(archive):
        return f"-XX:SharedArchiveFile={archive} {QUIET}"
    if not os.access(archive.parent, os.W_OK):
        return ""
    return f"-XX:ArchiveClassesAtExit={archive} {QUIET}"


def archive_path(settings: Mapping[str, str], spark_version: str) -> Path:
    """Another one for each Java, Spark and class path."""
    parts = (
        _java(),
        os.environ.get("SPARK_HOME", sys.prefix),
        settings.get("spark.driver.extraClassPath", ""),
    )
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
    return cache_directory() / f"spark-{spark_version}-{digest}.jsa"


def is_whole(archive: Path) -> bool:
    try:
        with archive.open("rb") as file:
            return int.from_bytes(file.read(4), sys.byteorder) == _DYNAMIC_ARCHIVE
    except OSError:
        return False


def _java() -> str:
    """What tells this Java from others: the file that says its version, or at least where it is."""
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if found is None:
        return ""
    java = Path(found).resolve()
    release = java.parent.parent / "release"
    return release.read_text() if release.is_file() else str(java)
