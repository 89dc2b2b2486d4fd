"""Settings that one broker changes reach the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from barnabas.administration.config_notifications import ConfigNotifications
from barnabas.cluster.coordination.contract import Stat
from barnabas.cluster.embedded.session import EmbeddedStore
from barnabas.cluster.stores.change_notifications import NOTIFICATION_LIFETIME_MS
from barnabas.cluster.stores.config_store import ZnodeConfigStore
from barnabas.cluster.stores.registration import make_persistent_paths
from barnabas.cluster.stores.topics import create_topic, read_config
from barnabas.cluster.znodes.notifications import ConfigChangeZnode
from barnabas.config.broker_config import BrokerConfig
from barnabas.config.dynamic.changes import Change
from barnabas.config.dynamic.client_entities import (
    CLIENTS,
    USERS,
    EntityPart,
    EntityPath,
    Values,
    ValuesChange,
    user,
)
from barnabas.config.dynamic.repository import ConfigRepository, ConfigResource
from barnabas.core.errors import UnknownTopicOrPartition
from barnabas.core.files import RealFiles
from barnabas.core.ids import BrokerId, Uuid
from barnabas.core.scheduler import InlineBackground
from barnabas.protocol.config_numbers import ConfigOperation, ResourceType
from tests.support.embedded_sessions import expire_session, renew_session
from tests.support.manual_time import ManualClock, ManualScheduler

TOPIC = ConfigResource(ResourceType.TOPIC, "t")
ALL_BROKERS = ConfigResource(ResourceType.BROKER, "")
GROUP = ConfigResource(ResourceType.GROUP, "g")


class AheadClock(ManualClock):
    """The wall clock of a broker that is an hour ahead of the store's."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock

    def now_ms(self) -> int:
        return self._clock.now_ms() + 3_600_000

    def monotonic_ms(self) -> float:
        return self._clock.monotonic_ms()


class Broker:
    def __init__(self, store: EmbeddedStore, broker_id: int, clock: ManualClock) -> None:
        self.znodes = store.connect()
        self.configs = ConfigRepository(
            ZnodeConfigStore(self.znodes), BrokerId(broker_id), BrokerConfig.load({})
        )
        self.notifications = ConfigNotifications(self.znodes, self.configs, clock, ManualScheduler(clock))

    async def start(self) -> None:
        await self.configs.load()
        await self.notifications.start()

    def retention_ms(self) -> int:
        return self.configs.topic_config("t").retention_ms


class Brokers:
    def __init__(self, path: Path) -> None:
        self.clock = ManualClock()
        self.store = EmbeddedStore.open(RealFiles(), str(path), self.clock, InlineBackground())
        self.one, self.two = (Broker(self.store, broker_id, self.clock) for broker_id in (1, 2))

    async def settle(self) -> None:
        for _ in range(30):
            await asyncio.sleep(0)


@pytest.fixture
async def brokers(tmp_path: Path) -> AsyncIterator[Brokers]:
    brokers = Brokers(tmp_path)
    znodes = brokers.one.znodes
    await make_persistent_paths(znodes)
    await create_topic(znodes, "t", Uuid(bytes(range(16))), {0: [1]}, {"retention.ms": "1"})
    for broker in (brokers.one, brokers.two):
        await broker.start()
    yield brokers
    for broker in (brokers.one, brokers.two):
        await broker.notifications.close()
    await brokers.store.close()


def setting(name: str, value: str) -> list[Change]:
    return [Change(name, ConfigOperation.SET, value)]


async def test_a_change_reaches_every_broker_again_and_again(brokers: Brokers) -> None:
    heard: list[str] = []
    brokers.two.configs.on_topic_change(lambda topic, _: heard.append(topic))
    for value in (100, 200, 300):
        await brokers.one.configs.change(TOPIC, setting("retention.ms", str(value)))
        await brokers.settle()
        assert brokers.two.retention_ms() == value
    assert heard == ["t"] * 3
    await brokers.two.configs.change(TOPIC, setting("retention.ms", "400"))
    await brokers.settle()
    assert brokers.one.retention_ms() == 400


