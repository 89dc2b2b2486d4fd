"""Creating, extending and deleting topics.

The broker that receives the request writes the desired state: the topic's znode with its assignment and
settings, a longer assignment, or the deletion mark. The controller reacts, elects leaders and notifies the
brokers. The response waits until this broker's metadata show the result, because the client's next request is
likely to come here. A change that takes longer is answered REQUEST_TIMED_OUT, and may still happen.

Any broker may do this: the store orders concurrent requests. A single broker does not wait for its own store
once that has failed, because only a restart brings it back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from barnabas.administration.metadata_wait import MetadataWait
from barnabas.administration.topic_planning import CreatedTopic, PlannedTopic, TopicPlanner
from barnabas.administration.topic_rules import (
    TopicSpec,
    check_new_name,
)
from barnabas.cluster.coordination.contract import BadVersion, Coordination, SessionState
from barnabas.cluster.metadata.cache import MetadataCache
from barnabas.cluster.stores import topics as store
from barnabas.cluster.stores.errors import as_client_errors
from barnabas.cluster.znodes.layout import TopicZnode
from barnabas.cluster.znodes.notifications import DeleteTopicsZnode
from barnabas.config.dynamic.repository import ConfigRepository
from barnabas.core.errors import (
    InvalidTopicException,
    KafkaError,
    KafkaStorageError,
    LeaderNotAvailable,
    ReassignmentInProgress,
    RequestTimedOut,
    TopicAlreadyExists,
    UnknownServerError,
    UnknownTopicOrPartition,
)
from barnabas.core.ids import INTERNAL_TOPICS, ZERO_UUID, Randomness, Uuid
from barnabas.core.scheduler import Scheduler
from barnabas.core.waiting import gather

logger = logging.getLogger(__name__)

WAIT_MS: Final = 30_000
AUTO_CREATE_WAIT_MS: Final = 5_000
NAME_WAIT_MS: Final = 2_000


class TopicAdministration:
    """Creates, extends and deletes topics through the controller.

    `timeout_ms` bounds the wait for the controller; None means the default. With `validate_only` nothing is
    written: the result says whether the change is valid.
    """

    def __init__(
        self,
        znodes: Coordination,
        configs: ConfigRepository,
        metadata: MetadataCache,
        randomness: Randomness,
        scheduler: Scheduler,
        metadata_wait: MetadataWait,
        *,
        is_alone: bool,
    ) -> None:
        """`is_alone`: there is no other broker to wait for, so no request's timeout applies."""
        self._znodes = znodes
        self._configs = configs
        self._metadata = metadata
        self._planner = TopicPlanner(configs, metadata, randomness)
        self._scheduler = scheduler
        self._metadata_wait = metadata_wait
        self._is_alone = is_alone
        self._auto_creating: set[str] = set()
        znodes.add_listener(self._session_changed)

    async def create_topic(
        self, spec: TopicSpec, *, validate_only: bool = False, timeout_ms: float | None = None
    ) -> CreatedTopic:
        async with self._configs.changing:
            with as_client_errors():
                existing = await self._znodes.children(TopicZnode.PARENT)
            check_new_name(spec.name, existing)
            planned = self._planner.new_topic(spec)
            if not validate_only:
                await self._write(planned)
        if not validate_only:
            await self._wait(
                lambda: self._is_led(spec.name, planned.topic_id, len(planned.assignment)),
                timeout_ms,
                f"topic '{spec.name}' has no leaders yet",
            )
        return planned.created

    async def _write(self, planned: PlannedTopic) -> None:
        topic, topic_id, assignment, overrides, _ = planned
        with as_client_errors():
            await store.create_topic(self._znodes, topic, topic_id, assignment, overrides)
        self._configs.add_topic(topic, overrides)

    async def auto_create(self, names: Sequence[str]) -> dict[str, KafkaError]:
        """Create missing topics with the broker's defaults; returns the errors.

        Internal topics are not created here, but when the cluster needs them.
        """
        wanted = list(dict.fromkeys(names))
        begun = [name for name in wanted if name not in self._auto_creating]
        self._auto_creating.update(begun)
        try:
            outcomes = await gather(map(self._auto_create, wanted))
        finally:
            self._auto_creating.difference_update(begun)
        return {name: error for name, error in zip(wanted, outcomes, strict=True) if error is not None}

    def is_auto_creating(self, name: str) -> bool:
        """Whether another request is already creating the topic."""
        return name in self._auto_creating

    async def _auto_create(self, name: str) -> KafkaError | None:
        try:
            if name in INTERNAL_TOPICS:
                raise UnknownTopicOrPartition(f"the internal topic {name} does not exist yet")
            await self.create_topic(TopicSpec(name), timeout_ms=AUTO_CREATE_WAIT_MS)
        except TopicAlreadyExists:
            return await self._wait_for_metadata(name)
        except RequestTimedOut:
            return LeaderNotAvailable(f"topic '{name}' is being created")
        except KafkaError as error:
            return error
        except Exception:
            logger.exception("topic %s: auto-creation failed", name)
            return UnknownServerError("the topic could not be created; see the broker's log")
        return None

    async def _wait_for_metadata(self, name: str) -> KafkaError | None:
        """Wait for a topic that another broker has just created and that the metadata do not show yet.

        The name of a deleted topic is taken until its replicas are gone, and no metadata will show it. The
        client asks again; a request that waited would hold up those behind it.
        """
        try:
            with as_client_errors():
                is_deleted = await self._znodes.exists(DeleteTopicsZnode.path(name)) is not None
        except KafkaError as error:
            return error
        if is_deleted:
            return UnknownTopicOrPartition(f"the topic '{name}' is being deleted")
        if await self._metadata_wait.until(lambda: name in self._metadata, AUTO_CREATE_WAIT_MS):
            return None
        return LeaderNotAvailable(f"topic '{name}' is being created")

    async def create_partitions(
        self,
        topic: str,
        count: int,
        by_hand: Sequence[Sequence[int]] | None = None,
        *,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> None:
        async with self._configs.changing:
            with as_client_errors():
                info, _ = await store.read_topic(self._znodes, topic)
                is_deleted = await self._znodes.exists(DeleteTopicsZnode.path(topic)) is not None
            if is_deleted:
                raise InvalidTopicException(f"the topic '{topic}' is being deleted")
            if any(each.is_being_reassigned for each in info.assignment.values()):
                raise ReassignmentInProgress(f"partitions of the topic '{topic}' are being reassigned")
            added = self._planner.more_partitions(
                topic,
                [each.replicas for _, each in sorted(info.assignment.items())],
                count,
                by_hand,
            )
            if validate_only:
                return
            try:
                with as_client_errors():
                    await store.add_partitions(self._znodes, topic, added)
            except BadVersion:
                raise ReassignmentInProgress(f"the topic '{topic}' was changed meanwhile") from None
        await self._wait(
            lambda: self._is_led(topic, info.topic_id, count),
            timeout_ms,
            f"the new partitions of '{topic}' have no leaders yet",
        )

    async def delete_topic(self, topic: str, *, timeout_ms: float | None = None) -> Uuid:
        with as_client_errors():
            info, _ = await store.read_topic(self._znodes, topic)
            try:
                await store.mark_for_deletion(self._znodes, topic)
            except TopicAlreadyExists:
                if topic not in self._metadata:
                    raise UnknownTopicOrPartition(f"the topic '{topic}' is being deleted") from None
        await self._wait(
            lambda: self._is_gone(topic, info.topic_id), timeout_ms, f"topic '{topic}' is not deleted yet"
        )
        if topic not in self._metadata:
            self._configs.remove_topic(topic)
        await self._wait_until_free(topic, self._limit_ms(timeout_ms))
        return info.topic_id or ZERO_UUID

    async def _wait_until_free(self, topic: str, timeout_ms: float) -> None:
        """Wait a moment until the name of a deleted topic is free, so that a client may use it again at once.

        The topic is already invisible. Its name is free once the replicas are deleted, which takes long if a
        broker is down.
        """
        with as_client_errors(), self._metadata_wait.signal() as gone:
            if await self._znodes.exists(TopicZnode.path(topic), lambda _: gone.set()) is not None:
                await gone.wait_at_most(min(timeout_ms, NAME_WAIT_MS), self._scheduler)

    # --- waiting ---

    def _is_led(self, topic: str, topic_id: Uuid | None, count: int) -> bool:
        known = self._metadata.topic(topic)
        return (
            known is not None
            and topic_id in (None, known.topic_id)
            and len(known.partitions) >= count
            and all(partition.leader >= 0 for partition in known.partitions)
        )

    def _is_gone(self, topic: str, topic_id: Uuid | None) -> bool:
        known = self._metadata.topic(topic)
        return known is None or (topic_id is not None and known.topic_id != topic_id)

    async def _wait(self, condition: Callable[[], bool], timeout_ms: float | None, late: str) -> None:
        def is_over() -> bool:
            if condition():
                return True
            if self._is_alone and self._znodes.state is SessionState.LOST:
                raise KafkaStorageError("the coordination store has failed")
            return False

        if not await self._metadata_wait.until(is_over, self._limit_ms(timeout_ms)):
            raise RequestTimedOut(late)

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            self._metadata_wait.look_again()

    def _limit_ms(self, timeout_ms: float | None) -> float:
        return WAIT_MS if timeout_ms is None or self._is_alone else timeout_ms
