"""A pipeline with credentials of its own, on a cluster that is reached by SASL inside TLS and has rules."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AclOperation, AdminClient, NewTopic, ResourceType

from tests.support.secured_broker import USERS, SecuredBroker, secured_broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 20


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with secured_broker(tmp_path_factory.mktemp("secured")) as running:
        running.allow("alice", ResourceType.TOPIC, "alice-", AclOperation.ALL)
        running.allow("alice", ResourceType.GROUP, "pipeline-", AclOperation.ALL)
        running.allow("alice", ResourceType.TRANSACTIONAL_ID, "pipeline-", AclOperation.ALL)
        yield running


def document(broker: SecuredBroker, user: str, secrets: Path) -> dict[str, Any]:
    settings = broker.settings(user, f"${{file:{secrets}:{user}}}")
    return {
        "name": f"secured-{user}",
        "source": {"type": "topic", "topics": ["alice-in"], "schema": "id BIGINT", "kafka": settings},
        "sink": {"type": "topic", "topic": "alice-out", "kafka": settings},
        "errors": {"tolerance": "all", "dead_letter_topic": "alice-letters"},
        "trigger": "available_now",
    }


def consumed(broker: SecuredBroker, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({**broker.confluent(), "group.id": f"look-{topic}", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        found = [each for each in consumer.consume(count, timeout=60) if not each.error()]
        return [each.value() or b"" for each in found]
    finally:
        consumer.close()


def test_a_pipeline_runs_by_its_own_credentials_and_shows_none(
    spark: SparkSession, broker: SecuredBroker, tmp_path: Path
) -> None:
    from barnabas.pipelines.spark.context.connector import read_records
    from barnabas.pipelines.spark.context.run_context import PipelineFailed, Run
    from barnabas.pipelines.spark.runner import run_pipeline
    from barnabas.pipelines.spec.validation import load_document

    secrets = tmp_path / "secrets"
    secrets.write_text("".join(f"{user}={password}\n" for user, password in USERS.items()))
    admin = AdminClient(broker.confluent())
    for done in admin.create_topics([NewTopic("alice-in", 1)]).values():
        done.result(60)
    producer = Producer(broker.confluent())
    for number in range(ROWS):
        producer.produce("alice-in", json.dumps({"id": number}))
    producer.produce("alice-in", b"no JSON")
    assert producer.flush(60) == 0

    spec = load_document(document(broker, "alice", secrets))
    run = Run(spark, spec, broker.bootstrap, str(tmp_path / "state"))
    run_pipeline(run, lambda _: None)
    assert sorted(json.loads(each)["id"] for each in consumed(broker, "alice-out", ROWS)) == [*range(ROWS)]
    assert consumed(broker, "alice-letters", 1) == [b"no JSON"]

    plan = read_records(spec.source, run, streaming=False)._jdf.queryExecution().toString()
    written = [path.read_bytes() for path in (tmp_path / "state").rglob("*") if path.is_file()]
    assert written
    for text in (plan.encode(), json.dumps(spec.to_document()).encode(), *written):
        assert USERS["alice"].encode() not in text

    foreign = load_document(document(broker, "bob", secrets))
    others = Run(spark, foreign, broker.bootstrap, str(tmp_path / "state"))
    with pytest.raises(PipelineFailed) as refused:
        run_pipeline(others, lambda _: None)
    assert USERS["bob"] not in str(refused.value)