async def test_settings_of_all_brokers_reach_every_broker(brokers: Brokers) -> None:
    heard: list[str] = []
    brokers.two.configs.on_broker_change(heard.extend)
    await brokers.one.configs.change(ALL_BROKERS, setting("log.segment.bytes", "2000000"))
    await brokers.settle()
    assert brokers.two.configs.broker_config.values["log.segment.bytes"] == 2_000_000
    assert brokers.two.configs.topic_config("t").segment_bytes == 2_000_000
    assert heard == ["log.segment.bytes"]


async def test_what_is_set_for_users_and_client_ids_reaches_every_broker(brokers: Brokers) -> None:
    heard: list[tuple[EntityPath, Values]] = []
    brokers.two.configs.clients.on_change(lambda path, values: heard.append((path, values)))
    alices_app = (EntityPart(USERS, "alice/~"), EntityPart(CLIENTS, None))
    await brokers.one.configs.clients.change(alices_app, lambda values: {**values, "a": "1"})
    await brokers.settle()
    assert heard == [(alices_app, {"a": "1"})]
    assert brokers.two.configs.clients.get(alices_app) == {"a": "1"}
    assert "/config/users/alice%2F%7E/clients/<default>" in [
        f"/config/users/{user}/clients/{client}"
        for user in await brokers.one.znodes.children("/config/users")
        for client in await brokers.one.znodes.children(f"/config/users/{user}/clients")
    ]
    late = Broker(brokers.store, 3, brokers.clock)
    await late.start()
    assert dict(late.configs.clients) == {alices_app: {"a": "1"}}
    await late.notifications.close()
    await brokers.two.configs.clients.change(alices_app, lambda _: {})
    await brokers.settle()
    assert dict(brokers.one.configs.clients) == {}


async def test_two_brokers_that_change_a_user_at_once_leave_each_other_alone(brokers: Brokers) -> None:
    """Different requests own the keys of a user: credentials and quotas."""
    alice = user("alice")

    def adding(key: str) -> ValuesChange:
        return lambda values: {**values, key: "1"}

    await asyncio.gather(
        *(
            broker.configs.clients.change(alice, adding(key))
            for key, broker in (
                ("a", brokers.one),
                ("b", brokers.two),
                ("c", brokers.one),
                ("d", brokers.two),
            )
        )
    )
    await brokers.settle()
    for broker in (brokers.one, brokers.two):
        assert broker.configs.clients.get(alice) == dict.fromkeys("abcd", "1")


async def test_a_spoilt_user_changes_nothing(brokers: Brokers) -> None:
    alice = user("alice")
    await brokers.one.configs.clients.change(alice, lambda _: {"a": "1"})
    await brokers.settle()
    await brokers.one.znodes.set("/config/users/alice", b"no json")
    await brokers.one.znodes.create(
        ConfigChangeZnode.CREATE_PATH, ConfigChangeZnode.encode("users/alice"), sequential=True
    )
    await brokers.settle()
    assert brokers.two.configs.clients.get(alice) == {"a": "1"}


async def test_what_happened_before_a_broker_came_is_known_to_it(brokers: Brokers) -> None:
    await brokers.one.configs.change(TOPIC, setting("retention.ms", "100"))
    late = Broker(brokers.store, 3, brokers.clock)
    await late.start()
    assert late.retention_ms() == 100
    await late.notifications.close()


async def test_notes_of_the_time_between_two_sessions_are_read(brokers: Brokers) -> None:
    await expire_session(brokers.two.znodes)
    await brokers.one.configs.change(TOPIC, setting("retention.ms", "100"))
    await brokers.settle()
    assert brokers.two.retention_ms() == 1
    renew_session(brokers.two.znodes)
    brokers.two.notifications.session_renewed()
    await brokers.settle()
    assert brokers.two.retention_ms() == 100
    await brokers.one.configs.change(TOPIC, setting("retention.ms", "200"))
    await brokers.settle()
    assert brokers.two.retention_ms() == 200, "it is watched again"


