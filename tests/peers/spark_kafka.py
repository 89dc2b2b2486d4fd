"""Spark's own Kafka connector, from Maven: what `format("barnabas")` is compared with.

The jars are fetched once into a cache outside the repository. Connector and Spark should have the
same version; a registry may lag behind, so the newest published versions that load into this Spark
are pinned here one by one, without what Spark itself already ships.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.peers.kafka import COPY_DEPENDENCIES, FETCH_TIMEOUT_S, PeerUnavailable, cache_directory

CONNECTOR_VERSION = "4.2.0"
ARTIFACTS = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", CONNECTOR_VERSION),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.1.0-preview1"),
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.13.1"),
)


def connector_jars() -> list[Path]:
    """The connector and what it needs; fetched on the first call."""
    directory = cache_directory() / f"spark-kafka-{CONNECTOR_VERSION}"
    if not directory.is_dir():
        directory.parent.mkdir(parents=True, exist_ok=True)
        with (directory.parent / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not directory.is_dir():
                _fetch_jars(directory)
    return sorted(directory.glob("*.jar"))


def _fetch_jars(directory: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise PeerUnavailable("Maven is not installed, and Spark's Kafka connector is not cached")
    partial = Path(tempfile.mkdtemp(dir=directory.parent, prefix="partial-"))
    pom = partial / "pom.xml"
    pom.write_text(_pom())
    command = [maven, "-B", "-q", "-f", str(pom), COPY_DEPENDENCIES, f"-DoutputDirectory={partial}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False)
        if done.returncode != 0:
            raise PeerUnavailable(f"Maven could not fetch Spark's Kafka connector: {done.stdout[-2000:]}")
        partial.rename(directory)
    except subprocess.TimeoutExpired:
        raise PeerUnavailable(f"Maven did not fetch the connector in {FETCH_TIMEOUT_S:.0f} s") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _pom() -> str:
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
        "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
        "</dependency>"
        for group, artifact, version in ARTIFACTS
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>barnabas</groupId><artifactId>spark-kafka</artifactId><version>1</version>"
        f"<packaging>pom</packaging><dependencies>{dependencies}</dependencies></project>"
    )
