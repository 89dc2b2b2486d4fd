"""The group coordinator as the broker's handlers see it.

Each request goes to the shard of its group's partition, `abs(javaHash(group)) mod partitions`; a request
about many groups is spread over their shards and its answers gathered. Every method takes `respond` and
calls it exactly once with the response, errors included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from barnabas.coordinator.decision import Decision
from barnabas.coordinator.group.callers import Caller
from barnabas.coordinator.group.settings import GroupSettings
from barnabas.coordinator.group.shard import GroupShard
from barnabas.coordinator.routing import Gathering, partition_of
from barnabas.coordinator.runtime import CoordinatorRuntime, Producer
from barnabas.core.errors import (
    CoordinatorLoadInProgress,
    InvalidCommitOffsetSize,
    InvalidGroupId,
    InvalidSessionTimeout,
    KafkaError,
    MessageTooLarge,
    NotCoordinator,
    RecordListTooLarge,
    UnknownMemberId,
)
from barnabas.core.ids import Uuid
from barnabas.protocol.messages import consumer_group_describe
from barnabas.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from barnabas.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from barnabas.protocol.messages.describe_groups import DescribedGroup
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
)
from barnabas.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from barnabas.records.record import EndTransactionMarker

OFFSETS_TOPIC = "__consumer_offsets"

R = TypeVar("R")
T = TypeVar("T")


class Once(Generic[R]):
    """An answer that is given at most once: a member that is let go may be refused a second time."""

    __slots__ = ("_respond",)

    def __init__(self, respond: Callable[[R], None]) -> None:
        self._respond: Callable[[R], None] | None = respond

    def __call__(self, response: R) -> None:
        respond, self._respond = self._respond, None
        if respond is not None:
            respond(response)


class GroupCoordinator:
    def __init__(
        self,
        runtime: CoordinatorRuntime[GroupShard],
        settings: GroupSettings,
        partition_count: Callable[[], int],
    ) -> None:
        self.runtime = runtime
        self.settings = settings
        self._partition_count = partition_count

    def partition_for(self, group_id: str) -> int:
        return partition_of(group_id, self._partition_count())

    def _run(
        self,
        group_id: str,
        decide: Callable[[GroupShard], Decision[R]],
        respond: Callable[[R], None],
        refuse: Callable[[KafkaError], None],
    ) -> None:
        self.runtime.run(self.partition_for(group_id), decide, respond, refuse)

    # Membership

    def join(
        self, request: JoinGroupRequest, caller: Caller, respond: Callable[[JoinGroupResponse], None]
    ) -> None:
        answer = Once(respond)

        def refuse(error: KafkaError) -> None:
            answer(JoinGroupResponse(error_code=error.code, member_id=request.member_id))

        settings = self.settings
        if not request.group_id:
            refuse(InvalidGroupId("a group id has at least one character"))
        elif (
            not settings.min_session_timeout_ms
            <= request.session_timeout_ms
            <= settings.max_session_timeout_ms
        ):
            refuse(InvalidSessionTimeout(f"a session of {request.session_timeout_ms} ms is not allowed"))
        else:
            self._run(request.group_id, lambda shard: shard.join(request, caller, answer), answer, refuse)

    def sync(self, request: SyncGroupRequest, respond: Callable[[SyncGroupResponse], None]) -> None:
        answer = Once(respond)

        def refuse(error: KafkaError) -> None:
            answer(SyncGroupResponse(error_code=error.code))

        if not request.group_id:
            refuse(InvalidGroupId("a group id has at least one character"))
        else:
            self._run(request.group_id, lambda shard: shard.sync(request, answer), answer, refuse)

    def heartbeat(self, request: HeartbeatRequest, respond: Callable[[HeartbeatResponse], None]) -> None:
        def refuse(error: KafkaError) -> None:
            # While the group is being loaded its members are not to panic.
            is_loading = isinstance(error, CoordinatorLoadInProgress)
            respond(HeartbeatResponse(error_code=0 if is_loading else error.code))

        if not request.group_id:
            refuse(InvalidGroupId("a group id has at least one character"))
        else:
            self._run(request.group_id, lambda shard: shard.heartbeat(request), respond, refuse)

    def leave(self, request: LeaveGroupRequest, respond: Callable[[LeaveGroupResponse], None]) -> None:
        def refuse(error: KafkaError) -> None:
            if isinstance(error, UnknownMemberId):
                respond(
                    LeaveGroupResponse(
                        members=[
                            MemberResponse(
                                member_id=member.member_id,
                                group_instance_id=member.group_instance_id,
                                error_code=error.code,
                            )
                            for member in request.members
                        ]
                    )
                )
            else:
                respond(LeaveGroupResponse(error_code=error.code))

        if not request.group_id:
            refuse(InvalidGroupId("a group id has at least one character"))
        else:
            self._run(request.group_id, lambda shard: shard.leave(request), respond, refuse)

    def consumer_heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        caller: Caller,
        respond: Callable[[ConsumerGroupHeartbeatResponse], None],
    ) -> None:
        self._run(
            request.group_id,
            lambda shard: shard.consumer_heartbeat(request, caller),
            respond,
            lambda error: respond(
                ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
            ),
        )

    # Offsets

    def commit_offsets(
        self, request: OffsetCommitRequest, caller: Caller, respond: Callable[[OffsetCommitResponse], None]
    ) -> None:
        def refuse(error: KafkaError) -> None:
            code = as_commit_error(error).code
            respond(
                OffsetCommitResponse(
                    topics=[
                        OffsetCommitResponseTopic(
                            name=topic.name,
                            topic_id=topic.topic_id,
                            partitions=[
                                OffsetCommitResponsePartition(
                                    partition_index=each.partition_index, error_code=code
                                )
                                for each in topic.partitions
                            ],
                        )
                        for topic in request.topics
                    ]
                )
            )

        self._run(
            request.group_id, lambda shard: shard.offset_requests.commit(request, caller), respond, refuse
        )

    def commit_transactional_offsets(
        self,
        request: TxnOffsetCommitRequest,
        api_version: int,
        respond: Callable[[TxnOffsetCommitResponse], None],
    ) -> None:
        """Offsets that count once the transaction of the request's producer is committed."""

        def refuse(error: KafkaError) -> None:
            code = as_commit_error(error).code
            respond(
                TxnOffsetCommitResponse(
                    topics=[
                        TxnOffsetCommitResponseTopic(
                            name=topic.name,
                            topic_id=topic.topic_id,
                            partitions=[
                                TxnOffsetCommitResponsePartition(
                                    partition_index=each.partition_index, error_code=code
                                )
                                for each in topic.partitions
                            ],
                        )
                        for topic in request.topics
                    ]
                )
            )

        if not request.group_id:
            refuse(InvalidGroupId("a group id has at least one character"))
            return
        self.runtime.run(
            self.partition_for(request.group_id),
            lambda shard: shard.offset_requests.commit_in_transaction(request, api_version),
            respond,
            refuse,
            producer=Producer(request.producer_id, request.producer_epoch),
        )

    def complete_transaction(
        self,
        partition: int,
        producer: Producer,
        marker: EndTransactionMarker,
        respond: Callable[[None], None],
        refuse: Callable[[KafkaError], None],
    ) -> None:
        """A marker for a partition of the offsets topic: append it and let the staged offsets count."""
        self.runtime.complete_transaction(partition, producer, marker, respond, refuse)

    def fetch_offsets(
        self,
        requests: Sequence[OffsetFetchRequestGroup],
        *,
        require_stable: bool,
        respond: Callable[[list[OffsetFetchResponseGroup]], None],
    ) -> None:
        gathering = Gathering(len(requests), respond)
        for place, request in enumerate(requests):
            self._fetch_one(place, request, require_stable, gathering)

    def _fetch_one(
        self,
        place: int,
        request: OffsetFetchRequestGroup,
        require_stable: bool,
        gathering: Gathering[OffsetFetchResponseGroup],
    ) -> None:
        self._run(
            request.group_id,
            lambda shard: shard.offset_requests.fetch(request, require_stable=require_stable),
            lambda response: gathering.put(place, response),
            lambda error: gathering.put(
                place, OffsetFetchResponseGroup(group_id=request.group_id, error_code=error.code)
            ),
        )

    def delete_offsets(
        self, request: OffsetDeleteRequest, respond: Callable[[OffsetDeleteResponse], None]
    ) -> None:
        def refuse(error: KafkaError) -> None:
            respond(OffsetDeleteResponse(error_code=error.code))

        if not request.group_id:
            refuse(InvalidGroupId("a group id has at least one character"))
        else:
            self._run(request.group_id, lambda shard: shard.offset_requests.delete(request), respond, refuse)

    def topic_deleted(self, topic: str, topic_id: Uuid) -> None:
        """Forget the offsets of a topic that is gone, in every shard."""
        self.runtime.carry_through(
            lambda shard, end_offset: shard.offset_requests.topic_deleted(topic, topic_id, end_offset)
        )

    # Administration

    def list_groups(self, request: ListGroupsRequest, respond: Callable[[ListGroupsResponse], None]) -> None:
        states = frozenset(state.strip().lower() for state in request.states_filter)
        types = frozenset(name.strip().lower() for name in request.types_filter)
        partitions = self.runtime.partitions()
        errors: list[KafkaError] = []

        def done(parts: list[list[ListedGroup]]) -> None:
            if errors:
                respond(ListGroupsResponse(error_code=errors[0].code))
            else:
                respond(ListGroupsResponse(groups=[group for part in parts for group in part]))

        gathering = Gathering(len(partitions), done)
        for place, partition in enumerate(partitions):
            self._list_one(place, partition, states, types, gathering, errors)

    def _list_one(
        self,
        place: int,
        partition: int,
        states: frozenset[str],
        types: frozenset[str],
        gathering: Gathering[list[ListedGroup]],
        errors: list[KafkaError],
    ) -> None:
        def refuse(error: KafkaError) -> None:
            if not isinstance(error, NotCoordinator):
                errors.append(error)
            gathering.put(place, [])

        self.runtime.run(
            partition,
            lambda shard: shard.list_groups(states, types),
            lambda listed: gathering.put(place, listed),
            refuse,
        )

    def describe_groups(
        self, group_ids: Sequence[str], respond: Callable[[list[DescribedGroup]], None]
    ) -> None:
        def described(error: KafkaError, group_id: str) -> DescribedGroup:
            return DescribedGroup(error_code=error.code, error_message=error.message, group_id=group_id)

        self._each(group_ids, lambda shard, group_id: shard.describe(group_id), described, respond)

    def describe_consumer_groups(
        self,
        group_ids: Sequence[str],
        respond: Callable[[list[consumer_group_describe.DescribedGroup]], None],
    ) -> None:
        def described(error: KafkaError, group_id: str) -> consumer_group_describe.DescribedGroup:
            return consumer_group_describe.DescribedGroup(
                error_code=error.code, error_message=error.message, group_id=group_id
            )

        self._each(
            group_ids, lambda shard, group_id: shard.describe_consumer_group(group_id), described, respond
        )

    def delete_groups(
        self, group_ids: Sequence[str], respond: Callable[[DeleteGroupsResponse], None]
    ) -> None:
        def refused(error: KafkaError, group_id: str) -> DeletableGroupResult:
            return DeletableGroupResult(
                group_id=group_id, error_code=error.code, error_message=error.message or None
            )

        def decide(shard: GroupShard, group_id: str) -> Decision[DeletableGroupResult]:
            decision = shard.delete_group(group_id)
            return Decision(
                DeletableGroupResult(group_id=group_id), decision.records, is_atomic=decision.is_atomic
            )

        self._each(group_ids, decide, refused, lambda results: respond(DeleteGroupsResponse(results=results)))

    def _each(
        self,
        group_ids: Iterable[str],
        decide: Callable[[GroupShard, str], Decision[T]],
        refused: Callable[[KafkaError, str], T],
        respond: Callable[[list[T]], None],
    ) -> None:
        """The same for each of some groups; duplicates count once."""
        wanted = list(dict.fromkeys(group_ids))
        gathering = Gathering(len(wanted), respond)
        for place, group_id in enumerate(wanted):
            self._one(place, group_id, decide, refused, gathering)

    def _one(
        self,
        place: int,
        group_id: str,
        decide: Callable[[GroupShard, str], Decision[T]],
        refused: Callable[[KafkaError, str], T],
        gathering: Gathering[T],
    ) -> None:
        self._run(
            group_id,
            lambda shard: decide(shard, group_id),
            lambda part: gathering.put(place, part),
            lambda error: gathering.put(place, refused(error, group_id)),
        )


def as_commit_error(error: KafkaError) -> KafkaError:
    """A commit of more partitions than fit into one batch has an error of its own."""
    if isinstance(error, MessageTooLarge | RecordListTooLarge):
        return InvalidCommitOffsetSize(error.message)
    return error
