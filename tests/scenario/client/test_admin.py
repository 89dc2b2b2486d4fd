"""The admin client before real brokers: a method for each API, and an error for each resource."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.waiting import PATIENCE_S, eventually_async

from barnabas.client import Admin, Consumer, NewPartitions, NewTopic, Producer, SomeFailed, TopicPartition
from barnabas.core.errors import (
    GroupIdNotFound,
    InvalidPartitions,
    InvalidReplicationFactor,
    LogDirNotFound,
    ProducerFenced,
    TopicAlreadyExists,
    TransactionalIdNotFound,
    UnknownMemberId,
    UnknownTopicOrPartition,
)
from barnabas.protocol.config_numbers import ResourceType
from barnabas.security.credentials.scram_credential import ScramMechanism

NewName = Callable[[str], str]


async def visible(admin: Admin, *topics: str) -> None:
    """Wait until the broker's metadata has the topics: Apache Kafka answers a creation before that."""

    async def look() -> bool:
        return bool(await admin.describe_topics(topics))

    await eventually_async(look, f"topics {topics}", retried=(UnknownTopicOrPartition, SomeFailed))


async def test_topics_are_created_described_and_deleted(address: str, new_name: NewName) -> None:
    one, two, taken = new_name("one"), new_name("two"), new_name("taken")
    async with Admin(address) as admin:
        created = await admin.create_topics([NewTopic(one, 2), NewTopic(taken, 1, 1)])
        assert created[one].partitions == 2
        assert created[one].replication_factor == 1
        with pytest.raises(SomeFailed) as raised:
            await admin.create_topics([NewTopic(taken), NewTopic(two, 1), NewTopic(new_name("x"), 1, 99)])
        assert isinstance(raised.value.errors[taken], TopicAlreadyExists)
        assert {type(error) for error in raised.value.errors.values()} == {
            TopicAlreadyExists,
            InvalidReplicationFactor,
        }
        assert list(raised.value.results) == [two]
        assert "2 of 3 failed" in str(raised.value)
        with pytest.raises(TopicAlreadyExists):
            await admin.create_topics([NewTopic(taken)])
        await visible(admin, one, two, taken)
        assert {one, two, taken} <= {topic.name for topic in await admin.list_topics()}
        described = await admin.describe_topics([one, two])
        assert [len(described[name].partitions) for name in (one, two)] == [2, 1]
        with pytest.raises(UnknownTopicOrPartition, match="nowhere"):
            await admin.describe_topics(["nowhere"])
        await admin.create_partitions({one: 3, two: NewPartitions(2)})
        with pytest.raises(InvalidPartitions):
            await admin.create_partitions({one: 1})
        await admin.create_topics([NewTopic(new_name("checked"), 1)], validate_only=True)
        assert await admin.delete_topics([one, two]) == {one: None, two: None}
        with pytest.raises(UnknownTopicOrPartition, match="there is no topic nowhere"):
            await admin.delete_topics(["nowhere"])


async def test_settings_are_described_and_changed(address: str, new_name: NewName) -> None:
    topic = new_name("orders")
    resource = (ResourceType.TOPIC, topic)
    async with Admin(address) as admin:
        await admin.create_topics([NewTopic(topic, 1, configs={"retention.ms": "1000000"})])
        await visible(admin, topic)

        async def value(key: str) -> str | None:
            (setting,) = (await admin.describe_configs([resource], [key]))[resource]
            return setting.value

        async def becomes(key: str, wanted: str) -> None:
            async def look() -> bool:
                return await value(key) == wanted

            await eventually_async(look, f"{key} is {wanted}")

        await becomes("retention.ms", "1000000")
        await admin.alter_configs({resource: {"retention.ms": None, "cleanup.policy": "compact"}})
        await becomes("cleanup.policy", "compact")
        await becomes("retention.ms", "604800000")
        await admin.replace_configs(resource, {"retention.ms": "5000000"})
        await becomes("cleanup.policy", "delete")
        assert (ResourceType.TOPIC, topic) in await admin.list_config_resources([ResourceType.TOPIC])


async def test_records_are_counted_and_deleted(address: str, new_name: NewName) -> None:
    topic = new_name("orders")
    at = TopicPartition(topic, 0)
    async with Producer(address) as producer, Admin(address) as admin:
        await (await producer.send_many(topic, [b"%d" % number for number in range(10)], partition=0))
        assert await admin.list_offsets({at: -1}) == {at: 10}
        assert await admin.delete_records({at: 4}) == {at: 4}
        assert await admin.list_offsets({at: -2}) == {at: 4}
        for unknown in (99, -1):
            with pytest.raises(UnknownTopicOrPartition, match=f"{topic}-{unknown}"):
                await admin.delete_records({TopicPartition(topic, unknown): 2})
        directories = await admin.describe_log_dirs()
        replicas = [
            replica
            for broker in directories.values()
            for log_dir in broker.values()
            for replica in log_dir.replicas
        ]
        assert at in replicas


async def test_the_cluster_describes_itself(address: str) -> None:
    async with Admin(address) as admin:
        described = await admin.describe_cluster()
        assert len(described.brokers) == 1
        assert described.controller_id == described.brokers[0].broker_id
        assert str(described.brokers[0].address) == address
        assert (await admin.describe_features())["transaction.version"] == 2
        assert await admin.list_partition_reassignments() == {}


