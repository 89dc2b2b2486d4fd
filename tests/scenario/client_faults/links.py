"""Links of clients to brokers that a test can cut: a proxy before each broker, for these clients alone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from barnabas.client.aio.channel import Channel
from barnabas.client.aio.connections import ConnectionOptions, connect_by_socket
from barnabas.core.addressing.endpoints import Endpoint
from tests.support.clusters import Member
from tests.support.proxy import Proxy, proxied


class Links:
    def __init__(self, proxies: dict[Endpoint, Proxy]) -> None:
        self._proxies = proxies

    async def connect(self, address: Endpoint, options: ConnectionOptions, timeout_ms: float) -> Channel:
        """The `connect` of a client: brokers keep the addresses that they advertise."""
        proxy = self._proxies[address]
        return await connect_by_socket(Endpoint(proxy.host, proxy.port), options, timeout_ms)

    def to(self, broker: Member) -> Proxy:
        return self._proxies[Endpoint.parse(broker.bootstrap)]

    def cut(self) -> None:
        for proxy in self._proxies.values():
            proxy.cut()

    def heal(self) -> None:
        for proxy in self._proxies.values():
            proxy.heal()

    @property
    def open_connections(self) -> int:
        return sum(proxy.open_connections for proxy in self._proxies.values())


@asynccontextmanager
async def links_to(brokers: Sequence[Member]) -> AsyncIterator[Links]:
    async with AsyncExitStack() as stack:
        proxies = {}
        for broker in brokers:
            address = Endpoint.parse(broker.bootstrap)
            proxies[address] = await stack.enter_async_context(proxied(address.host, address.port))
        yield Links(proxies)
