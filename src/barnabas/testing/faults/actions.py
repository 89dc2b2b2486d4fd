"""Actions of fault rules: what happens around a request before the broker handles it.

| action | what it does |
|---|---|
| `fence-producer` | another producer takes over the transactional id of the request |
| `fence-member` | the member that sends the request leaves its group |
| `rebalance` | the group of the request rebalances |
| `move-leader` | partitions of the request move to another broker of the cluster |
| `expire-session` | the broker's session with the coordination store ends |
| `stall-disk`, `fill-disk` | writes wait, or fail with ENOSPC, until the disk is healed |

The first four go through Kafka's protocol. A request that names no transactional id, or no member, does not
match.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Literal, get_args

from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.core.ids import TopicPartition
from barnabas.protocol.schema.message import Message
from barnabas.testing.asking import inspection, interventions
from barnabas.testing.faults.disk import Disk
from barnabas.testing.faults.selection import TRANSACTIONAL_IDS

logger = logging.getLogger(__name__)

Action = Literal[
    "fence-producer", "fence-member", "rebalance", "move-leader", "expire-session", "stall-disk", "fill-disk"
]
ACTIONS: Final[tuple[str, ...]] = get_args(Action)
_OF_CLUSTERS: Final = frozenset({"move-leader", "expire-session"})
MOVE_TIMEOUT_S: Final = 10.0


def check_action(action: str, *, in_cluster: bool) -> None:
    """Raise ValueError for an action that this broker cannot carry out."""
    if action not in ACTIONS:
        raise ValueError(f"action={action!r}: write one of {', '.join(ACTIONS)}")
    if action in _OF_CLUSTERS and not in_cluster:
        raise ValueError(f"action={action!r} needs other brokers: use run_cluster")


def applies(action: Action | None, request: Message) -> bool:
    """Whether the request names what the action is about."""
    match action:
        case "fence-producer":
            return bool(transactional_id_of(request))
        case "fence-member":
            return bool(getattr(request, "member_id", "") and getattr(request, "group_id", ""))
        case "rebalance":
            return bool(getattr(request, "group_id", ""))
        case _:
            return True


def transactional_id_of(request: Message) -> str:
    found = [getattr(request, name, None) for name in TRANSACTIONAL_IDS]
    found += [each.transactional_id for each in getattr(request, "transactions", None) or ()]
    return next((each for each in found if each), "")


class Actions:
    """Carries out the actions of one broker's rules."""

    def __init__(self, disk: Callable[[], Disk]) -> None:
        self._disk = disk
        self.client: Callable[[], ClusterClient] | None = None
        """Client of the kit, for this broker or its cluster."""
        self.loop: Callable[[], asyncio.AbstractEventLoop] | None = None
        """Loop on which the client runs; None for the broker's own."""
        self.expire_session: Callable[[], Awaitable[object]] | None = None

    async def carry_out(self, action: Action, request: Message, places: Sequence[TopicPartition]) -> None:
        """Returns when it is done. An action that fails is logged: the request goes on as if without it."""
        try:
            if self.loop is None:
                await self._carry_out(action, request, places)
            else:
                done = asyncio.run_coroutine_threadsafe(self._carry_out(action, request, places), self.loop())
                await asyncio.wrap_future(done)
        except Exception as error:
            if not interventions.is_refusal(error):
                raise
            logger.warning("the action %s of a fault rule failed: %s", action, error)

    async def _carry_out(self, action: Action, request: Any, places: Sequence[TopicPartition]) -> None:
        match action:
            case "stall-disk":
                self._disk().stall()
            case "fill-disk":
                self._disk().fail("ENOSPC")
            case "expire-session":
                assert self.expire_session is not None
                await self.expire_session()
            case _:
                assert self.client is not None
                async with self.client() as cluster:
                    await _in_cluster(cluster, action, request, places)


async def _in_cluster(
    cluster: ClusterClient, action: Action, request: Any, places: Sequence[TopicPartition]
) -> None:
    match action:
        case "fence-producer":
            await interventions.fence_producer(cluster, transactional_id_of(request))
        case "fence-member":
            await interventions.remove_member(cluster, request.group_id, request.member_id)
        case "rebalance":
            await interventions.rebalance(cluster, request.group_id)
        case "move-leader":
            for topic, partition in places:
                found = await inspection.partition_of(cluster, topic, partition)
                others = [each for each in found.replicas if each != found.leader_id and each in found.isr]
                if others:
                    await interventions.move_leader(
                        cluster, topic, partition, others[0], timeout_s=MOVE_TIMEOUT_S
                    )