async def test_leaders_are_elected(address: str, new_name: NewName) -> None:
    topic = new_name("orders")
    at = TopicPartition(topic, 0)
    async with Admin(address) as admin:
        await admin.create_topics([NewTopic(topic, 1)])
        await visible(admin, topic)
        assert await admin.elect_leaders([at]) == {at: None}
        with pytest.raises(UnknownTopicOrPartition):
            await admin.elect_leaders([TopicPartition("nowhere", 0)])


async def test_groups_have_offsets(address: str, new_name: NewName) -> None:
    topic, group = new_name("orders"), new_name("group")
    at, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with Admin(address) as admin:
        await admin.create_topics([NewTopic(topic, 2)])
        await visible(admin, topic)
        await admin.alter_group_offsets(group, {at: 5, other: 7})
        assert await admin.list_group_offsets(group) == {at: 5, other: 7}
        assert group in {each.group_id for each in await admin.list_groups()}
        described = await admin.describe_groups([group])
        assert described[group].members == ()
        assert await admin.delete_group_offsets(group, [other]) == {other: None}
        assert await admin.list_group_offsets(group) == {at: 5}
        with pytest.raises(SomeFailed) as raised:
            await admin.delete_groups([group, "nobody"])
        assert isinstance(raised.value.errors["nobody"], GroupIdNotFound)


async def test_static_members_are_removed(address: str, new_name: NewName) -> None:
    """A static member of the classic protocol stays in its group when its consumer is closed."""
    topic, group = new_name("orders"), new_name("group")
    static: dict[str, Any] = {"group_instance_id": "one", "group_protocol": "classic"}
    async with Admin(address) as admin:
        await admin.create_topics([NewTopic(topic, 1)])
        await admin.wait_until_known(topic)
        async with Consumer(address, group=group, topics=[topic], **static) as consumer:
            async with asyncio.timeout(PATIENCE_S):
                while not consumer.assignment:
                    await consumer.poll(timeout_ms=100)
        (member,) = (await admin.describe_groups([group]))[group].members
        assert member.instance_id == "one"
        with pytest.raises(SomeFailed) as raised:
            await admin.remove_group_members(group, ["one", "two"])
        assert raised.value.results == {"one": None}
        assert isinstance(raised.value.errors["two"], UnknownMemberId)
        assert (await admin.describe_groups([group]))[group].members == ()


async def test_replicas_move_to_directories_that_there_are(address: str, new_name: NewName) -> None:
    topic = new_name("orders")
    at = TopicPartition(topic, 0)
    async with Admin(address) as admin:
        await admin.create_topics([NewTopic(topic, 1)])
        await admin.wait_until_known(topic)
        ((broker_id, directories),) = (await admin.describe_log_dirs()).items()
        (path,) = directories
        assert await admin.alter_replica_log_dirs(broker_id, {at: path}) == {at: None}
        with pytest.raises(LogDirNotFound):
            await admin.alter_replica_log_dirs(broker_id, {at: "/no/such/directory"})


async def test_users_and_quotas_are_kept(address: str, new_name: NewName) -> None:
    user = new_name("user")
    async with Admin(address) as admin:
        await admin.upsert_user_scram_credential(user, "secret", ScramMechanism.SHA_256)

        # A broker of Apache Kafka learns of a change some moments after the controller has answered.
        async def mechanisms() -> dict[str, int] | None:
            listed = await admin.describe_user_scram_credentials()
            return {each.name: each.iterations for each in listed}.get(user)

        assert await eventually_async(mechanisms, "the user") == {"SCRAM-SHA-256": 8_192}
        await admin.delete_user_scram_credentials(user, [ScramMechanism.SHA_256])
        entity = {"user": user}
        await admin.alter_client_quotas(entity, {"producer_byte_rate": 1_000_000.0})
        (found,) = await eventually_async(lambda: admin.describe_client_quotas(entity), "the quota")
        assert found.quotas == {"producer_byte_rate": 1_000_000.0}
        await admin.alter_client_quotas(entity, {"producer_byte_rate": None})

        async def is_gone() -> bool:
            return not await admin.describe_client_quotas(entity)

        assert await eventually_async(is_gone, "the removal of the quota")


async def test_transactions_are_described_and_fenced(address: str, new_name: NewName) -> None:
    topic, name = new_name("orders"), new_name("txn")
    at = TopicPartition(topic, 0)
    async with Producer(address, transactional_id=name) as producer, Admin(address) as admin:
        await producer.begin_transaction()
        await producer.publish(topic, b"v", partition=0)
        (listed,) = [each for each in await admin.list_transactions() if each.transactional_id == name]
        assert listed.state == "Ongoing"
        assert (await admin.describe_transactions([name]))[name].partitions == (at,)
        (open_in,) = (await admin.describe_producers([at]))[at]
        assert open_in.producer_id == listed.producer_id
        assert await admin.find_hanging_transactions([topic]) == [], "its coordinator ends it"
        await admin.fence_producers([name])
        with pytest.raises(ProducerFenced):
            await producer.commit_transaction()
        with pytest.raises(TransactionalIdNotFound):
            await admin.describe_transactions(["nobody"])
