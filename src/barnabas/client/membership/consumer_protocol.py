"""Member of a group by the consumer protocol (KIP-848).

One request, ConsumerGroupHeartbeat, joins, reports, and receives the target assignment. The broker assigns;
the member reconciles: it gives partitions up, takes new ones, and acknowledges with its next heartbeat. A
partition is assigned only when its previous owner has acknowledged that it gave it up.

    UNSUBSCRIBED  no subscription, or left
    JOINING       a heartbeat with epoch 0 is due or in flight
    RECONCILING   events wait for the owner; heartbeats continue
    ACKNOWLEDGING the next heartbeat reports the owned partitions, at once
    STABLE        heartbeats at the interval that the broker sets
    FENCED        the coordinator forgot this member; after the Lost event it joins again
    LEAVING       a heartbeat with epoch -1 (-2 for a static member) is due
    STALE         left because the application took no records; the next poll joins again
    FATAL         refused for good

A heartbeat names only fields that changed. After a failure it names all of them, because the coordinator may
not have received the last one, or may be a new one.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Collection
from enum import Enum, auto
from typing import Final

from barnabas.client.core.metadata import Metadata
from barnabas.client.membership.interface import (
    NOTHING,
    Ask,
    Assigned,
    Event,
    Failed,
    GroupOptions,
    Lost,
    Partitions,
    PollTimer,
    RetryTimer,
    Revoked,
)
from barnabas.core.clock import Clock
from barnabas.core.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    FencedMemberEpoch,
    KafkaError,
    NotCoordinator,
    TopicAuthorizationFailed,
    UnknownMemberId,
    error_for,
)
from barnabas.core.ids import Randomness, TopicPartition, Uuid
from barnabas.core.transitions import Transitions
from barnabas.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from barnabas.protocol.schema.message import Message

logger = logging.getLogger(__name__)

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
LEAVE_FOR_A_WHILE_EPOCH: Final = -2
OUTSIDE: Final = -1


class State(Enum):
    UNSUBSCRIBED = auto()
    JOINING = auto()
    RECONCILING = auto()
    ACKNOWLEDGING = auto()
    STABLE = auto()
    FENCED = auto()
    LEAVING = auto()
    STALE = auto()
    FATAL = auto()


_IN_GROUP: Final = frozenset({State.JOINING, State.RECONCILING, State.ACKNOWLEDGING, State.STABLE})

TRANSITIONS: Final = Transitions(
    {
        State.UNSUBSCRIBED: frozenset(State),
        State.JOINING: frozenset({State.UNSUBSCRIBED, State.FENCED, State.STALE}),
        State.RECONCILING: frozenset({State.JOINING, State.ACKNOWLEDGING, State.STABLE}),
        State.ACKNOWLEDGING: frozenset({State.RECONCILING}),
        State.STABLE: frozenset({State.JOINING, State.ACKNOWLEDGING}),
        State.FENCED: _IN_GROUP,
        State.LEAVING: _IN_GROUP,
        State.STALE: frozenset({State.LEAVING}),
        State.FATAL: _IN_GROUP | {State.LEAVING},
    }
)


class ConsumerProtocolMember:
    def __init__(
        self, options: GroupOptions, metadata: Metadata, clock: Clock, randomness: Randomness
    ) -> None:
        self.owned: Partitions = NOTHING
        self.member_id = str(Uuid.generate(randomness))
        self.epoch = OUTSIDE
        self.wants_topics: Collection[str] = ()
        self.wants_metadata = False
        self.forgets_coordinator = False
        self.state = State.UNSUBSCRIBED
        self._options = options
        self._metadata = metadata
        self._clock = clock
        self._retry = RetryTimer(clock, randomness, options.backoff)
        self._polls = PollTimer(clock, options.max_poll_interval_ms)
        self._events: deque[Event] = deque()
        self._topics: list[str] = []
        self._target: list[tuple[Uuid, int]] | None = None
        """Assignment of the broker that is not reconciled yet, by topic id."""
        self._in_flight = False
        self._acknowledges = False
        """True while the heartbeat in flight reports the reconciled assignment."""
        self._is_stale = False
        """True while it leaves because the application takes no records."""
        self._interval_ms = 0.0
        self._beats_ms = -math.inf
        self._said_topics: list[str] | None = None
        self._said_owned: Partitions | None = None
        """Assignment that the coordinator knows of. None: unknown, so that the next heartbeat reports it."""

    # --- the owner's side ---

    @property
    def event(self) -> Event | None:
        return self._events[0] if self._events else None

    @property
    def is_out(self) -> bool:
        """True when nothing is left to send."""
        return self.state in (State.UNSUBSCRIBED, State.FATAL) or (
            self.state is State.STALE and not self._in_flight
        )

    def event_done(self) -> None:
        """The owner has handled `event`."""
        event = self._events.popleft()
        if isinstance(event, Assigned):
            self.owned |= event.partitions
        elif isinstance(event, Revoked | Lost):
            self.owned -= event.partitions
        if self._events:
            return
        if self.state is State.RECONCILING:
            self._go(State.ACKNOWLEDGING)
        elif self.state is State.FENCED:
            self._lose()
        elif self.state is State.STALE and self.owned:
            self._events.append(Lost(self.owned))

    def subscribe(self, topics: Collection[str]) -> None:
        self._topics = sorted(set(topics))
        if self.state is State.UNSUBSCRIBED:
            self._polls.polled()
            self._join()

    def polled(self) -> None:
        """The application takes records."""
        self._polls.polled()
        if self.state is State.STALE and not self._events:
            self._join()

    def metadata_changed(self) -> None:
        self._reconcile()

    def leave(self) -> None:
        """Leave the group. Partitions are given up without events: the owner has handled them before."""
        self._events.clear()
        self.owned = NOTHING
        self._target = None
        self.wants_metadata = False
        self._is_stale = False
        if self.state in _IN_GROUP and (self.epoch != OUTSIDE or self._in_flight):
            self._retry.succeeded()
            self._go(State.LEAVING)
        elif self.state is not State.LEAVING:
            self.epoch = OUTSIDE
            self._go(State.UNSUBSCRIBED)

    def begin_again(self) -> None:
        """Forget a refusal: `subscribe` joins again."""
        self._events.clear()
        self._target = None
        self.wants_metadata = False
        self._go(State.UNSUBSCRIBED)

    def rejoin(self) -> None:
        """Heartbeat at once, for an assignment that may be new."""
        self._beats_ms = -math.inf

    # --- requests ---

    def wakes_ms(self) -> float:
        """Time at which `next_ask` may have a request, or the poll deadline passes."""
        if self._in_flight or self.state in (
            State.UNSUBSCRIBED,
            State.FATAL,
            State.FENCED,
            State.STALE,
        ):
            return math.inf
        if self._is_urgent:
            return self._retry.until_ms
        return min(max(self._beats_ms, self._retry.until_ms), self._polls.due_ms)

    @property
    def _is_urgent(self) -> bool:
        return (
            self.state in (State.JOINING, State.ACKNOWLEDGING, State.LEAVING)
            or self._said_topics != self._topics
        )

    def next_ask(self) -> Ask | None:
        if self._in_flight:
            return None
        if self.state in _IN_GROUP and self._polls.is_over:
            logger.warning(
                "group %s: member %s leaves: no records were taken for max.poll.interval.ms"
                " (%d); raise it, or take fewer records at a time (max.poll.records)",
                self._options.group_id,
                self.member_id,
                self._options.max_poll_interval_ms,
            )
            self._is_stale = True
            self._go(State.LEAVING)
        now_ms = self._clock.monotonic_ms()
        if now_ms < self.wakes_ms():
            return None
        request = self._leaving() if self.state is State.LEAVING else self._heartbeat()
        self._in_flight = True
        self._beats_ms = now_ms + self._interval_ms
        return Ask(request, ConsumerGroupHeartbeatResponse)

    def _leaving(self) -> ConsumerGroupHeartbeatRequest:
        static = self._options.instance_id is not None
        return ConsumerGroupHeartbeatRequest(
            group_id=self._options.group_id,
            member_id=self.member_id,
            member_epoch=LEAVE_FOR_A_WHILE_EPOCH if static else LEAVE_EPOCH,
            instance_id=self._options.instance_id,
        )

    def _heartbeat(self) -> ConsumerGroupHeartbeatRequest:
        options = self._options
        joins = self.state is State.JOINING
        says_all = joins or self._said_owned is None
        request = ConsumerGroupHeartbeatRequest(
            group_id=options.group_id,
            member_id=self.member_id,
            member_epoch=JOIN_EPOCH if joins else self.epoch,
            instance_id=options.instance_id,
        )
        if says_all:
            request.rack_id = options.rack
            request.rebalance_timeout_ms = int(options.max_poll_interval_ms)
            request.server_assignor = options.remote_assignor
        if says_all or self._said_topics != self._topics:
            request.subscribed_topic_names = self._topics
        self._acknowledges = self.state is State.ACKNOWLEDGING
        if says_all or self._acknowledges:
            request.topic_partitions = self._owned_by_id()
        self._said_topics, self._said_owned = self._topics, self.owned
        return request

    def _owned_by_id(self) -> list[TopicPartitions]:
        by_topic: dict[str, list[int]] = {}
        for topic, partition in sorted(self.owned):
            by_topic.setdefault(topic, []).append(partition)
        return [
            TopicPartitions(topic_id=known.topic_id, partitions=numbers)
            for topic, numbers in by_topic.items()
            if (known := self._metadata.topic(topic)) is not None
        ]

    # --- answers ---

    def failed(self, ask: Ask, error: Exception) -> None:  # noqa: ARG002 - the interface's name
        """The request got no answer."""
        self._in_flight = False
        self._say_all()
        self.forgets_coordinator = True
        self._retry.failed()
        if isinstance(error, KafkaError) and not error.retriable:
            self._refuse(error)

    def answered(self, ask: Ask, answer: Message) -> None:
        assert isinstance(answer, ConsumerGroupHeartbeatResponse)
        assert isinstance(ask.request, ConsumerGroupHeartbeatRequest)
        self._in_flight = False
        if ask.request.member_epoch < 0:
            self._left(answer.error_code)
            return
        if answer.error_code:
            self._answered_error(error_for(answer.error_code, answer.error_message or ""))
            return
        self._retry.succeeded()
        self.member_id = answer.member_id or self.member_id
        if self.state not in _IN_GROUP:
            self.epoch = answer.member_epoch if self.state is State.LEAVING else OUTSIDE
            return
        self.epoch = answer.member_epoch
        self._interval_ms = answer.heartbeat_interval_ms
        self._beats_ms = min(self._beats_ms, self._clock.monotonic_ms() + self._interval_ms)
        if ask.request.member_epoch == JOIN_EPOCH:
            self._beats_ms = self._clock.monotonic_ms() + self._interval_ms
        if self.state is State.JOINING or (self.state is State.ACKNOWLEDGING and self._acknowledges):
            self._go(State.STABLE)
        if answer.assignment is not None:
            self._target = [
                (topic.topic_id, partition)
                for topic in answer.assignment.topic_partitions
                for partition in topic.partitions
            ]
        self._reconcile()

    def _left(self, error_code: int) -> None:
        if error_code in (CoordinatorNotAvailable.code, NotCoordinator.code, CoordinatorLoadInProgress.code):
            self.forgets_coordinator = True
            self._retry.failed()
            return
        self.epoch = OUTSIDE
        if not self._is_stale:
            self._go(State.UNSUBSCRIBED)
            return
        self._is_stale = False
        self._go(State.STALE)
        # The owner may be in the middle of the first event.
        self._events = deque([self._events[0]] if self._events else [])
        if self.owned and not self._events:
            self._events.append(Lost(self.owned))

    def _answered_error(self, error: KafkaError) -> None:
        self._say_all()
        if isinstance(error, FencedMemberEpoch | UnknownMemberId):
            self._fence(error)
        elif isinstance(error, CoordinatorNotAvailable | NotCoordinator):
            self.forgets_coordinator = True
            self._retry.failed()
        elif isinstance(error, TopicAuthorizationFailed):
            # A right may be granted later: the member stays, and each attempt fails until then.
            if not any(isinstance(each, Failed) for each in self._events):
                self._events.append(Failed(error))
            self._retry.failed()
        elif error.retriable:
            self._retry.failed()
        else:
            self._refuse(error)

    def _fence(self, error: KafkaError) -> None:
        if self.state is State.LEAVING:
            self.epoch = OUTSIDE
            self._left(0)
            return
        if self.state not in _IN_GROUP:
            return
        logger.info("group %s: member %s joins again: %s", self._options.group_id, self.member_id, error)
        self.epoch = OUTSIDE
        self._target = None
        busy = self.state is State.RECONCILING
        self._go(State.FENCED)
        # The owner may be in the middle of the first event.
        self._events = deque([self._events[0]] if busy and self._events else [])
        if not self._events:
            self._lose()

    def _lose(self) -> None:
        if self.owned:
            self._events.append(Lost(self.owned))
        else:
            self._join()

    def _join(self) -> None:
        self.epoch = OUTSIDE
        self._say_all()
        self._go(State.JOINING)

    def _refuse(self, error: KafkaError) -> None:
        if self.state in _IN_GROUP or self.state is State.LEAVING:
            self.epoch = OUTSIDE
            self._go(State.FATAL)
            self._events = deque([*(each for each in (self.event,) if each), Failed(error)])

    def _say_all(self) -> None:
        self._said_topics = self._said_owned = None

    def _reconcile(self) -> None:
        """Begin with the target, unless events are under way or names of topics are missing."""
        if self._target is None or self.state not in (State.STABLE, State.JOINING, State.ACKNOWLEDGING):
            return
        names = self._metadata.names
        self.wants_metadata = any(topic_id not in names for topic_id, _ in self._target)
        known = frozenset(
            TopicPartition(names[topic_id], partition)
            for topic_id, partition in self._target
            if topic_id in names
        )
        if not self.wants_metadata:
            self._target = None
        if known == self.owned:
            return
        revoked, added = self.owned - known, known - self.owned
        self._go(State.RECONCILING)
        if revoked:
            self._events.append(Revoked(revoked))
        if added:
            self._events.append(Assigned(added))

    def _go(self, state: State) -> None:
        TRANSITIONS.check(self.state, state)
        self.state = state