async def test_credentials_that_were_taken_back_while_a_broker_was_away_do_not_live_on_there(
    brokers: Brokers,
) -> None:
    one, two = brokers.one, brokers.two
    for name in ("alice", "bob"):
        await one.configs.clients.change(user(name), lambda _: {"SCRAM-SHA-256": "old"})
    await brokers.settle()
    assert two.configs.clients.get(user("alice")) == {"SCRAM-SHA-256": "old"}
    heard: list[tuple[EntityPath, Values]] = []
    two.configs.clients.on_change(lambda path, values: heard.append((path, values)))
    heard.clear()
    await expire_session(two.znodes)
    await one.configs.clients.change(user("alice"), lambda _: {})
    await one.configs.clients.change(user("carol"), lambda _: {"SCRAM-SHA-256": "new"})
    for note in await one.znodes.children(ConfigChangeZnode.PARENT):
        await one.znodes.delete(f"{ConfigChangeZnode.PARENT}/{note}")
    await brokers.settle()
    renew_session(two.znodes)
    two.notifications.session_renewed()
    await brokers.settle()
    assert two.configs.clients.get(user("alice")) == {}
    assert sorted(heard) == [(user("alice"), {}), (user("carol"), {"SCRAM-SHA-256": "new"})]


async def test_old_notes_are_removed(brokers: Brokers) -> None:
    await brokers.one.configs.change(TOPIC, setting("retention.ms", "100"))
    await brokers.settle()
    brokers.clock.advance(NOTIFICATION_LIFETIME_MS + 1)
    await brokers.one.configs.change(TOPIC, setting("retention.ms", "200"))
    await brokers.settle()
    assert await brokers.one.znodes.children(ConfigChangeZnode.PARENT) == ["config_change_0000000001"]


async def test_a_broker_whose_clock_is_ahead_leaves_young_notes_to_the_others(brokers: Brokers) -> None:
    """The others may not have read them, and would not know the change until their next session."""
    ahead = Broker(brokers.store, 3, AheadClock(brokers.clock))
    await ahead.start()
    for value in ("100", "200"):
        await brokers.one.configs.change(TOPIC, setting("retention.ms", value))
        await brokers.settle()
        brokers.clock.advance(NOTIFICATION_LIFETIME_MS / 3)
    assert len(await brokers.one.znodes.children(ConfigChangeZnode.PARENT)) == 2
    await ahead.notifications.close()


async def test_a_jump_of_the_stores_clock_takes_no_note_from_a_slow_broker(brokers: Brokers) -> None:
    """The next ZooKeeper leader may have another time. A note stays for as long as a session may be slow."""
    await brokers.one.configs.change(TOPIC, setting("retention.ms", "100"))
    await brokers.settle()
    brokers.clock.jump(NOTIFICATION_LIFETIME_MS + 1)
    await brokers.one.configs.change(TOPIC, setting("retention.ms", "200"))
    await brokers.settle()
    assert len(await brokers.one.znodes.children(ConfigChangeZnode.PARENT)) == 2
    brokers.clock.advance(brokers.one.znodes.session_timeout_ms)
    await brokers.one.configs.change(TOPIC, setting("retention.ms", "300"))
    await brokers.settle()
    assert len(await brokers.one.znodes.children(ConfigChangeZnode.PARENT)) == 2


