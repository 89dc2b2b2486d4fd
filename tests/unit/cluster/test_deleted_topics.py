"""Only the store knows that a topic is deleted, and only a server that does not lag behind."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest
from tests.support.manual_time import ManualClock

from barnabas.cluster.coordination.contract import ConnectionLoss, Coordination
from barnabas.cluster.embedded.session import open_embedded
from barnabas.cluster.stores.deleted_partitions import DeletedPartitions
from barnabas.cluster.stores.registration import make_persistent_paths
from barnabas.cluster.stores.topics import create_topic, mark_for_deletion
from barnabas.cluster.znodes.layout import TopicZnode
from barnabas.core.ids import ZERO_UUID, Uuid
from barnabas.core.scheduler import InlineBackground

FIRST_ID, SECOND_ID = Uuid.parse("AAAAAAAAAAAAAAAAAAAAAQ"), Uuid.parse("AAAAAAAAAAAAAAAAAAAAAg")


@pytest.fixture
async def znodes(tmp_path: Path) -> AsyncIterator[Coordination]:
    async with open_embedded(tmp_path, ManualClock(), InlineBackground()) as store:
        await make_persistent_paths(store)
        yield store


async def ids(
    znodes: Coordination, *names: str, is_deletion_enabled: bool = True
) -> Mapping[str, Uuid | None]:
    return await DeletedPartitions(znodes, is_deletion_enabled=is_deletion_enabled).find_topics(names)


async def test_a_topic_is_gone_with_its_node_and_another_has_another_id(znodes: Coordination) -> None:
    for name in ("gone", "again", "there"):
        await create_topic(znodes, name, FIRST_ID, {0: [1]}, {})
    await znodes.delete(TopicZnode.path("gone"))
    await znodes.delete(TopicZnode.path("again"))
    await create_topic(znodes, "again", SECOND_ID, {0: [1]}, {})
    assert await ids(znodes, "gone", "again", "there") == {
        "gone": None,
        "again": SECOND_ID,
        "there": FIRST_ID,
    }


async def test_a_topic_that_is_to_be_deleted_is_gone_where_topics_can_be_deleted(
    znodes: Coordination,
) -> None:
    await create_topic(znodes, "t", FIRST_ID, {0: [1]}, {})
    await mark_for_deletion(znodes, "t")
    assert await ids(znodes, "t") == {"t": None}
    assert await ids(znodes, "t", is_deletion_enabled=False) == {"t": FIRST_ID}


async def test_what_cannot_be_read_is_left_out(znodes: Coordination) -> None:
    await znodes.create(TopicZnode.path("spoilt"), b"{", make_parents=True)
    await znodes.create(TopicZnode.path("old"), b'{"version":1,"partitions":{"0":[1]}}')
    assert await ids(znodes, "spoilt", "old") == {"old": ZERO_UUID}


async def test_a_server_that_is_behind_is_not_believed(znodes: Coordination) -> None:
    """A server that has applied a write of this session first does not lag behind it."""
    await create_topic(znodes, "t", FIRST_ID, {0: [1]}, {})

    class Behind:
        is_behind = True

        async def multi(self, operations: Any) -> Any:
            self.is_behind = False
            return await znodes.multi(operations)

        async def get_many(self, paths: list[str]) -> Any:
            return [None for _ in paths] if self.is_behind else await znodes.get_many(paths)

    assert await ids(cast("Coordination", Behind()), "t") == {"t": FIRST_ID}


async def test_a_store_that_cannot_be_reached_says_nothing() -> None:
    class Away:
        async def multi(self, _: object) -> None:
            raise ConnectionLoss("/brokers/topics")

    assert await ids(cast("Coordination", Away()), "t") == {}
