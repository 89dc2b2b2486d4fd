"""A topic that is deleted and created again under its name, while groups commit offsets for it.

Each life of the topic has its own groups, so offsets of an earlier life are never overwritten: at the end
there must be none. The offsets topic takes small batches only, so removing the offsets of one life takes
several.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from tests.chaos.history import History, Life
from tests.chaos.insisting import insist
from tests.chaos.workload import Worker
from tests.support.secured_cluster import Reach

TOPIC = "again"
PARTITIONS = 30
GROUPS = 8
PER_COMMIT = 10
OFFSETS_BATCH_BYTES = 2_048
ADMIN_TIMEOUT_S = 20.0
PAUSE_S = 0.5
GONE_TIMEOUT_S = 90.0


class Recreating(Worker):
    def __init__(self, name: str, reach: Reach, history: History) -> None:
        super().__init__(name)
        self._reach = reach
        self._history = history
        self._admin = AdminClient({**reach.properties, "log_level": 0})

    def _work(self) -> None:
        self._insist(self._make_offset_batches_small)
        while self._insist(self._make_again):
            life = Life(TOPIC, len(self._history.lives))
            for former in self._history.lives:
                former.is_over = True
            self._history.lives.append(life)
            for number in range(GROUPS):
                self._commit(life, f"{self.name}-{life.number}-{number}")

    def _insist(self, action: Callable[[], object]) -> bool:
        """Until it succeeds, or the run is over."""
        while not self._stop.is_set():
            try:
                action()
            except (KafkaException, TimeoutError) as error:
                self._meet(error)
                self._stop.wait(PAUSE_S)
            else:
                return True
        return False

    def _make_offset_batches_small(self) -> None:
        entry = ConfigEntry(
            "max.message.bytes", str(OFFSETS_BATCH_BYTES), incremental_operation=AlterConfigOpType.SET
        )
        resource = ConfigResource(ResourceType.TOPIC, "__consumer_offsets", incremental_configs=[entry])
        (changed,) = self._admin.incremental_alter_configs([resource]).values()
        changed.result(ADMIN_TIMEOUT_S)

    def _make_again(self) -> None:
        """Only a successful creation proves that the topic was gone: a broker may not know of it yet, or a
        response may be lost."""
        try:
            (deleted,) = self._admin.delete_topics([TOPIC]).values()
            deleted.result(ADMIN_TIMEOUT_S)
        except KafkaException as failure:
            if failure.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
        (made,) = self._admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)]).values()
        made.result(ADMIN_TIMEOUT_S)

    def _commit(self, life: Life, group: str) -> None:
        consumer = Consumer({**self._reach.properties, "group.id": group, "log_level": 0})
        try:
            for first in range(0, PARTITIONS, PER_COMMIT):
                wanted = [
                    TopicPartition(TOPIC, number, 1_000 + life.number)
                    for number in range(first, first + PER_COMMIT)
                ]
                consumer.commit(offsets=wanted, asynchronous=False)
        except KafkaException as error:
            self._meet(error)  # it may come to count in a later life, so nothing is said of this group
        else:
            life.groups.append(group)
        finally:
            consumer.close()


def read_offsets(reach: Reach, groups: Iterable[str]) -> dict[str, dict[tuple[str, int], int]]:
    admin = AdminClient({**reach.properties, "log_level": 0})
    found: dict[str, dict[tuple[str, int], int]] = {}
    for group in groups:
        offsets = insist(partial(_offsets_of, admin, group))
        found[group] = {(at.topic, at.partition): at.offset for at in offsets if at.offset >= 0}
    return found


def _offsets_of(admin: AdminClient, group: str) -> list[TopicPartition]:
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group]
    return asked.result(ADMIN_TIMEOUT_S).topic_partitions or []


def settled_offsets(reach: Reach, lives: Iterable[Life]) -> dict[str, dict[tuple[str, int], int]]:
    """Offsets of the groups of earlier lives after the faults; a removal may still be on its way."""
    groups = [group for life in lives if life.is_over for group in life.groups]
    deadline = time.monotonic() + GONE_TIMEOUT_S
    while True:
        left = {group: found for group, found in read_offsets(reach, groups).items() if found}
        if not left or time.monotonic() > deadline:
            return left
        groups = list(left)
        time.sleep(PAUSE_S)