async def test_a_note_that_is_gone_before_it_is_read_has_everything_read_again(brokers: Brokers) -> None:
    """Another program removed it: an older broker whose clock is ahead."""
    one, two = brokers.one, brokers.two
    get_many = two.znodes.get_many

    async def too_late(paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        two.znodes.get_many = get_many  # type: ignore[method-assign]
        for path in paths:
            await one.znodes.delete(path)
        return await get_many(paths)

    two.znodes.get_many = too_late  # type: ignore[method-assign]
    await one.configs.change(TOPIC, setting("retention.ms", "100"))
    await brokers.settle()
    assert await one.znodes.children(ConfigChangeZnode.PARENT) == []
    assert two.retention_ms() == 100


async def test_settings_that_changed_while_a_broker_was_away_are_known_in_its_next_session(
    brokers: Brokers,
) -> None:
    """Also if the notes are gone: an old retention would delete records that a new one keeps."""
    one, two = brokers.one, brokers.two
    mine = ConfigResource(ResourceType.BROKER, "2")
    await two.configs.change(mine, setting("log.cleaner.threads", "3"))
    await one.configs.change(ALL_BROKERS, setting("log.retention.ms", "50"))
    await brokers.settle()
    await expire_session(two.znodes)
    await one.configs.change(ALL_BROKERS, setting("log.retention.ms", "-1"))
    await one.configs.change(GROUP, setting("consumer.session.timeout.ms", "50000"))
    await one.configs.replace(TOPIC, {})
    for note in await one.znodes.children(ConfigChangeZnode.PARENT):
        await one.znodes.delete(f"{ConfigChangeZnode.PARENT}/{note}")
    await brokers.settle()
    renew_session(two.znodes)
    two.notifications.session_renewed()
    await brokers.settle()
    assert two.configs.broker_config.values["log.retention.ms"] == -1
    assert two.configs.broker_config.values["log.cleaner.threads"] == 3
    assert two.configs.group_value("g", "consumer.session.timeout.ms") == 50_000
    assert two.retention_ms() == -1
    await expire_session(two.znodes)
    await one.configs.replace(GROUP, {})
    for note in await one.znodes.children(ConfigChangeZnode.PARENT):
        await one.znodes.delete(f"{ConfigChangeZnode.PARENT}/{note}")
    renew_session(two.znodes)
    two.notifications.session_renewed()
    await brokers.settle()
    assert two.configs.group_value("g", "consumer.session.timeout.ms") != 50_000


@pytest.mark.parametrize(
    ("resource", "keys"),
    [
        (TOPIC, ("retention.ms", "segment.ms")),
        (ALL_BROKERS, ("log.retention.ms", "log.roll.ms")),
        (GROUP, ("consumer.session.timeout.ms", "consumer.heartbeat.interval.ms")),
    ],
)
async def test_two_brokers_that_change_different_keys_keep_each_others_changes(
    brokers: Brokers, resource: ConfigResource, keys: tuple[str, str]
) -> None:
    """The second broker has not read the change of the first one when a client asks it for another."""
    await brokers.two.notifications.close()
    await brokers.one.configs.change(resource, setting(keys[0], "50000"))
    await brokers.two.configs.change(resource, setting(keys[1], "5000"))
    late = Broker(brokers.store, 3, brokers.clock)
    await late.start()
    for broker in (brokers.two, late):
        values = {entry.name: entry.value for entry in broker.configs.describe(resource)}
        assert [values[key] for key in keys] == ["50000", "5000"]
    await late.notifications.close()


async def test_two_brokers_that_change_a_topic_at_once_keep_each_others_changes(brokers: Brokers) -> None:
    changes = {"retention.ms": brokers.one, "segment.ms": brokers.two, "flush.ms": brokers.one}
    changes |= {"segment.jitter.ms": brokers.two}
    await asyncio.gather(
        *(broker.configs.change(TOPIC, setting(key, "77")) for key, broker in changes.items())
    )
    await brokers.settle()
    for broker in (brokers.one, brokers.two):
        values = {entry.name: entry.value for entry in broker.configs.describe(TOPIC)}
        assert [values[key] for key in changes] == ["77"] * 4


async def test_a_topic_that_was_made_again_gets_no_setting_of_its_predecessor(brokers: Brokers) -> None:
    """A broker that has not noticed the deletion adds a setting: it writes none that it remembers."""
    znodes = brokers.one.znodes
    await znodes.delete("/brokers/topics/t")
    await znodes.delete("/config/topics/t")
    await create_topic(znodes, "t", Uuid(bytes(16)), {0: [1]}, {"cleanup.policy": "compact"})
    await brokers.two.configs.change(TOPIC, setting("segment.ms", "77"))
    assert await read_config(znodes, "topics", "t") == {"cleanup.policy": "compact", "segment.ms": "77"}


async def test_a_change_of_a_topic_that_is_gone_leaves_no_settings_behind(brokers: Brokers) -> None:
    """The next topic of this name would begin with them."""
    znodes = brokers.one.znodes
    await znodes.delete("/brokers/topics/t")
    await znodes.delete("/config/topics/t")
    with pytest.raises(UnknownTopicOrPartition):
        await brokers.two.configs.change(TOPIC, setting("segment.ms", "77"))
    assert await znodes.exists("/config/topics/t") is None


async def test_an_unreadable_note_does_no_harm(brokers: Brokers) -> None:
    create = brokers.one.znodes.create
    await create(ConfigChangeZnode.CREATE_PATH, b"no json", sequential=True)
    await create(ConfigChangeZnode.CREATE_PATH, ConfigChangeZnode.encode("users/alice"), sequential=True)
    await create(ConfigChangeZnode.CREATE_PATH, ConfigChangeZnode.encode("topics/nothing"), sequential=True)
    await brokers.one.configs.change(TOPIC, setting("retention.ms", "100"))
    await brokers.settle()
    assert brokers.two.retention_ms() == 100


@pytest.mark.parametrize(
    "entity", ["groups/", "groups//", "groups/a//b", "groups/.", "groups/\0", "brokers/", "topics", "", "/"]
)
async def test_a_note_that_names_nothing_holds_up_no_other(brokers: Brokers, entity: str) -> None:
    note = ConfigChangeZnode.encode(entity)
    await brokers.one.znodes.create(ConfigChangeZnode.CREATE_PATH, note, sequential=True)
    await brokers.one.configs.change(TOPIC, setting("retention.ms", "100"))
    await brokers.settle()
    assert brokers.two.retention_ms() == 100
    late = Broker(brokers.store, 3, brokers.clock)
    await late.start()
    await late.notifications.close()


async def test_a_note_out_of_the_row_hides_no_later_one(brokers: Brokers) -> None:
    """Also if another program chose its number."""
    note = ConfigChangeZnode.encode("topics/t")
    for name in ("config_change_9999999999", "config_change_", "note"):
        await brokers.one.znodes.create(f"{ConfigChangeZnode.PARENT}/{name}", note)
    await brokers.one.znodes.create(f"{ConfigChangeZnode.PARENT}/tree/leaf", note, make_parents=True)
    await brokers.settle()
    await brokers.one.configs.change(TOPIC, setting("retention.ms", "100"))
    await brokers.settle()
    assert brokers.two.retention_ms() == 100
    brokers.clock.advance(NOTIFICATION_LIFETIME_MS + 1)
    await brokers.one.configs.change(TOPIC, setting("retention.ms", "200"))
    await brokers.settle()
    assert brokers.two.retention_ms() == 200
    assert await brokers.one.znodes.children(ConfigChangeZnode.PARENT) == ["config_change_0000000005", "tree"]


async def spoil(brokers: Brokers, entity_path: str, data: bytes = b"{") -> None:
    """Another program writes a malformed configuration, and a notification for it."""
    path = f"/config/{entity_path}"
    if await brokers.one.znodes.exists(path) is None:
        await brokers.one.znodes.create(path, data)
    else:
        await brokers.one.znodes.set(path, data)
    note = ConfigChangeZnode.encode(entity_path)
    await brokers.one.znodes.create(ConfigChangeZnode.CREATE_PATH, note, sequential=True)
    await brokers.settle()


@pytest.mark.parametrize("entity", ["topics/t", "brokers/2", "brokers/<default>", "groups/g"])
async def test_settings_that_cannot_be_read_change_nothing(
    brokers: Brokers, entity: str, caplog: pytest.LogCaptureFixture
) -> None:
    await brokers.one.configs.change(ALL_BROKERS, setting("log.retention.ms", "50"))
    await brokers.one.configs.change(GROUP, setting("consumer.session.timeout.ms", "50000"))
    await brokers.settle()
    await spoil(brokers, entity)
    assert f"/config/{entity}" in caplog.text
    configs = brokers.two.configs
    assert brokers.two.retention_ms() == 1
    assert configs.topic_config("another").retention_ms == 50
    assert configs.group_value("g", "consumer.session.timeout.ms") == 50_000
    await create_topic(brokers.one.znodes, "new", Uuid(bytes(range(16))), {0: [1]}, {"retention.ms": "7"})
    await configs.load_topics(["new"])
    assert configs.topic_config("new").retention_ms == 7, "what comes after it is read"


@pytest.mark.parametrize(
    ("entity", "data"),
    [
        ("topics/t", b"{"),
        ("topics/t", b'{"version":1,"config":{"retention.ms":"a week","min.insync.replicas":"2"}}'),
        ("topics/t", b'{"version":1,"config":{"cleanup.policy":"compress"}}'),
        ("topics/t", b'{"version":1,"config":{"min.compaction.lag.ms":"9","max.compaction.lag.ms":"8"}}'),
        ("brokers/3", b"{"),
        ("brokers/3", b'{"version":1,"config":{"log.retention.ms":"a week"}}'),
        ("brokers/<default>", b"[]"),
    ],
)
async def test_where_settings_are_unclear_nothing_is_deleted(
    brokers: Brokers, entity: str, data: bytes
) -> None:
    """A broker that starts then cannot know what was to be kept."""
    await brokers.one.configs.replace(TOPIC, {})
    await spoil(brokers, entity, data)
    late = Broker(brokers.store, 3, brokers.clock)
    await late.start()
    config = late.configs.topic_config("t")
    assert (config.retention_ms, config.retention_bytes) == (-1, -1)
    assert (config.is_compacted, config.is_deleted) == (False, True)
    await late.notifications.close()


async def test_an_unclear_setting_that_deletes_nothing_has_its_default(brokers: Brokers) -> None:
    await spoil(
        brokers, "topics/t", b'{"version":1,"config":{"retention.ms":"5","segment.ms":"x","new":"1"}}'
    )
    late = Broker(brokers.store, 3, brokers.clock)
    await late.start()
    assert late.retention_ms() == 5
    await late.notifications.close()


async def test_topics_are_loaded_when_they_are_first_heard_of(brokers: Brokers) -> None:
    znodes = brokers.one.znodes
    for topic, config in (("new", {"retention.ms": "7"}), ("plain", {})):
        await create_topic(znodes, topic, Uuid(bytes(range(16))), {0: [1]}, config)
    await brokers.two.configs.load_topics(["new", "plain"])
    assert brokers.two.configs.topic_config("new").retention_ms == 7
    assert brokers.two.configs.describe(ConfigResource(ResourceType.TOPIC, "plain"))
    brokers.two.configs.remove_topic("new")
    with pytest.raises(UnknownTopicOrPartition):
        brokers.two.configs.describe(ConfigResource(ResourceType.TOPIC, "new"))


async def test_a_topic_that_only_other_brokers_have_can_be_changed(brokers: Brokers) -> None:
    await create_topic(brokers.one.znodes, "new", Uuid(bytes(range(16))), {0: [1]}, {})
    resource = ConfigResource(ResourceType.TOPIC, "new")
    await brokers.two.configs.change(resource, setting("retention.ms", "9"))
    await brokers.one.configs.find_topics(["new", "nothing", ""])
    assert brokers.one.configs.topic_config("new").retention_ms == 9
    with pytest.raises(UnknownTopicOrPartition):
        await brokers.two.configs.change(
            ConfigResource(ResourceType.TOPIC, "nothing"), setting("retention.ms", "9")
        )


async def test_loading_again_takes_over_what_the_store_has(brokers: Brokers) -> None:
    heard: list[int] = []
    brokers.two.configs.on_topic_change(lambda _, config: heard.append(config.retention_ms))
    await brokers.two.notifications.close()
    await brokers.one.configs.change(TOPIC, setting("retention.ms", "100"))
    await brokers.two.configs.load_topics(["t"])
    await brokers.two.configs.load_topics(["t"])
    assert heard == [100]
