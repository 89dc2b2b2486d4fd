"""Registration of a broker in the coordination store, across sessions.

Each session gives the broker a new epoch. When the session is lost, the lease (`replication.partition.lease`)
keeps the broker from acknowledging anything. In the next session the broker registers again. It then leads
only the partitions that the controller assigns to the new epoch.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

from barnabas.cluster.coordination.contract import (
    RECOVERY_RETRY_MS,
    Coordination,
    CoordinationError,
    SessionState,
)
from barnabas.cluster.stores.registration import Registration
from barnabas.cluster.znodes.brokers import BrokerInfo
from barnabas.config.broker_config import BrokerConfig
from barnabas.core.addressing.endpoints import ListenerEndpoint
from barnabas.core.clock import Clock
from barnabas.core.errors import InvalidConfig, KafkaError
from barnabas.core.ids import NO_EPOCH, BrokerId
from barnabas.core.scheduler import Scheduler
from barnabas.core.tasks import Tasks
from barnabas.replication.partition.lease import LeadershipLease

logger = logging.getLogger(__name__)

REGISTERED_POLL_MS = 5.0
EVERYWHERE = ("", "0.0.0.0", "::")  # noqa: S104 - addresses that are recognised, not bound


class BrokerRegistration:
    """`on_lost` is called when a session is lost, `on_renewed` after the registration in the next one."""

    def __init__(
        self,
        broker_id: BrokerId,
        config: BrokerConfig,
        znodes: Coordination,
        *,
        clock: Clock,
        scheduler: Scheduler,
        on_lost: Callable[[], None],
        on_renewed: Callable[[], None],
    ) -> None:
        self._broker_id = broker_id
        self._config = config
        self._znodes = znodes
        self._clock = clock
        self._on_lost = on_lost
        self._on_renewed = on_renewed
        self._registration = Registration(znodes, clock, scheduler)
        self._broker: BrokerInfo | None = None
        self._returns = Tasks()
        """The registration in a new session, which may take long; never two."""
        self._session_id = self._registered_in = znodes.session_id

    @property
    def is_kept(self) -> bool:
        """Whether the broker registers again in each new session."""
        return self._broker is not None

    @property
    def broker_epoch(self) -> int:
        return NO_EPOCH if self._broker is None else self._broker.epoch

    def registered_epoch(self) -> int | None:
        """The broker's epoch, if the current session registered it: the lease of the session is about it."""
        if self._broker is None or self._registered_in != self._znodes.session_id:
            return None
        return self._broker.epoch

    def lease(self) -> LeadershipLease | None:
        """None for the embedded store, which ends with its process and loses no session."""
        if self._config.owns_store:
            return None
        return LeadershipLease(self._clock, lambda: self._znodes.lease_expires_ms, self.registered_epoch)

    async def register(self, broker: BrokerInfo) -> int:
        """Register in this session and in those that follow; returns the epoch."""
        self._broker = await self._registration.register(broker)
        self._session_id = self._registered_in = self._znodes.session_id
        self._znodes.add_listener(self._session_changed)
        return self._broker.epoch

    async def unregister(self) -> None:
        await self.close()
        try:
            await self._registration.unregister(self._broker_id)
        except CoordinationError as error:
            logger.info(
                "broker %d: the registration stays until its session expires: %r", self._broker_id, error
            )

    async def close(self) -> None:
        """Do not register again."""
        self._broker = None
        await self._returns.close()

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            if not self._config.owns_store:
                logger.warning(
                    "broker %d: session expired; no produce is acknowledged until a new session",
                    self._broker_id,
                )
            self._on_lost()
        elif state is SessionState.CONNECTED and self._znodes.session_id != self._session_id:
            self._session_id = self._znodes.session_id
            self._returns.cancel()  # in the session before this one
            self._returns.start(self._return())

    async def _return(self) -> None:
        """Register in a new session, under a new epoch."""
        session_id = self._session_id
        while self._broker is not None and session_id == self._session_id:
            try:
                self._broker = await self._registration.register(self._broker)
                self._registered_in = self._znodes.session_id
            except Exception as error:
                # An unregistered broker serves no purpose, so it tries again after any error.
                is_expected = isinstance(error, CoordinationError | KafkaError)
                logger.warning(
                    "broker %d: registration in the new session failed, trying again: %r",
                    self._broker_id,
                    error,
                    exc_info=not is_expected,
                )
                await asyncio.sleep(RECOVERY_RETRY_MS / 1_000)
                continue
            self._on_renewed()
            return

    async def until_registered_after(self, session_id: int) -> None:
        """Wait until this broker is registered in a later session."""
        while True:
            if self._znodes.session_id != session_id and self.registered_epoch() is not None:
                return
            await asyncio.sleep(REGISTERED_POLL_MS / 1_000)


def advertised_endpoints(
    bound: Sequence[ListenerEndpoint], advertised: Mapping[str, ListenerEndpoint], *, must_be_reachable: bool
) -> tuple[ListenerEndpoint, ...]:
    """The endpoints to register, one per listener.

    A single broker may bind to every interface and answer with the address that the client used. The other
    brokers of a cluster have used none yet."""
    endpoints = []
    for listener in bound:
        name = listener.listener_name
        at = advertised.get(name, listener)
        if must_be_reachable and at.endpoint.host in EVERYWHERE:
            raise InvalidConfig(
                f"the listener {name} is bound to every address; name the one that the other brokers"
                f" use: advertised.listeners={name}://HOST:{at.endpoint.port}"
            )
        endpoints.append(at)
    return tuple(endpoints)
