"""How a broker joins: the paths everyone expects, the cluster's id, an id of its own, and its presence.

Registration is an ephemeral node, and two things go wrong with those. The answer to its creation may be lost:
then the retry finds a node, and that it belongs to our own session tells that it is ours. Or an earlier
session of this broker has not ended yet: if it was this process's own, its node is deleted; if not
(the process was killed and restarted), it goes away within the session timeout, and until then
nobody can tell it from another live broker with the same id, so registration waits for it and gives up
only when it outlives that.
"""

from __future__ import annotations

import logging
from typing import Final

from barnabas.cluster.broker_znodes import BrokerIdZnode, BrokerInfo, BrokerSequenceZnode
from barnabas.cluster.coordination import (
    ConnectionLoss,
    Coordination,
    Create,
    NodeExists,
    NoNode,
    SessionExpired,
    SetData,
    Stat,
)
from barnabas.cluster.znodes import PERSISTENT_PATHS, ClusterIdZnode
from barnabas.core.clock import Clock
from barnabas.core.errors import DuplicateBrokerRegistration
from barnabas.core.ids import BrokerId, Randomness, Uuid
from barnabas.core.scheduler import Scheduler
from barnabas.core.waiting import Runner, Signal

logger = logging.getLogger(__name__)

CONNECTION_RETRY_MS: Final = 100


async def make_persistent_paths(znodes: Coordination) -> None:
    """Make the nodes that every broker expects."""
    await znodes.make_paths(PERSISTENT_PATHS)


async def get_or_create_cluster_id(
    znodes: Coordination, randomness: Randomness, remembered: str | None = None
) -> str:
    """The cluster's id: 22 characters, made by the first broker that ever asked.

    `remembered` is what that broker's data directory says, if it has lived in a cluster before."""
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
    """An id nobody has had: above those an operator may choose, by the version of `/brokers/seqid`."""
    while True:
        try:
            stat = await znodes.set(BrokerSequenceZnode.PATH, b"")
        except NoNode:
            try:
                await znodes.create(BrokerSequenceZnode.PATH, make_parents=True)
            except NodeExists:
                logger.debug("another broker made %s", BrokerSequenceZnode.PATH)
        else:
            return BrokerId(reserved_broker_max_id + stat.version)


class Registration:
    """One broker's presence in the cluster, over all its sessions."""

    def __init__(self, znodes: Coordination, clock: Clock, scheduler: Scheduler, runner: Runner) -> None:
        self._znodes = znodes
        self._clock = clock
        self._scheduler = scheduler
        self._runner = runner
        self._own_sessions: set[int] = set()

    async def register(self, broker: BrokerInfo) -> BrokerInfo:
        """Be present in the current session, or in the next if that is lost; returns the broker with its
        epoch. While the store is out of reach, this goes on, as it does in Apache Kafka.

        Raises DuplicateBrokerRegistration if another live broker has the id.
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
                logger.info("registered broker %d with epoch %d", broker.id, stat.czxid)
                return broker._replace(epoch=stat.czxid)
            except NodeExists:
                if self._clock.monotonic_ms() >= deadline_ms:
                    raise DuplicateBrokerRegistration(
                        f"broker id {broker.id} is registered by another live broker"
                    ) from None
                await self._wait_until_gone(path, deadline_ms)
            except (ConnectionLoss, SessionExpired):
                await Signal(self._runner).wait_at_most(CONNECTION_RETRY_MS, self._scheduler)
                # An earlier session does not end while the store is away.
                deadline_ms = self._clock.monotonic_ms() + patience_ms

    async def unregister(self, broker_id: int) -> None:
        """Leave, if the presence is this session's."""
        path = BrokerIdZnode.path(broker_id)
        stat = await self._znodes.exists(path)
        if stat is not None and stat.ephemeral_owner == self._znodes.session_id:
            await self._znodes.delete(path)

    async def _create(self, path: str, data: bytes) -> Stat | None:
        """The node's stat once it is ours; NodeExists if it is somebody's; None if it went meanwhile."""
        znodes = self._znodes
        try:
            # A set in the same transaction answers with the stat, which a create does not.
            _, stat = await znodes.multi([Create(path, b"", ephemeral=True), SetData(path, data, 0)])
        except NodeExists:
            present = await znodes.exists(path)
            if present is None or present.ephemeral_owner == znodes.session_id:
                return present
            if present.ephemeral_owner not in self._own_sessions:
                raise
            logger.info("an earlier session of this broker still holds %s", path)
            try:
                await znodes.delete(path, present.version)
            except NoNode:
                logger.debug("%s went by itself", path)
            return None
        assert isinstance(stat, Stat)
        return stat

    async def _wait_until_gone(self, path: str, deadline_ms: float) -> None:
        changed = Signal(self._runner)
        if await self._znodes.exists(path, lambda _: changed.set()) is None:
            return
        left_ms = deadline_ms - self._clock.monotonic_ms()
        logger.info(
            "%s belongs to a session that has not ended, such as that of this broker before it was killed: "
            "waiting for its end, which comes within the session timeout of %.1f s, for at most %.1f s",
            path,
            self._znodes.session_timeout_ms / 1_000,
            left_ms / 1_000,
        )
        await changed.wait_at_most(max(0.0, left_ms), self._scheduler)
        waited_ms = left_ms - (deadline_ms - self._clock.monotonic_ms())
        if waited_ms < left_ms:
            logger.info("%s was given up after %.1f s", path, waited_ms / 1_000)
