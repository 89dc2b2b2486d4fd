"""Subscription of a consumer: topics by name, topics by pattern, or partitions assigned by hand.

A consumer has one kind at a time; `clear` (unsubscribe) comes between two kinds, as with Kafka. A pattern is
matched by the client against all topics of the cluster, each time the metadata changes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from barnabas.client.core.client_errors import IllegalState
from barnabas.client.core.metadata import Metadata
from barnabas.core.ids import TopicPartition, check_topic_name


class Subscription:
    def __init__(self, *, excludes_internal: bool = True) -> None:
        self.pattern: re.Pattern[str] | None = None
        self.assigned: frozenset[TopicPartition] | None = None
        """Partitions assigned by hand."""
        self._names: frozenset[str] = frozenset()
        self._excludes_internal = excludes_internal

    @property
    def is_by_group(self) -> bool:
        return self.pattern is not None or bool(self._names)

    @property
    def topics(self) -> frozenset[str]:
        return self._names

    def subscribe(self, topics: Collection[str]) -> None:
        self._check(by_hand=False)
        if isinstance(topics, str):
            raise TypeError(f"subscribe takes a list of topics: [{topics!r}]")
        for name in topics:
            check_topic_name(name)
        self.pattern = None
        self._names = frozenset(topics)

    def subscribe_pattern(self, pattern: str | re.Pattern[str]) -> None:
        self._check(by_hand=False)
        self.pattern = re.compile(pattern)
        self._names = frozenset()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        self._check(by_hand=True)
        self.assigned = frozenset(TopicPartition(*each) for each in partitions)

    def clear(self) -> None:
        self.pattern = self.assigned = None
        self._names = frozenset()

    def match(self, metadata: Metadata) -> bool:
        """Match the pattern against the topics of the cluster; True when the topics changed."""
        if self.pattern is None:
            return False
        found = frozenset(
            topic.name
            for topic in metadata.topics.values()
            if self.pattern.fullmatch(topic.name) and not (topic.is_internal and self._excludes_internal)
        )
        changed = found != self._names
        self._names = found
        return changed

    def want(self, metadata: Metadata, others: Collection[str] = ()) -> None:
        """Tell the metadata cache which topics to refresh; `others` are the group's."""
        metadata.wants_all = self.pattern is not None
        by_hand = {at.topic for at in self.assigned or ()}
        metadata.want_only({*self._names, *by_hand, *others})

    def _check(self, *, by_hand: bool) -> None:
        if by_hand and self.is_by_group:
            raise IllegalState("this consumer is subscribed to topics: unsubscribe before assign")
        if not by_hand and self.assigned is not None:
            raise IllegalState("partitions are assigned by hand: unsubscribe before subscribe")
