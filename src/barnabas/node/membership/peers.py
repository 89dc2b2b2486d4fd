"""Connections of this broker to the other brokers.

Brokers reach each other through the inter-broker listener, at the endpoint that each has registered.
Occasional senders (transaction markers, the first write of a transaction) share one channel per broker. It
opens at the first use, and again after a loss. The controller and the fetchers keep channels of their own,
because the order of their requests counts.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from barnabas.client.security.settings import PLAINTEXT, Secured, SecurityProtocol
from barnabas.cluster.metadata.cache import MetadataCache
from barnabas.cluster.znodes.brokers import BrokerInfo
from barnabas.config.broker_config import BrokerConfig
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.errors import BrokerNotAvailable
from barnabas.core.ids import BrokerId
from barnabas.node.security.inter_broker_security import inter_broker_settings
from barnabas.protocol.schema.message import Message

if TYPE_CHECKING:  # a broker that is alone opens no channel
    from barnabas.client.aio.channel import Channel, Response


class Peers:
    def __init__(
        self,
        broker_id: BrokerId,
        metadata: MetadataCache,
        config: BrokerConfig,
    ) -> None:
        self._client_id = f"broker-{broker_id}"
        self._metadata = metadata
        self._config = config
        self._listener_name = config.inter_broker_listener.listener_name
        self._channels: dict[int, asyncio.Task[Channel]] = {}

    async def connect(self, broker: BrokerInfo) -> Channel:
        """Open a channel for the caller alone."""
        from barnabas.client.aio.channel import Channel  # noqa: PLC0415 - see `node.main.LATER`

        return await Channel.connect(
            address_of(broker, self._listener_name),
            client_id=self._client_id,
            connect_timeout_ms=self._config.socket_connection_setup_timeout_ms,
            request_timeout_ms=self._config.controller_socket_timeout_ms,
            security=await self._secured(),
        )

    async def connect_to(self, broker_id: BrokerId) -> Channel:
        """Open a channel to a live broker for the caller alone; BROKER_NOT_AVAILABLE for any other broker."""
        return await self.connect(self._live_broker(broker_id))

    def _live_broker(self, broker_id: int) -> BrokerInfo:
        broker = self._metadata.broker(broker_id)
        if broker is None:
            raise BrokerNotAvailable(f"broker {broker_id} is not in the cluster now")
        return broker

    async def _secured(self) -> Secured:
        if self._config.inter_broker_listener.security_protocol == SecurityProtocol.PLAINTEXT.name:
            return PLAINTEXT
        # In a thread: it reads files, and derives keys from passwords.
        return await asyncio.get_running_loop().run_in_executor(None, self._read_security)

    def _read_security(self) -> Secured:
        return inter_broker_settings(self._config).secured()

    async def send(self, broker_id: int, request: Message, response_class: type[Response]) -> Response:
        """Send to a live broker and return its response; BROKER_NOT_AVAILABLE for any other broker."""
        channel = await self._shared_channel(self._live_broker(broker_id))
        return await channel.send(request, response_class)

    async def _shared_channel(self, broker: BrokerInfo) -> Channel:
        opening = self._channels.get(broker.id)
        address = address_of(broker, self._listener_name)
        if opening is None or (opening.done() and _is_useless(opening, address)):
            opening = asyncio.ensure_future(self.connect(broker))
            self._channels[broker.id] = opening
        # Several senders may wait for the same channel: a cancelled one must not take it from them.
        return await asyncio.shield(opening)

    def close(self) -> None:
        channels, self._channels = self._channels, {}
        for opening in channels.values():
            if not opening.done():
                opening.cancel()
            elif not opening.cancelled() and opening.exception() is None:
                opening.result().close()


def address_of(broker: BrokerInfo, listener_name: str) -> Endpoint:
    for endpoint in broker.endpoints:
        if endpoint.listener_name == listener_name:
            return endpoint.endpoint
    raise BrokerNotAvailable(
        f"broker {broker.id} has no listener {listener_name}, only {_names(broker)}; brokers of one"
        " cluster share the name of their inter.broker.listener.name"
    )


def _names(broker: BrokerInfo) -> str:
    return ", ".join(endpoint.listener_name for endpoint in broker.endpoints)


def _is_useless(opened: asyncio.Task[Channel], address: Endpoint) -> bool:
    """Whether the channel failed, was lost, or leads to a previous endpoint of the broker."""
    if opened.cancelled() or opened.exception() is not None:
        return True
    channel = opened.result()
    if channel.is_closed:
        return True
    if channel.address != address:
        channel.close("the broker has moved")
        return True
    return False
