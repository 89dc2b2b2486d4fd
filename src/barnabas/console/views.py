"""Choice of a user's view: the brokers' own if they run on this machine, else the client's."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.core.steps import ClusterUnreachable
from barnabas.console.view.client.client_view import ClientView
from barnabas.console.view.interface import ClusterView
from barnabas.console.view.local.brokers import LocalBrokers
from barnabas.console.view.local.either_view import EitherView
from barnabas.console.view.local.local_view import LocalView
from barnabas.core.clock import Clock
from barnabas.core.errors import KafkaError
from barnabas.inspection.wire import SOCKET_NAME


class Views:
    """Opens views. `directories` are those of the brokers of this machine."""

    def __init__(self, directories: Sequence[Path], clock: Clock) -> None:
        self._clock = clock
        self._sockets = [each / SOCKET_NAME for each in directories]
        self._brokers = LocalBrokers(self._sockets, clock)

    async def __call__(
        self, cluster: ClusterClient, principal: str | None, *, by_client: bool = False
    ) -> ClusterView:
        from_client = ClientView(cluster, self._clock)
        if by_client or not self._sockets or await self._are_a_part():
            await _meet(cluster)
            return from_client
        return EitherView(LocalView(self._brokers, principal), from_client)

    async def close(self) -> None:
        await self._brokers.close()

    async def _are_a_part(self) -> bool:
        """Whether the cluster has other brokers, whose partitions these do not know."""
        try:
            found = await LocalView(self._brokers, None).overview()
        except (ClusterUnreachable, KafkaError):
            return False
        return len(found.brokers) > len(self._sockets)


async def _meet(cluster: ClusterClient) -> None:
    """Find a broker, or raise ClusterUnreachable: without one, each page waits for the end of its retries.
    Pages report other errors, such as a refused login.
    """
    with suppress(KafkaError):
        await cluster.any_channel()
