"""Settings of topics that a start finds only on disk: never settings that delete kept records."""

from __future__ import annotations

import random
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from barnabas.cluster.stores import topics as store
from barnabas.cluster.znodes.layout import ConfigZnode
from barnabas.config.dynamic.repository import KEEP_EVERYTHING
from barnabas.core.ids import Uuid
from barnabas.storage.directory.kraft_metadata import KraftMetadata, UnreadableMetadata
from tests.unit.controller.support import BROKER_ID, Admin

TOPIC_ID = Uuid.generate(random.Random(1))
OTHER_ID = Uuid.generate(random.Random(2))
DAY_MS = 86_400_000


def kraft(**topics: dict[str, str]) -> KraftMetadata:
    return KraftMetadata("/data", dict.fromkeys(topics, TOPIC_ID), dict(topics))


async def overrides(admin: Admin, topic: str) -> dict[str, str] | None:
    return (await store.read_topics(admin.znodes))[topic].config


async def test_topics_keep_the_settings_that_kafka_had(admin: Admin) -> None:
    settings = {"retention.ms": "-1", "cleanup.policy": "compact", "segment.bytes": "1048576"}
    admin.disk.metadata = kraft(ledger=settings, plain={})
    admin.disk.add("ledger", 0, TOPIC_ID)
    admin.disk.add("plain", 0, TOPIC_ID)
    await admin.restart()
    assert await overrides(admin, "ledger") == settings
    assert await overrides(admin, "plain") == {}
    assert admin.led("ledger").log.config.is_compacted
    assert admin.disk.metadata_adopted is admin.disk.metadata
    await admin.restart()
    assert admin.led("ledger").log.config.retention_ms == -1


async def test_nothing_is_deleted_of_a_topic_whose_settings_are_unknown(
    admin: Admin, caplog: pytest.LogCaptureFixture
) -> None:
    admin.disk.add("ledger", 0, TOPIC_ID)
    await admin.restart()
    assert await overrides(admin, "ledger") == KEEP_EVERYTHING
    config = admin.led("ledger").log.config
    assert (config.retention_ms, config.retention_bytes, config.is_compacted) == (-1, -1, False)
    assert "nothing is deleted from ledger" in caplog.text
    assert "barnabas config set topic" in caplog.text


async def test_settings_of_another_topic_of_that_name_do_not_count(admin: Admin) -> None:
    admin.disk.metadata = kraft(ledger={"retention.ms": "1000"})
    admin.disk.add("ledger", 0, OTHER_ID)
    await admin.restart()
    assert await overrides(admin, "ledger") == KEEP_EVERYTHING


async def test_damaged_metadata_keeps_everything_and_says_why(
    admin: Admin, caplog: pytest.LogCaptureFixture
) -> None:
    admin.disk.metadata = UnreadableMetadata("a bit is wrong")
    admin.disk.add("ledger", 0, TOPIC_ID)
    await admin.restart()
    assert await overrides(admin, "ledger") == KEEP_EVERYTHING
    assert "a bit is wrong" in caplog.text


async def test_topics_of_the_coordinators_are_compacted(admin: Admin) -> None:
    admin.disk.add("__consumer_offsets", 0, TOPIC_ID)
    await admin.restart()
    assert await overrides(admin, "__consumer_offsets") == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
    }


async def test_settings_that_only_kafka_has_are_named(admin: Admin, caplog: pytest.LogCaptureFixture) -> None:
    admin.disk.metadata = kraft(tiered={"remote.storage.enable": "true", "retention.ms": "-1"})
    admin.disk.add("tiered", 0, TOPIC_ID)
    await admin.restart()
    assert await overrides(admin, "tiered") == {"retention.ms": "-1"}
    assert "topic tiered: settings without effect here are dropped: remote.storage.enable" in caplog.text


async def test_inherited_settings_of_brokers_are_taken_over(
    admin: Admin, caplog: pytest.LogCaptureFixture
) -> None:
    metadata = admin.disk.metadata = kraft(plain={})
    metadata.broker_configs = {
        "": {"log.retention.ms": "-1", "log.cleaner.threads": "2"},
        str(BROKER_ID): {"message.max.bytes": "2000000"},
        "99": {"log.retention.ms": "1"},
    }
    admin.disk.add("plain", 0, TOPIC_ID)
    await admin.restart()
    config = admin.led("plain").log.config
    assert (config.retention_ms, config.max_message_bytes) == (-1, 2_000_000)
    assert "not imported: log.cleaner.threads" in caplog.text
    await admin.restart()
    assert admin.led("plain").log.config.retention_ms == -1


async def test_settings_of_brokers_that_the_store_has_stay(admin: Admin) -> None:
    await store.change_config(
        admin.znodes, ConfigZnode.BROKERS, "<default>", lambda _: {"log.retention.ms": "5000"}
    )
    metadata = admin.disk.metadata = kraft(plain={})
    metadata.broker_configs = {"": {"log.retention.ms": "1"}}
    admin.disk.add("plain", 0, TOPIC_ID)
    await admin.restart()
    assert admin.led("plain").log.config.retention_ms == 5_000


async def test_the_default_retention_does_not_delete_what_kafka_kept(
    admin: Admin, caplog: pytest.LogCaptureFixture
) -> None:
    """Kafka's server.properties may have had another one, and it is in no log."""
    admin.disk.metadata = kraft(old={"segment.bytes": "1048576"}, young={}, told={"retention.ms": "1000"})
    for topic, age_ms in (("old", 8 * DAY_MS), ("young", DAY_MS), ("told", 8 * DAY_MS)):
        admin.disk.add(topic, 0, TOPIC_ID)
        admin.disk.ages_ms[topic] = age_ms
    await admin.restart()
    assert await overrides(admin, "old") == {"segment.bytes": "1048576", "retention.ms": "-1"}
    assert await overrides(admin, "young") == {}
    assert await overrides(admin, "told") == {"retention.ms": "1000"}
    assert "nothing is deleted by age from old:" in caplog.text


async def test_a_retention_that_the_broker_was_given_counts(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        admin = Admin(tmp_path, stack, {"log.retention.hours": "1"})
        admin.disk.metadata = kraft(old={})
        admin.disk.add("old", 0, TOPIC_ID)
        admin.disk.ages_ms["old"] = DAY_MS
        await admin.start()
        assert await overrides(admin, "old") == {}


async def test_ids_that_kafka_gave_to_producers_are_never_given_out(admin: Admin) -> None:
    metadata = admin.disk.metadata = kraft(plain={})
    metadata.next_producer_id = 7_000
    admin.disk.add("plain", 0, TOPIC_ID)
    admin.disk.producer_id_seen = 3
    await admin.restart()
    assert (await store.allocate_producer_ids(admin.znodes, BROKER_ID)).first >= 7_000
