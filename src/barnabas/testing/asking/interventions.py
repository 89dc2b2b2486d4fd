"""Interventions of a test in its cluster: move a leader, rebalance a group, fence a member or a producer.

All go through Kafka's protocol, as an administrator or another client would cause them. So clients see what
they see in production, and no state of the broker is touched from outside.
"""

from __future__ import annotations

import asyncio
from typing import Final

from barnabas.client.admin.elections import ElectionType, elect_leaders
from barnabas.client.admin.groups import GroupDescription, Groups
from barnabas.client.admin.reassignment import Reassignments
from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.core.steps import Steps, raise_for
from barnabas.client.core.transaction_steps import begin
from barnabas.client.membership.classic_messages import encode_subscription
from barnabas.core.errors import GroupIdNotFound, KafkaError, MemberIdRequired
from barnabas.core.ids import TopicPartition
from barnabas.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from barnabas.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from barnabas.testing.asking.inspection import NO_LEADER, partition_of

LOOKS_EVERY_S: Final = 0.02
FENCING_TIMEOUT_MS: Final = 60_000
JOIN_TIMEOUT_MS: Final = 10_000
CONSUMER: Final = "consumer"
_LEAVES: Final = -1
"""Member epoch with which a member leaves a group of the consumer protocol."""
_JOINS_ON: Final = "barnabas-test-kit-join"
"""A join is answered when all members have joined, so it has a connection of its own."""


async def move_leader(
    cluster: ClusterClient, topic: str, partition: int, to: int, *, timeout_s: float
) -> None:
    """Make a broker the leader of a partition, and a replica first if it is none. Returns when clients see
    it. Raises TimeoutError."""
    at = TopicPartition(topic, partition)
    replicas = (await partition_of(cluster, topic, partition)).replicas
    others = [each for each in replicas if each != to]
    wanted = [to, *others[: len(replicas) - 1]]
    leader = NO_LEADER
    try:
        async with asyncio.timeout(timeout_s):
            if wanted != list(replicas):
                await Reassignments(cluster).alter({at: wanted})
            while True:
                now = await partition_of(cluster, topic, partition)
                leader = now.leader_id
                if leader == to and to in now.isr:
                    return
                if to in now.isr:
                    await elect_leaders(cluster, ElectionType.PREFERRED, [at])
                await asyncio.sleep(LOOKS_EVERY_S)
    except TimeoutError:
        leading = "no broker" if leader == NO_LEADER else f"broker {leader}"
        raise TimeoutError(f"broker {to} does not lead {at} after {timeout_s:g} s; {leading} does") from None


async def fence_producer(cluster: ClusterClient, transactional_id: str) -> None:
    """Take over a transactional id: its producer is fenced, and its open transaction aborted."""
    await cluster.run(begin(cluster.state, transactional_id, FENCING_TIMEOUT_MS))


async def remove_member(cluster: ClusterClient, group: str, member_id: str) -> None:
    """Remove a member from its group, of either protocol. The member learns it with its next request."""
    described = await Groups(cluster).describe(group)
    await _leave(cluster, described, member_id)


async def remove_members(cluster: ClusterClient, group: str) -> int:
    """Remove all members of a group; returns their number."""
    described = await Groups(cluster).describe(group)
    for each in described.members:
        await _leave(cluster, described, each.member_id)
    return len(described.members)


async def rebalance(cluster: ClusterClient, group: str) -> None:
    """Begin a rebalance: a member without topics joins, and leaves again. The members notice it with their
    next heartbeat."""
    described = await Groups(cluster).describe(group)
    if not described.members:
        raise GroupIdNotFound(f"group {group} has no members, so there is nothing to rebalance")
    if described.type == CONSUMER:
        member_id = await _join_consumer_group(cluster, group)
    else:
        member_id = await _join_classic_group(cluster, described)
    await _leave(cluster, described, member_id)


async def _join_consumer_group(cluster: ClusterClient, group: str) -> str:
    request = ConsumerGroupHeartbeatRequest(
        group_id=group, member_id="", member_epoch=0, rebalance_timeout_ms=JOIN_TIMEOUT_MS,
        subscribed_topic_names=[], topic_partitions=[],
    )  # fmt: skip

    def attempt() -> Steps[str]:
        answer = yield from Groups(cluster).ask(group, request, ConsumerGroupHeartbeatResponse)
        raise_for(answer.error_code, answer.error_message, f"joining group {group}")
        return answer.member_id or ""

    return await cluster.run_with_retries(attempt)


async def _join_classic_group(cluster: ClusterClient, described: GroupDescription) -> str:
    """Join until the coordinator has begun to wait for the other members."""
    group = described.group_id
    metadata = encode_subscription([], (), generation=-1, rack=None, user_data=None)
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=JOIN_TIMEOUT_MS,
        rebalance_timeout_ms=JOIN_TIMEOUT_MS,
        protocol_type=CONSUMER,
        protocols=[JoinGroupRequestProtocol(name=described.assignor, metadata=metadata)],
    )
    channel = await cluster.channel_to(described.coordinator_id, _JOINS_ON)
    answer = await channel.send(request, JoinGroupResponse)
    if answer.error_code != MemberIdRequired.code:
        raise_for(answer.error_code, None, f"joining group {group}")
    request.member_id = answer.member_id
    joining = asyncio.ensure_future(channel.send(request, JoinGroupResponse))
    while not joining.done():
        if (await Groups(cluster).describe(group)).state != "Stable":
            break
        await asyncio.sleep(LOOKS_EVERY_S)
    joining.add_done_callback(_forget)
    return answer.member_id


def _forget(joining: asyncio.Future[JoinGroupResponse]) -> None:
    """A member that has left needs no answer."""
    if not joining.cancelled():
        joining.exception()


async def _leave(cluster: ClusterClient, described: GroupDescription, member_id: str) -> None:
    group = described.group_id
    consumer = ConsumerGroupHeartbeatRequest(group_id=group, member_id=member_id, member_epoch=_LEAVES)
    classic = LeaveGroupRequest(
        group_id=group, members=[MemberIdentity(member_id=member_id, reason="removed by a test")]
    )

    def attempt() -> Steps[None]:
        groups = Groups(cluster)
        if described.type == CONSUMER:
            beaten = yield from groups.ask(group, consumer, ConsumerGroupHeartbeatResponse)
            raise_for(beaten.error_code, beaten.error_message, f"member {member_id} of group {group}")
        else:
            left = yield from groups.ask(group, classic, LeaveGroupResponse)
            raise_for(left.error_code, None, f"group {group}")
            for each in left.members:
                raise_for(each.error_code, None, f"member {member_id} of group {group}")

    await cluster.run_with_retries(attempt)


def is_refusal(error: BaseException) -> bool:
    """Whether an intervention was refused, rather than broken."""
    return isinstance(error, KafkaError | RuntimeError | TimeoutError | ValueError)
