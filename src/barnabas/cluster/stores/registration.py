"""Broker registration: persistent paths, cluster id, broker id and the ephemeral node of a live broker.

The registration is an ephemeral node, and two things can go wrong with it.

- The response to its creation is lost. The retry then finds a node that belongs to our own session.
- An earlier session of this broker has not ended yet. If it was this process's own, its node is deleted. If
  the process was killed and restarted, the node goes away within the session timeout. Until then it looks
  like another live broker with the same id. So registration waits, and fails only if the node outlives that.
"""

from __future__ import annotations

import logging

from barnabas.cluster.coordination.contract import (
    OPERATION_RETRY_MS,
    ConnectionLoss,
    Coordination,
    Create,
    NodeExists,
    NoNode,
    SessionExpired,
    SetData,
    Stat,
)
from barnabas.cluster.znodes.brokers import BrokerIdZnode, BrokerInfo, BrokerSequenceZnode
from barnabas.cluster.znodes.layout import PERSISTENT_PATHS, ClusterIdZnode
from barnabas.core.clock import Clock
from barnabas.core.errors import DuplicateBrokerRegistration
from barnabas.core.ids import BrokerId, Randomness, Uuid
from barnabas.core.scheduler import Scheduler
from barnabas.core.waiting import Signal

logger = logging.getLogger(__name__)


async def make_persistent_paths(znodes: Coordination) -> None:
    """Create the nodes that every broker expects."""
    await znodes.make_paths(PERSISTENT_PATHS)


async def get_or_create_cluster_id(
    znodes: Coordination, randomness: Randomness, remembered: str | None
) -> str:
    """Cluster id of 22 characters, created by the first broker of the cluster.

    `remembered` is the cluster id in the broker's data directory, if it has been part of a cluster before.
    """
    while True:
        try:
            data, _ = await znodes.get(ClusterIdZnode.PATH)
        except NoNode:
            proposed = ClusterIdZnode.encode(remembered or str(Uuid.generate(randomness)))
            try:
                await znodes.create(ClusterIdZnode.PATH, proposed, make_parents=True)
            except NodeExists:
                continue
            data = proposed
        return ClusterIdZnode.decode(data)


async def generate_broker_id(znodes: Coordination, reserved_broker_max_id: int) -> BrokerId:
    """Unused broker id above those an operator may choose, from the version of `/brokers/seqid`."""
    while True:
        try:
            stat = await znodes.set(BrokerSequenceZnode.PATH, b"")
        except NoNode:
            try:
                await znodes.create(BrokerSequenceZnode.PATH, make_parents=True)
            except NodeExists:
                logger.debug("another broker created %s", BrokerSequenceZnode.PATH)
        else:
            return BrokerId(reserved_broker_max_id + stat.version)


class Registration:
    """Registration of one broker, over all its sessions."""

    def __init__(self, znodes: Coordination, clock: Clock, scheduler: Scheduler) -> None:
        self._znodes = znodes
        self._clock = clock
        self._scheduler = scheduler
        self._own_sessions: set[int] = set()

    async def register(self, broker: BrokerInfo) -> BrokerInfo:
        """Register in the current session, or in the next one; returns the broker with its epoch.

        The registration is retried while the store is unreachable, as in Apache Kafka. Raises
        DuplicateBrokerRegistration if another live broker has the id.
        """
        path = BrokerIdZnode.path(broker.id)
        data = BrokerIdZnode.encode(broker._replace(timestamp_ms=self._clock.now_ms()))
        patience_ms = self._znodes.session_timeout_ms * 1.5
        deadline_ms = self._clock.monotonic_ms() + patience_ms
        while True:
            try:
                session_id = self._znodes.session_id
                self._own_sessions.add(session_id)
                stat = await self._create(path, data)
                if stat is None or self._znodes.session_id != session_id:
                    continue
                logger.info("broker %d is registered (broker epoch %d)", broker.id, stat.czxid)
                return broker._replace(epoch=stat.czxid)
            except NodeExists:
                if self._clock.monotonic_ms() >= deadline_ms:
                    raise DuplicateBrokerRegistration(
                        f"broker id {broker.id} is registered by another live broker"
                    ) from None
                await self._wait_until_gone(path, deadline_ms)
            except (ConnectionLoss, SessionExpired):
                await Signal().wait_at_most(OPERATION_RETRY_MS, self._scheduler)
                # An earlier session does not end while the store is unreachable.
                deadline_ms = self._clock.monotonic_ms() + patience_ms

    async def unregister(self, broker_id: int) -> None:
        """Remove the registration, if it belongs to this session."""
        path = BrokerIdZnode.path(broker_id)
        stat = await self._znodes.exists(path)
        if stat is not None and stat.ephemeral_owner == self._znodes.session_id:
            await self._znodes.delete(path)

    async def _create(self, path: str, data: bytes) -> Stat | None:
        """Stat of our node; NodeExists if another session owns it; None if it was deleted meanwhile."""
        znodes = self._znodes
        try:
            # A set in the same transaction returns the stat, which a create does not.
            _, stat = await znodes.multi([Create(path, b"", ephemeral=True), SetData(path, data, 0)])
        except NodeExists:
            present = await znodes.exists(path)
            if present is None or present.ephemeral_owner == znodes.session_id:
                return present
            if present.ephemeral_owner not in self._own_sessions:
                raise
            logger.info("%s belongs to an earlier session of this broker and is deleted", path)
            try:
                await znodes.delete(path, present.version)
            except NoNode:
                logger.debug("%s was already deleted", path)
            return None
        assert isinstance(stat, Stat)
        return stat

    async def _wait_until_gone(self, path: str, deadline_ms: float) -> None:
        changed = Signal()
        if await self._znodes.exists(path, lambda _: changed.set()) is None:
            return
        left_ms = deadline_ms - self._clock.monotonic_ms()
        logger.info(
            "%s belongs to a session that has not ended, such as that of this broker before it was killed. "
            "Its end comes within the session timeout of %.1f s; waiting for at most %.1f s",
            path,
            self._znodes.session_timeout_ms / 1_000,
            left_ms / 1_000,
        )
        await changed.wait_at_most(max(0.0, left_ms), self._scheduler)
        waited_ms = left_ms - (deadline_ms - self._clock.monotonic_ms())
        if waited_ms < left_ms:
            logger.info("%s was released after %.1f s", path, waited_ms / 1_000)
