"""Class data sharing: an archive of Spark's classes that the JVM maps instead of loading jars.

A start of Spark mostly loads classes: some ten thousand are found in jars, verified and linked each time. A
JVM can keep them in an archive in memory layout (class data sharing). The first driver on a machine writes
the archive into the user's cache when it ends; later drivers start from it. The JVM itself checks that an
archive fits its version and class path, and otherwise starts without it.

The JVM writes the header last. So a truncated archive has no header, and is written again.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from barnabas.pipelines.spark.jvm.spark_home import cache_directory

_DYNAMIC_ARCHIVE: Final = 0xF00BABA8
"""Magic number of an archive's header, in native byte order."""
QUIET: Final = "-Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
"""Without an archive the JVM would warn on standard output, to no use."""


def sharing_options(settings: Mapping[str, str], spark_version: str) -> str:
    """JVM options for the driver on this machine; empty where no archive can be kept."""
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
    """Path of the archive, separate for each Java, Spark and class path."""
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
    """Identity of the Java installation: its release file, or else its path."""
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if found is None:
        return ""
    java = Path(found).resolve()
    release = java.parent.parent / "release"
    return release.read_text() if release.is_file() else str(java)
