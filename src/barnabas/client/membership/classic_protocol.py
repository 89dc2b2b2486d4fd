"""Member of a group by the classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

JoinGroup returns when every member has joined, and names a leader. The leader assigns the partitions and
sends the assignment with SyncGroup. From then on heartbeats keep the member in the group, and an answer
REBALANCE_IN_PROGRESS makes it join again.

    UNJOINED   no subscription, or left
    PREPARING  events wait for the owner before the member joins; heartbeats continue
    JOINING    JoinGroup is due or in flight
    ASSIGNING  the leader waits for the metadata of the group's topics
    SYNCING    SyncGroup is due or in flight
    STABLE     heartbeats
    LEAVING    LeaveGroup is due or in flight
    STALE      left because the application took no records; the next poll joins again
    FATAL      refused for good

Eager assignors (range, roundrobin, sticky) give all partitions up before they join. When every configured
assignor is cooperative, members keep their partitions, give up those that the assignment lacks, and join once
more. A generation that the coordinator no longer knows means that partitions are lost, not revoked.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Collection
from enum import Enum, auto
from typing import Final

from barnabas.client.core.metadata import Metadata
from barnabas.client.membership.assignors import ASSIGNORS, COOPERATIVE, MemberSubscription
from barnabas.client.membership.classic_messages import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_sticky,
    encode_subscription,
)
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
    CoordinatorNotAvailable,
    IllegalGeneration,
    InconsistentGroupProtocol,
    KafkaError,
    MemberIdRequired,
    NotCoordinator,
    RebalanceInProgress,
    UnknownMemberId,
    error_for,
)
from barnabas.core.ids import Randomness, TopicPartition
from barnabas.core.transitions import Transitions
from barnabas.protocol.errors import MalformedMessage
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from barnabas.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from barnabas.protocol.schema.message import Message

logger = logging.getLogger(__name__)

OUTSIDE: Final = -1
CONSUMER: Final = "consumer"
JOIN_MARGIN_MS: Final = 5_000
"""JoinGroup is answered within the rebalance timeout; this is the way there and back."""


class State(Enum):
    UNJOINED = auto()
    PREPARING = auto()
    JOINING = auto()
    ASSIGNING = auto()
    SYNCING = auto()
    STABLE = auto()
    LEAVING = auto()
    STALE = auto()
    FATAL = auto()


_REBALANCING: Final = frozenset({State.PREPARING, State.JOINING, State.ASSIGNING, State.SYNCING})
_IN_GROUP: Final = _REBALANCING | {State.STABLE}

TRANSITIONS: Final = Transitions(
    {
        State.UNJOINED: frozenset(State),
        State.PREPARING: frozenset({State.UNJOINED, State.STABLE, State.STALE}) | _REBALANCING,
        State.JOINING: frozenset({State.PREPARING, State.JOINING, State.SYNCING, State.ASSIGNING}),
        State.ASSIGNING: frozenset({State.JOINING}),
        State.SYNCING: frozenset({State.JOINING, State.ASSIGNING}),
        State.STABLE: frozenset({State.SYNCING}),
        State.LEAVING: _IN_GROUP | {State.FATAL},
        State.STALE: _IN_GROUP | {State.LEAVING},
        State.FATAL: _IN_GROUP | {State.LEAVING},
    }
)


class ClassicMember:
    def __init__(
        self, options: GroupOptions, metadata: Metadata, clock: Clock, randomness: Randomness
    ) -> None:
        self.owned: Partitions = NOTHING
        self.member_id = ""
        self.epoch = OUTSIDE
        self.wants_topics: Collection[str] = ()
        self.wants_metadata = False
        self.forgets_coordinator = False
        self.state = State.UNJOINED
        self._options = options
        self._metadata = metadata
        self._clock = clock
        self._retry = RetryTimer(clock, randomness, options.backoff)
        self._polls = PollTimer(clock, options.max_poll_interval_ms)
        self._is_cooperative = COOPERATIVE.issuperset(options.assignors)
        self._events: deque[Event] = deque()
        self._topics: list[str] = []
        self._joined_topics: list[str] = []
        self._in_flight: Message | None = None
        self._is_stale = False
        self._must_rejoin = False
        self._beats_ms = -math.inf
        self._assignor = ""
        self._members: dict[str, MemberSubscription] = {}
        """Members of this generation, if this one is their leader."""
        self._shares: list[SyncGroupRequestAssignment] = []
        self._counts: dict[str, int] | None = None
        """Partition counts that the leader's assignment is made of. None: another member leads."""
        self._last: tuple[Partitions, int] = (NOTHING, OUTSIDE)
        """Last assignment and its generation, for the sticky assignor."""

    # --- the owner's side ---

    @property
    def event(self) -> Event | None:
        return self._events[0] if self._events else None

    @property
    def is_out(self) -> bool:
        return self.state in (State.UNJOINED, State.FATAL) or (
            self.state is State.STALE and self._in_flight is None
        )

    def event_done(self) -> None:
        event = self._events.popleft()
        if isinstance(event, Assigned):
            self.owned |= event.partitions
        elif isinstance(event, Revoked | Lost):
            self.owned -= event.partitions
        if self._events:
            return
        if self.state is State.PREPARING:
            self._prepared()
        elif self.state is State.STALE and self.owned:
            self._events.append(Lost(self.owned))

    def subscribe(self, topics: Collection[str]) -> None:
        self._topics = sorted(set(topics))
        if self.state is State.UNJOINED:
            self._polls.polled()
            self._prepare()
        elif self._topics != self._joined_topics:
            self._must_rejoin = True

    def polled(self) -> None:
        self._polls.polled()
        if self.state is State.STALE and not self._events:
            self._prepare()

    def metadata_changed(self) -> None:
        if self.state is State.ASSIGNING and self.wants_metadata:
            self.wants_metadata = False
            self._assign()
        elif self.state is State.STABLE and self._counts is not None and self._counts != self._known_counts():
            logger.info("group %s: partitions of its topics changed", self._options.group_id)
            self._must_rejoin = True

    def leave(self) -> None:
        """Leave the group. A static member only stops: its session keeps its partitions. A member that was
        refused leaves too: the coordinator may still count it, and others would wait for its session.
        """
        self._events.clear()
        self.owned = NOTHING
        self.wants_metadata = self._is_stale = self._must_rejoin = False
        known = bool(self.member_id) or isinstance(self._in_flight, JoinGroupRequest)
        counts = self.state in _IN_GROUP or self.state is State.FATAL
        if counts and known and self._options.instance_id is None:
            self._retry.succeeded()
            self._go(State.LEAVING)
        elif self.state is not State.LEAVING:
            self.epoch = OUTSIDE
            self._go(State.UNJOINED)

    def begin_again(self) -> None:
        """Forget a refusal: `subscribe` joins again."""
        self._events.clear()
        self._go(State.UNJOINED)

    def rejoin(self) -> None:
        """Join again, because a commit showed that the group rebalances."""
        self._must_rejoin = True

    # --- requests ---

    def wakes_ms(self) -> float:
        if self._in_flight is not None or self.state in (State.UNJOINED, State.FATAL, State.STALE):
            return math.inf
        if self.state in (State.JOINING, State.SYNCING, State.LEAVING) or self._may_prepare:
            return self._retry.until_ms
        beats_ms = math.inf
        if self.state in (State.STABLE, State.PREPARING) and self.epoch != OUTSIDE:
            beats_ms = max(self._beats_ms, self._retry.until_ms)
        return min(beats_ms, self._polls.due_ms)

    @property
    def _may_prepare(self) -> bool:
        return self._must_rejoin and self.state is State.STABLE and not self._events

    def next_ask(self) -> Ask | None:
        if self._in_flight is not None:
            return None
        if self.state in _IN_GROUP and self._polls.is_over:
            self._become_stale()
        if self._may_prepare:
            self._prepare()
        now_ms = self._clock.monotonic_ms()
        if now_ms < self.wakes_ms():
            return None
        ask = self._ask()
        if ask is not None:
            self._in_flight = ask.request
            self._beats_ms = now_ms + self._options.heartbeat_interval_ms
        return ask

    def _ask(self) -> Ask | None:
        options = self._options
        if self.state is State.JOINING:
            timeout_ms = options.max_poll_interval_ms + JOIN_MARGIN_MS
            return Ask(self._join(), JoinGroupResponse, timeout_ms)
        if self.state is State.SYNCING:
            timeout_ms = options.max_poll_interval_ms + JOIN_MARGIN_MS
            return Ask(self._sync(), SyncGroupResponse, timeout_ms)
        if self.state is State.LEAVING:
            member = MemberIdentity(member_id=self.member_id, reason="the consumer is being closed")
            request = LeaveGroupRequest(group_id=options.group_id, members=[member])
            return Ask(request, LeaveGroupResponse)
        if self.epoch == OUTSIDE:
            return None
        beat = HeartbeatRequest(
            group_id=options.group_id,
            generation_id=self.epoch,
            member_id=self.member_id,
            group_instance_id=options.instance_id,
        )
        return Ask(beat, HeartbeatResponse, options.session_timeout_ms)

    def _become_stale(self) -> None:
        logger.warning(
            "group %s: member %s leaves: no records were taken for max.poll.interval.ms (%d);"
            " raise it, or take fewer records at a time (max.poll.records)",
            self._options.group_id,
            self.member_id,
            self._options.max_poll_interval_ms,
        )
        if self._options.instance_id is None and self.member_id:
            self._is_stale = True
            self._go(State.LEAVING)
        else:
            self._stale()

    def _stale(self) -> None:
        self._go(State.STALE)
        self._is_stale = False
        self.epoch = OUTSIDE
        # The owner may be in the middle of the first event.
        self._events = deque([self._events[0]] if self._events else [])
        if self.owned and not self._events:
            self._events.append(Lost(self.owned))

    def _prepare(self) -> None:
        """Give partitions up before joining, as far as the assignors want it."""
        self._must_rejoin = False
        self._go(State.PREPARING)
        if self.epoch == OUTSIDE:
            if self.owned:
                self._events.append(Lost(self.owned))
        elif self._is_cooperative:
            unread = frozenset(each for each in self.owned if each.topic not in self._topics)
            self._events.append(Revoked(unread))
        else:
            self._events.append(Revoked(self.owned))
        if not self._events:
            self._prepared()

    def _prepared(self) -> None:
        if self.epoch == OUTSIDE and self.owned:
            self._events.append(Lost(self.owned))  # the generation ended during the preparation
        else:
            self._go(State.JOINING)

    def _join(self) -> JoinGroupRequest:
        options = self._options
        self._joined_topics = self._topics
        protocols = []
        for name in options.assignors:
            user_data = encode_sticky(*self._last) if name == "sticky" else None
            metadata = encode_subscription(self._topics, self.owned, self.epoch, options.rack, user_data)
            protocols.append(JoinGroupRequestProtocol(name=name, metadata=metadata))
        return JoinGroupRequest(
            group_id=options.group_id,
            session_timeout_ms=int(options.session_timeout_ms),
            rebalance_timeout_ms=int(options.max_poll_interval_ms),
            member_id=self.member_id,
            group_instance_id=options.instance_id,
            protocol_type=CONSUMER,
            protocols=protocols,
        )

    def _sync(self) -> SyncGroupRequest:
        return SyncGroupRequest(
            group_id=self._options.group_id,
            generation_id=self.epoch,
            member_id=self.member_id,
            group_instance_id=self._options.instance_id,
            protocol_type=CONSUMER,
            protocol_name=self._assignor,
            assignments=self._shares,
        )

    # --- answers ---

    def failed(self, ask: Ask, error: Exception) -> None:  # noqa: ARG002 - the interface's name
        self._in_flight = None
        self.forgets_coordinator = True
        self._retry.failed()
        if self.state in (State.SYNCING, State.ASSIGNING):
            self._prepare()
        if isinstance(error, KafkaError) and not error.retriable:
            self._refuse(error)

    def answered(self, ask: Ask, answer: Message) -> None:
        self._in_flight = None
        code: int = getattr(answer, "error_code", 0)
        if isinstance(answer, LeaveGroupResponse):
            self._left(code)
        elif code:
            self._answered_error(ask, answer, error_for(code, f"group {self._options.group_id}"))
        elif isinstance(answer, JoinGroupResponse):
            self._joined(answer)
        elif isinstance(answer, SyncGroupResponse):
            self._synced(answer)
        else:
            self._retry.succeeded()

    def _left(self, code: int) -> None:
        if code and error_for(code).retriable:
            self.forgets_coordinator = True
            self._retry.failed()
            return
        self.epoch = OUTSIDE
        self.member_id = ""
        if self._is_stale:
            self._stale()
        else:
            self._go(State.UNJOINED)

    def _answered_error(self, ask: Ask, answer: Message, error: KafkaError) -> None:
        if isinstance(error, MemberIdRequired):
            assert isinstance(answer, JoinGroupResponse)
            self.member_id = answer.member_id
            return
        if isinstance(error, UnknownMemberId | IllegalGeneration):
            self.epoch = OUTSIDE
            if isinstance(error, UnknownMemberId):
                self.member_id = ""
            self._again(error)
        elif isinstance(error, RebalanceInProgress):
            if not isinstance(ask.request, HeartbeatRequest):
                self._retry.failed()
            self._again(error)
        elif isinstance(error, CoordinatorNotAvailable | NotCoordinator):
            self.forgets_coordinator = True
            self._retry.failed()
            if self.state is State.SYNCING:
                self._again(error)
        elif error.retriable:
            self._retry.failed()
        else:
            self._refuse(error)

    def _again(self, error: KafkaError) -> None:
        """Join again, after the events that are under way."""
        if self.state is State.STABLE:
            logger.info("group %s: member %s joins again: %s", self._options.group_id, self.member_id, error)
            self._must_rejoin = True
        elif self.state in (State.JOINING, State.SYNCING, State.ASSIGNING):
            self._prepare()
        elif self.state is State.LEAVING and self.epoch == OUTSIDE:
            self._left(0)

    def _joined(self, answer: JoinGroupResponse) -> None:
        self._retry.succeeded()
        self.member_id = answer.member_id
        if self.state is not State.JOINING:
            return  # it leaves; the answer came late
        self.epoch = answer.generation_id
        self._assignor = answer.protocol_name or ""
        self._counts = None
        self._shares = []
        self.wants_topics = ()
        if answer.leader != answer.member_id or answer.skip_assignment:
            self._go(State.SYNCING)
            return
        if self._assignor not in self._options.assignors:
            self._refuse(InconsistentGroupProtocol(f"the coordinator chose the assignor {self._assignor!r}"))
            return
        self._members = {}
        for each in answer.members:
            try:
                self._members[each.member_id] = decode_subscription(
                    each.metadata, each.group_instance_id, self._assignor
                )
            except MalformedMessage as error:
                logger.warning(
                    "group %s: member %s gets nothing, as its subscription is damaged: %s",
                    self._options.group_id,
                    each.member_id,
                    error,
                )
                self._members[each.member_id] = MemberSubscription(())
        self.wants_topics = sorted({topic for each in self._members.values() for topic in each.topics})
        self.wants_metadata = True
        self._go(State.ASSIGNING)

    def _known_counts(self) -> dict[str, int]:
        counts = {topic: self._metadata.partition_count(topic) for topic in self.wants_topics}
        return {topic: count for topic, count in counts.items() if count}

    def _assign(self) -> None:
        self._counts = self._known_counts()
        shares = ASSIGNORS[self._assignor](self._counts, self._members)
        self._shares = [
            SyncGroupRequestAssignment(member_id=member, assignment=encode_assignment(share))
            for member, share in shares.items()
        ]
        self._go(State.SYNCING)

    def _synced(self, answer: SyncGroupResponse) -> None:
        self._retry.succeeded()
        if self.state is not State.SYNCING:
            return
        try:
            assigned = decode_assignment(answer.assignment)
        except MalformedMessage as error:
            self._refuse(InconsistentGroupProtocol(f"the leader's assignment cannot be decoded: {error}"))
            return
        self._go(State.STABLE)
        self._shares = []
        self._last = (assigned, self.epoch)
        revoked, added = self.owned - assigned, assigned - self.owned
        if revoked:
            self._events.append(Revoked(revoked))
            self._must_rejoin = True
        if added or not self._is_cooperative:
            self._events.append(Assigned(frozenset(map(TopicPartition._make, added))))
        if self._topics != self._joined_topics:
            self._must_rejoin = True

    def _refuse(self, error: KafkaError) -> None:
        if self.state in _IN_GROUP or self.state is State.LEAVING:
            self.epoch = OUTSIDE
            self._go(State.FATAL)
            self._events = deque([*(each for each in (self.event,) if each), Failed(error)])

    def _go(self, state: State) -> None:
        TRANSITIONS.check(self.state, state)
        self.state = state
