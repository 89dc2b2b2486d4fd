"""Engine of a consumer: its parts, its background tasks, and what it owes the group.

The public class `consumer.Consumer` is thin; `process` and `arrow` use the same engine.

Events of the group wait in the membership until `attend`, which every call for records begins with. Then the
application is done with the records before, so that their offsets may be committed.

An `owner` takes the place of the positions while `process` runs: it knows which records are done.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
import random
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Protocol

from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.aio.connections import Connect
from barnabas.client.config.settings import ConsumerSettings
from barnabas.client.consumer.commits import Commits
from barnabas.client.consumer.coordination import Coordination
from barnabas.client.consumer.core.fetch_plans import FetchOptions, FetchPlans
from barnabas.client.consumer.core.handing_out import HandingOut
from barnabas.client.consumer.core.positions import Positions
from barnabas.client.consumer.core.reset_strategy import parse_reset
from barnabas.client.consumer.core.subscription import Subscription
from barnabas.client.consumer.deserializing import deserialize_with
from barnabas.client.consumer.fetching import Fetching
from barnabas.client.consumer.listener import RebalanceListener
from barnabas.client.consumer.offset_queries import OffsetQueries
from barnabas.client.consumer.position_updates import PositionUpdates
from barnabas.client.core.client_errors import BackgroundFailed, ClientClosed, CommitFailed, IllegalState
from barnabas.client.core.offsets import CommittedOffset
from barnabas.client.core.steps import ClusterUnreachable
from barnabas.client.extensions.interceptors import ConsumerInterceptor, ConsumerInterceptors
from barnabas.client.membership.classic_protocol import ClassicMember
from barnabas.client.membership.consumer_protocol import ConsumerProtocolMember
from barnabas.client.membership.interface import (
    NOTHING,
    Assigned,
    Event,
    Failed,
    GroupOptions,
    Lost,
    Membership,
    Revoked,
)
from barnabas.core.backoff import Backoff
from barnabas.core.clock import Clock, SystemClock
from barnabas.core.errors import InvalidGroupId, KafkaError, UnsupportedVersion
from barnabas.core.ids import Randomness, TopicPartition
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.offset_numbers import READ_COMMITTED, READ_UNCOMMITTED

logger = logging.getLogger(__name__)

CLOSE_TIMEOUT_MS = 30_000


class PartitionOwner(Protocol):
    """Owner of the records that were taken: it decides what may be committed."""

    def check_closing(self) -> None:
        """Refuse a handler that closes its own consumer: the close would wait for the handler."""

    async def release(self, partitions: frozenset[TopicPartition]) -> None:
        """Finish or drop the work on these partitions, before their offsets are committed."""

    def released(self, partitions: frozenset[TopicPartition]) -> None:
        """The offsets are committed, and the partitions are given up."""

    def lose(self, partitions: frozenset[TopicPartition]) -> None:
        """Drop the work on these partitions: another member may do it."""

    def offsets(self) -> dict[TopicPartition, CommittedOffset]:
        """Offsets to commit."""


class ConsumerEngine:
    def __init__(
        self,
        settings: ConsumerSettings,
        *,
        listener: RebalanceListener | None,
        interceptors: Sequence[ConsumerInterceptor],
        clock: Clock | None,
        randomness: Randomness | None,
        connect: Connect,
    ) -> None:
        self.settings = settings
        self.clock = clock or SystemClock()
        self.positions = Positions()
        self.subscription = Subscription(excludes_internal=settings.exclude_internal_topics)
        self.interceptors = ConsumerInterceptors(interceptors)
        self.deserialize = deserialize_with(settings)
        self.hand = HandingOut(self.positions, self.deserialize, self.interceptors)
        self.owner: PartitionOwner | None = None
        self._randomness = randomness or random.SystemRandom()
        self.connect = connect
        self._listener = listener
        self._reset_to = parse_reset(settings.auto_offset_reset)
        self._taken_before = 0
        self._is_open = False
        self._is_closed = False
        self._is_giving_up = False
        """True while `close` commits and notifies the listener, who may commit too."""
        self._closing: asyncio.Task[Any] | None = None
        """Task that closes this consumer, or has closed it."""
        self._auto_commit_ms = 0.0
        self._auto_commit: asyncio.Task[None] | None = None
        self._coordination: Coordination | None = None
        self._failure: BaseException | None = None
        """Error that ended a background task."""
        self._is_refused = False
        """True when the coordinator has refused this member for good, and the application knows it."""

    # --- life ---

    async def start(self) -> None:
        """Connect, and start the background tasks."""
        if self._is_open:
            return
        if self._is_closed:
            raise ClientClosed("this consumer is closed")
        settings = self.settings
        self._arrived = asyncio.Event()
        self._closed = asyncio.Event()
        self.cluster = ClusterClient.of(
            settings,
            clock=self.clock,
            randomness=self._randomness,
            retry_timeout_ms=settings.default_api_timeout_ms,
            allow_auto_topic_creation=settings.allow_auto_create_topics,
            connect=self.connect,
        )
        isolation = READ_COMMITTED if settings.isolation_level == "read_committed" else READ_UNCOMMITTED
        self.commits = (
            None
            if settings.group_id is None
            else Commits(self.cluster, settings.group_id, settings.group_instance_id)
        )
        options = FetchOptions(
            min_bytes=settings.fetch_min_bytes,
            max_bytes=settings.fetch_max_bytes,
            max_wait_ms=settings.fetch_max_wait_ms,
            partition_bytes=settings.max_partition_fetch_bytes,
            buffer_bytes=settings.fetch_buffer_bytes,
            checks_crc=settings.check_crcs,
            isolation=isolation,
            rack=settings.client_rack,
            retry_ms=settings.retry_backoff_ms,
            preferred_ms=settings.metadata_max_age_ms,
            reset_to=self._reset_to,
        )
        self.plans = FetchPlans(self.positions, self.cluster.metadata, self.clock, options)
        self.fetching = Fetching(
            self.cluster,
            self.plans,
            on_arrival=self._arrived.set,
            on_positions_wanted=self._positions_wanted,
            on_failure=self._broke,
        )
        self.updates = PositionUpdates(
            self.cluster,
            self.positions,
            self.commits,
            reset_to=self._reset_to,
            isolation=isolation,
            retry_ms=settings.retry_backoff_ms,
            timeout_ms=settings.default_api_timeout_ms,
            on_update=self._positions_updated,
            on_failure=self._broke,
        )
        self.queries = OffsetQueries(self.cluster, self.updates)
        try:
            await self.cluster.__aenter__()
            self.cluster.updates.on_update.append(self._metadata_updated)
            self.cluster.updates.start(self._broke)
            self.updates.start()
            self._is_open = True
        except BaseException:
            await self.close(0)
            raise

    async def close(self, timeout_ms: float) -> None:
        """Commit what was handed out, leave the group, and close all connections, within `timeout_ms`."""
        if self.owner is not None:
            self.owner.check_closing()
        if self._closing is not None:
            await self._until_closed()
            return
        self._is_closed = True
        if not self._is_open:
            if hasattr(self, "cluster"):
                await self.cluster.close()
            return
        self._closing = asyncio.current_task()
        try:
            await self._close(timeout_ms)
        finally:
            self._is_open = False
            self._closed.set()

    async def _until_closed(self) -> None:
        """Wait for the call that closes this consumer, unless the caller is that call: a listener's."""
        if self._closing is not asyncio.current_task():
            await self._closed.wait()

    async def _close(self, timeout_ms: float) -> None:
        self.look()  # calls of other tasks that wait for records end
        deadline_ms = self.clock.monotonic_ms() + timeout_ms
        self._is_giving_up = True
        try:
            async with asyncio.timeout(timeout_ms / 1_000):
                await self._give_up_partitions(deadline_ms)
        except TimeoutError:
            logger.warning("the consumer could not commit and leave within %.0f ms", timeout_ms)
        except (CommitFailed, KafkaError, ClusterUnreachable) as error:
            logger.warning("the last commit of the consumer failed: %s", error)
        finally:
            self._is_giving_up = False
            left_ms = max(0.0, deadline_ms - self.clock.monotonic_ms())
            await self._stop(left_ms)

    async def _give_up_partitions(self, deadline_ms: float) -> None:
        """Commit, and notify the listener, before the member leaves."""
        member = self.member
        self.hand.abandon()
        if self.owner is not None:
            await self.owner.release(self.positions.assignment)
        try:
            await self.settle_auto_commit(max(1.0, deadline_ms - self.clock.monotonic_ms()))
            if self._commits_by_itself:
                left_ms = max(1.0, deadline_ms - self.clock.monotonic_ms())
                await self.commit_positions(left_ms, skips_unknown=True)
        finally:
            if member is not None and member.owned:
                await self._notify("on_revoked" if member.epoch >= 0 else "on_lost", member.owned)

    async def _stop(self, left_ms: float) -> None:
        if self._auto_commit is not None:
            self._auto_commit.cancel()
            await asyncio.wait((self._auto_commit,))
        if self._coordination is not None:
            await self._coordination.leave(left_ms)
            await self._coordination.stop()
        await self.fetching.stop()
        await self.updates.stop()
        self.positions.keep_only(())
        await self.cluster.close()

    def check_open(self, *, in_listener: bool = False) -> None:
        """Raise unless the consumer is open. A listener may make some calls while the consumer closes."""
        if self._is_closed and not (in_listener and self._is_giving_up):
            raise ClientClosed("this consumer is closed")
        if not self._is_open:
            raise IllegalState("this consumer is not started: use it with `async with`, or await start()")

    # --- subscription ---

    async def subscribe(
        self,
        topics: Collection[str] = (),
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Read these topics, or all whose name matches the pattern. The group divides their partitions."""
        self.check_open()
        if self.settings.group_id is None or self.commits is None:
            raise InvalidGroupId("a subscription needs a group: set group.id, or assign partitions by hand")
        if not topics and pattern is None:
            await self.unsubscribe()
            return
        if pattern is not None:
            self.subscription.subscribe_pattern(pattern)
        else:
            self.subscription.subscribe(topics)
        if listener is not None:
            self._listener = listener
        self.subscription.want(self.cluster.metadata)
        self.subscription.match(self.cluster.metadata)
        self.cluster.updates.request()
        if self._coordination is None:
            self._coordinate(await self._new_member())
        assert self._coordination is not None
        member = self._coordination.member
        self.commits.member = member
        self._end_refusal(member)
        member.subscribe(self.subscription.topics)
        self._coordination.start()
        self._coordination.wake()
        self.look()

    async def unsubscribe(self) -> None:
        """Give all partitions up, and leave the group."""
        self.check_open()
        timeout_ms = self.settings.default_api_timeout_ms
        await self._give_up_partitions(self.clock.monotonic_ms() + timeout_ms)
        if self._coordination is not None:
            await self._coordination.leave(timeout_ms)
        self.positions.keep_only(())
        self._is_refused = False
        self.subscription.clear()
        if self.commits is not None:
            self.commits.member = None if self._coordination is None else self.commits.member

    async def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions, without the group's help."""
        self.check_open()
        self.hand.abandon()
        self.subscription.assign(partitions)
        assert self.subscription.assigned is not None
        self.subscription.want(self.cluster.metadata)
        self.cluster.updates.request()
        if self.commits is not None:
            self.commits.member = None
        self.positions.keep_only(self.subscription.assigned)
        self.positions.add(self.subscription.assigned)
        self.updates.wake()
        self.look()

    @property
    def member(self) -> Membership | None:
        by_group = self._coordination is not None and self.subscription.is_by_group
        return self._coordination.member if by_group and self._coordination is not None else None

    async def _new_member(self) -> Membership:
        settings = self.settings
        protocol = settings.group_protocol
        if protocol is None:
            channel = await self.cluster.any_channel()
            protocol = "consumer" if channel.supports(ApiKey.CONSUMER_GROUP_HEARTBEAT) else "classic"
        kind = ConsumerProtocolMember if protocol == "consumer" else ClassicMember
        return kind(self._group_options(), self.cluster.metadata, self.clock, self._randomness)

    def _group_options(self) -> GroupOptions:
        settings = self.settings
        assert settings.group_id is not None
        return GroupOptions(
            group_id=settings.group_id,
            instance_id=settings.group_instance_id,
            session_timeout_ms=settings.session_timeout_ms,
            heartbeat_interval_ms=settings.heartbeat_interval_ms,
            max_poll_interval_ms=settings.max_poll_interval_ms,
            rack=settings.client_rack or None,
            remote_assignor=settings.group_remote_assignor,
            assignors=tuple(settings.partition_assignment_strategy),
            backoff=Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms),
        )

    def _coordinate(self, member: Membership) -> None:
        assert self.commits is not None
        assert self.settings.group_id is not None
        self.commits.member = member
        self._coordination = Coordination(
            self.cluster,
            self.settings.group_id,
            member,
            on_event=self.look,
            on_metadata_wanted=self._want_metadata,
            has_taken=self._has_taken,
            on_failure=self._broke,
        )

    # --- news from the background ---

    def look(self) -> None:
        """Make the application's next call look for events, errors and records."""
        self.hand.attention = True
        self._arrived.set()

    def _broke(self, error: BaseException) -> None:
        """A background task has ended: every call for records raises its error from now on."""
        logger.error("a background task of the consumer has ended: %r", error, exc_info=error)
        self._failure = self._failure or error
        self.look()

    def check_working(self) -> None:
        if self._failure is not None:
            raise BackgroundFailed(
                f"a background task of this consumer has ended: {self._failure!r}; close the consumer"
            ) from self._failure

    def _positions_wanted(self) -> None:
        self.positions.leaders_changed(self.cluster.metadata, can_validate=True)
        self.updates.wake()

    def _positions_updated(self) -> None:
        if self.updates.errors:
            self.look()
        self.fetching.pump()

    def _metadata_updated(self) -> None:
        metadata = self.cluster.metadata
        if self.subscription.match(metadata) and self._coordination is not None:
            self._coordination.member.subscribe(self.subscription.topics)
        self.positions.leaders_changed(metadata, can_validate=True)
        if self._coordination is not None:
            self._coordination.member.metadata_changed()
            self._coordination.wake()
        self.updates.wake()
        self.fetching.pump()

    def _want_metadata(self) -> None:
        assert self._coordination is not None
        if self.subscription.is_by_group:
            self.subscription.want(self.cluster.metadata, self._coordination.member.wants_topics)
        self.cluster.updates.request()

    def _has_taken(self) -> bool:
        """True when `async for` has moved on since the last call."""
        before, self._taken_before = self._taken_before, self.hand.index
        return self.hand.index != before

    async def wait(self, timeout_ms: float) -> None:
        """Wait for news, at most until the next automatic commit."""
        if self._commits_in_the_background and len(self.positions):
            due_in_ms = self._auto_commit_ms - self.clock.monotonic_ms()
            if due_in_ms > 0:  # else it was done before this wait
                timeout_ms = min(timeout_ms, due_in_ms)
        if member := self.member:
            timeout_ms = min(timeout_ms, self.settings.max_poll_interval_ms / 2)
            member.polled()
        try:
            async with asyncio.timeout(None if timeout_ms == math.inf else max(0.0, timeout_ms) / 1_000):
                await self._arrived.wait()
        except TimeoutError:
            pass

    async def attend(self, *, is_owner: bool = False) -> None:
        """Handle what came up since the last call: events of the group, errors, automatic commits.

        An owner counts the records that it takes as its own. Those that another call took would be committed
        without being processed.
        """
        # Fetches and heartbeats run on the loop: an application that never waits must not keep them from it.
        await asyncio.sleep(0)
        if is_owner and self._closing is not None:
            await self._until_closed()  # the close waits for the handlers
        self.check_open()
        if self.owner is not None and not is_owner:
            raise IllegalState("this consumer is processing: its records go to the handler of process()")
        self.check_working()
        self.cluster.connections.check_loop()
        self._arrived.clear()
        self.hand.abandon()
        self.hand.attention = False
        member = self.member
        if member is not None and self._coordination is not None:
            member.polled()
            if self._is_refused:
                self._end_refusal(member)
                member.subscribe(self.subscription.topics)
            while (event := member.event) is not None:
                await self._handle(event)
                if self.member is not member:
                    break
                member.event_done()
                self._coordination.wake()
            self._coordination.wake()
        if self.updates.errors:
            raise self.updates.errors.take()
        if self.plans.errors:
            raise self.plans.errors.take()
        self._auto_commit_if_due()

    # --- rebalances ---

    async def _handle(self, event: Event) -> None:
        if isinstance(event, Failed):
            await self._refused(event.error)
        elif isinstance(event, Assigned):
            self.positions.add(event.partitions)
            await self._notify("on_assigned", event.partitions)
            self.positions.leaders_changed(self.cluster.metadata, can_validate=True)
            self.updates.wake()
        elif isinstance(event, Revoked):
            await self._revoke(event.partitions)
        elif isinstance(event, Lost):
            self.positions.remove(event.partitions)
            if self.owner is not None:
                self.owner.lose(event.partitions)
            await self._notify("on_lost", event.partitions)

    async def _revoke(self, partitions: frozenset[TopicPartition]) -> None:
        for at in partitions:
            state = self.positions.get(at)
            if state is not None:
                state.is_revoked = True
        if self.owner is not None and partitions:
            await self.owner.release(partitions)
        await self.settle_auto_commit(self.settings.default_api_timeout_ms)
        if self._commits_by_itself:
            try:
                await self.commit_positions(self.settings.default_api_timeout_ms, skips_unknown=True)
            except (CommitFailed, KafkaError, ClusterUnreachable) as error:
                logger.warning("group %s: commit before a rebalance: %s", self.settings.group_id, error)
        if partitions:
            await self._notify("on_revoked", partitions)
        self.positions.remove(partitions)
        if self.owner is not None:
            self.owner.released(partitions)

    async def _refused(self, error: Exception) -> None:
        """The coordinator refuses this member. Without the consumer protocol, the classic one is used.

        A member that is refused for good is out of the group. The next call for records joins again, as with
        Java's consumer: the reason may be gone, and otherwise the application would wait for nothing.
        """
        member = self.member
        assert member is not None
        assert self._coordination is not None
        falls_back = isinstance(error, UnsupportedVersion) and self.settings.group_protocol is None
        if falls_back and isinstance(member, ConsumerProtocolMember):
            logger.info("group %s: the broker has no consumer protocol: %s", self.settings.group_id, error)
            await self._coordination.stop()
            classic = ClassicMember(
                self._group_options(), self.cluster.metadata, self.clock, self._randomness
            )
            self._coordinate(classic)
            classic.subscribe(self.subscription.topics)
            self._coordination.start()
            return
        if member.is_out:
            lost, member.owned = member.owned, NOTHING
            if lost:
                await self._handle(Lost(lost))
            self.positions.keep_only(())
            self._is_refused = True
        member.event_done()
        raise error

    def _end_refusal(self, member: Membership) -> None:
        if self._is_refused:
            self._is_refused = False
            member.begin_again()

    async def _notify(self, method: str, partitions: frozenset[TopicPartition]) -> None:
        if self._listener is not None:
            outcome = getattr(self._listener, method)(partitions)
            if inspect.isawaitable(outcome):
                await outcome

    # --- commits ---

    @property
    def _commits_by_itself(self) -> bool:
        return self.commits is not None and (self.settings.enable_auto_commit or self.owner is not None)

    @property
    def _commits_in_the_background(self) -> bool:
        """True when `auto.commit.interval.ms` applies. An owner, such as `process`, commits for itself."""
        return self._commits_by_itself and self.owner is None

    def offsets(self) -> dict[TopicPartition, CommittedOffset]:
        """Offsets that may be committed now."""
        return self.hand.offsets() if self.owner is None else self.owner.offsets()

    async def commit_positions(
        self, timeout_ms: float, *, skips_unknown: bool = False
    ) -> dict[TopicPartition, CommittedOffset]:
        offsets = self.offsets()
        deleted = await self.commit(offsets, timeout_ms, skips_unknown=skips_unknown)
        return {at: each for at, each in offsets.items() if at not in deleted}

    async def commit(
        self,
        offsets: Mapping[TopicPartition, CommittedOffset],
        timeout_ms: float,
        *,
        skips_unknown: bool = False,
    ) -> AbstractSet[TopicPartition]:
        """Commit offsets. Commits that the application did not ask for skip partitions that are deleted, and
        return them.
        """
        if self.commits is None:
            raise InvalidGroupId("a commit needs a group: set group.id")
        deleted = await self.commits.commit(offsets, timeout_ms, skips_unknown=skips_unknown)
        kept = {at: each.offset for at, each in offsets.items() if at not in deleted}
        if kept and self.interceptors:
            self.interceptors.on_commit(kept)
        return deleted

    def _auto_commit_if_due(self) -> None:
        now_ms = self.clock.monotonic_ms()
        if not self._commits_in_the_background or now_ms < self._auto_commit_ms:
            return
        self._auto_commit_ms = now_ms + self.settings.auto_commit_interval_ms
        offsets = self.offsets()
        if offsets and (self._auto_commit is None or self._auto_commit.done()):
            self._auto_commit = asyncio.get_running_loop().create_task(self._commit_quietly(offsets))

    async def settle_auto_commit(self, timeout_ms: float) -> None:
        """Wait for an automatic commit in flight: a retry of it must not follow a later commit."""
        if self._auto_commit is None or self._auto_commit.done():
            return
        await asyncio.wait((self._auto_commit,), timeout=timeout_ms / 1_000)
        if not self._auto_commit.done():
            self._auto_commit.cancel()

    async def _commit_quietly(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        try:
            await self.commit(offsets, self.settings.default_api_timeout_ms, skips_unknown=True)
        except (CommitFailed, KafkaError, ClusterUnreachable) as error:
            logger.warning("group %s: automatic commit: %s", self.settings.group_id, error)
