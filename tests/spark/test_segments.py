"""Closed segments, read without the broker."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

import barnabas
import pyspark_barnabas
from tests.support.broker import REPOSITORY, Broker, partition_directory
from tests.support.fixtures import TopicFactory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VALUE = b"x" * 1_000


def export(broker: Broker, topic: str, target: Path) -> None:
    directory = partition_directory(broker, topic).parent
    command = [sys.executable, "-m", "barnabas", "log", "manifest", str(directory), "--topic", topic]
    command += ["--bootstrap", broker.bootstrap, "--out", str(target)]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(REPOSITORY / "src")})


def test_segments_hold_what_is_committed_and_no_more(
    spark: SparkSession, broker: Broker, new_topic: TopicFactory, tmp_path: Path
) -> None:
    topic = new_topic(segment_bytes=32_768, retention_ms=-1)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    producer.init_transactions()
    for number in range(30):
        producer.begin_transaction()
        for part in range(5):
            producer.produce(
                topic, VALUE, key=b"%d-%d" % (number, part), timestamp=1_700_000_000_000 + number
            )
        producer.flush()
        if number % 3 == 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    manifest = tmp_path / "manifest.json"
    export(broker, topic, manifest)
    read_segments: Any = barnabas.read_segments  # found at run time: the package does not import Spark
    df = read_segments(spark, str(manifest), topics=[topic])
    wire = pyspark_barnabas.read(
        spark,
        engine="python",
        bootstrap_servers=broker.bootstrap,
        subscribe=topic,
        **{"kafka.isolation.level": "read_committed"},
    )
    end = df.selectExpr("max(offset)").collect()[0][0]
    assert end > 100, "segments were closed"
    wanted = wire.where(f"offset <= {end}").orderBy("offset").collect()
    assert df.orderBy("offset").collect() == wanted
    late = pyspark_barnabas.read_segments(
        spark, str(manifest), topics=[topic], startingTimestamp=1_700_000_000_015
    )
    keys = Counter(bytes(row[0]) for row in late.select("key").collect())
    assert keys == Counter(
        key for key in (bytes(row[0]) for row in df.select("key").collect()) if int(key.split(b"-")[0]) >= 15
    )


def test_a_file_that_is_gone_is_data_loss(
    spark: SparkSession, broker: Broker, new_topic: TopicFactory, tmp_path: Path
) -> None:
    topic = new_topic(segment_bytes=32_768)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(100):
        producer.produce(topic, VALUE, key=b"%d" % number)
        producer.flush()
    manifest = tmp_path / "manifest.json"
    export(broker, topic, manifest)
    manifest.write_text(manifest.read_text().replace("00000000000000000000.log", "gone.log"))
    with pytest.raises(Exception, match="was deleted after the manifest was exported"):
        pyspark_barnabas.read_segments(spark, str(manifest)).count()
    assert pyspark_barnabas.read_segments(spark, str(manifest), failOnDataLoss=False).count() > 0
