"""Questions of the console about a cluster.

Two implementations answer. `ClientView` asks through the client library, so it works against any Kafka. The
broker of this project answers the same questions from memory, in one pass, on a private socket.

A view belongs to one signed-in user, and shows only what that user may describe. A topic, a group or a
transactional id without DESCRIBE is absent, as in the answers of the Kafka protocol. A question about one
resource raises `KafkaError` (UNKNOWN_TOPIC_OR_PARTITION, GROUP_ID_NOT_FOUND, ...).

Changes are not part of it. They go through the Kafka protocol as the signed-in user.
"""

from __future__ import annotations

from typing import Protocol

from barnabas.console.view.rows import (
    ClientRow,
    GroupDetail,
    GroupQuery,
    GroupRow,
    LogPicture,
    Overview,
    Page,
    TopicDetail,
    TopicQuery,
    TopicRow,
    TransactionRow,
)


class NotOffered(Exception):
    """This cluster cannot answer the question; the message says why."""


class ClusterView(Protocol):
    async def overview(self) -> Overview: ...

    async def topics(self, query: TopicQuery) -> Page[TopicRow]: ...

    async def topic(self, name: str) -> TopicDetail: ...

    async def groups(self, query: GroupQuery) -> Page[GroupRow]: ...

    async def group(self, group_id: str) -> GroupDetail: ...

    async def log_picture(self, topic: str, partition: int) -> LogPicture: ...

    async def transactions(self, *, find_hanging: bool = False) -> tuple[TransactionRow, ...]:
        """Transactions of all coordinators; with `find_hanging`, those that no coordinator knows too."""

    async def clients(self) -> tuple[ClientRow, ...]:
        """Metrics that clients report (KIP-714). `NotOffered` against a Kafka that does not show them."""
