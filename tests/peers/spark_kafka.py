"""Spark's own Kafka connector, from Maven: what `format("barnabas")` is compared with.

The jars are fetched once into a cache outside the repository. Connector and Spark should have the
same version; a registry may lag behind, so the newest published versions that load into this Spark
are pinned here one by one, without what Spark itself already ships.
"""

from __future__ import annotations

from pathlib import Path

from tests.peers.maven import fetched_jars

CONNECTOR_VERSION = "4.2.0"
ARTIFACTS = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", CONNECTOR_VERSION),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.1.0-preview1"),
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.13.1"),
)


def connector_jars() -> list[Path]:
    """The connector and what it needs; fetched on the first call."""
    return sorted(fetched_jars(f"spark-kafka-{CONNECTOR_VERSION}", _pom()).glob("*.jar"))


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
