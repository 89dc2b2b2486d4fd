"""Topics come, grow and go.

The broker that is asked writes what shall be: the topic's znode with its assignment and settings, a
longer assignment, or the mark of a deletion. The controller sees it, elects leaders, tells the
brokers. The answer waits until this broker has heard of the result, for the client's next request
is likely to come here; what does not happen in time is answered REQUEST_TIMED_OUT, and may still
happen. Any broker may do this: the store decides who was first. A broker that is alone does not wait for
a store of its own that has failed: nobody will bring it back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from barnabas.cluster import topics as store
from barnabas.cluster.coordination import BadVersion, Coordination, SessionState
from barnabas.cluster.metadata_cache import MetadataCache
from barnabas.cluster.notification_znodes import DeleteTopicsZnode
from barnabas.cluster.store_errors import as_client_errors
from barnabas.cluster.znodes import TopicZnode
from barnabas.config.repository import ConfigRepository
from barnabas.controller.metadata_wait import MetadataWait
from barnabas.controller.topic_planning import CreatedTopic, PlannedTopic, TopicPlanner
from barnabas.controller.topic_rules import (
    TopicSpec,
    check_new_name,
)
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
from barnabas.core.waiting import Runner, gather

logger = logging.getLogger(__name__)

WAIT_MS: Final = 30_000
AUTO_CREATE_WAIT_MS: Final = 5_000
NAME_WAIT_MS: Final = 2_000


class TopicAdministration:
    """Creates, extends and deletes topics by way of the controller.

    `timeout_ms` bounds the wait for it; None: as long as seems right. With `validate_only` nothing is
    written: the answer says whether it could be."""

    def __init__(
        self,
        znodes: Coordination,
        configs: ConfigRepository,
        metadata: MetadataCache,
        randomness: Randomness,
        scheduler: Scheduler,
        runner: Runner,
        metadata_wait: MetadataWait,
        *,
        is_alone: bool = False,
    ) -> None:
        """`is_alone`: no other broker is ever waited for, so no request's timeout applies."""
        self._znodes = znodes
        self._configs = configs
        self._metadata = metadata
        self._planner = TopicPlanner(configs, metadata, randomness)
        self._scheduler = scheduler
        self._runner = runner
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
        """Make the topics that do not exist, with the broker's defaults; returns what went wrong. Internal
        ones are made when the cluster needs them."""
        wanted = list(dict.fromkeys(names))
        begun = [name for name in wanted if name not in self._auto_creating]
        self._auto_creating.update(begun)
        try:
            outcomes = await gather(map(self._auto_create, wanted), self._runner)
        finally:
            self._auto_creating.difference_update(begun)
        return {name: error for name, error in zip(wanted, outcomes, strict=True) if error is not None}

    def is_auto_creating(self, name: str) -> bool:
        """Whether the topic is being made already, because somebody else asked for it."""
        return name in self._auto_creating

    async def _auto_create(self, name: str) -> KafkaError | None:
        try:
            if name in INTERNAL_TOPICS:
                raise UnknownTopicOrPartition(f"the internal topic {name} does not exist yet")
            await self.create_topic(TopicSpec(name), timeout_ms=AUTO_CREATE_WAIT_MS)
        except TopicAlreadyExists:
            return await self._wait_for_the_other(name)
        except RequestTimedOut:
            return LeaderNotAvailable(f"topic '{name}' is being created")
        except KafkaError as error:
            return error
        except Exception:
            logger.exception("topic %s could not be created", name)
            return UnknownServerError("the topic could not be created")
        return None

    async def _wait_for_the_other(self, name: str) -> KafkaError | None:
        """Somebody else has just created the topic, and this broker has not heard of it yet."""
        try:
            await self._wait(lambda: name in self._metadata, AUTO_CREATE_WAIT_MS, "")
        except RequestTimedOut:
            return LeaderNotAvailable(f"topic '{name}' is being created")
        return None

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
        """Nobody sees the topic any more. Its name is free once the replicas are deleted, which takes a
        moment, or long if a broker is down: the moment is waited for, so that a client may use the name
        again at once."""
        with as_client_errors(), self._metadata_wait.signal() as gone:
            if await self._znodes.exists(TopicZnode.path(topic), lambda _: gone.set()) is not None:
                await gone.wait_at_most(min(timeout_ms, NAME_WAIT_MS), self._scheduler)

    # Waiting

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
