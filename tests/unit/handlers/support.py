"""Broker without sockets and logs, which takes request messages and returns responses."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

from barnabas.administration.internal_topics import InternalTopic, InternalTopics
from barnabas.administration.producer_ids import ProducerIds
from barnabas.cluster.stores.acl_replica import AclReplica
from barnabas.cluster.stores.topics import allocate_producer_ids
from barnabas.config.broker_config import BrokerConfig
from barnabas.coordinator.group.coordinator import OFFSETS_TOPIC
from barnabas.coordinator.transaction.coordinator import TRANSACTION_TOPIC
from barnabas.core.addressing.host_lookup import HostLookup
from barnabas.core.errors import KafkaError
from barnabas.core.reporting.metrics import Metrics
from barnabas.core.scheduler import InlineBackground
from barnabas.handlers import APIS
from barnabas.network.transport.exchange import UNKNOWN_SOFTWARE, Exchange
from barnabas.protocol.messages import request_class, response_class
from barnabas.quota.client_quotas import ClientQuotas
from barnabas.requests.context import RequestContext
from barnabas.requests.registry import Api
from barnabas.requests.services import Services
from barnabas.security.acl.authorizer import AllowAll, Authorizer
from barnabas.security.identity.principal import ANONYMOUS, KafkaPrincipal
from barnabas.telemetry.client_instances import ClientInstances
from barnabas.telemetry.subscriptions import Subscriptions
from tests.support.slices import in_one_go
from tests.unit.controller.support import BROKER_ID, Admin


@dataclass
class FakePeer:
    """Connection of a request, for handlers that respond through the context."""

    peer_host: str = "192.0.2.1"
    local_host: str = "192.0.2.9"
    local_port: int = 19092
    listener_name: str = "PLAINTEXT"
    security_protocol: str = "PLAINTEXT"
    connection_id: str = "1"
    principal: KafkaPrincipal = ANONYMOUS
    session: object = None
    software: tuple[str, str] = UNKNOWN_SOFTWARE
    closed: bool = False

    def authenticated(self, principal: KafkaPrincipal) -> None:
        raise AssertionError("handlers authenticate nobody")

    def others_served_since_last_call(self) -> bool:
        return False

    def when_closed(self, action: Callable[[], None]) -> None: ...

    def throttle(self, delay_ms: float) -> None:
        raise AssertionError("the dispatcher throttles, not the handler")

    def answered(self, exchange: Exchange) -> None:
        raise AssertionError("handlers answer through the context")

    def refuse(self, reason: str) -> None:
        raise AssertionError(reason)

    def hold(self) -> None:
        raise AssertionError("the dispatcher holds the connection, not the handler")

    def keep(self, frame: memoryview) -> memoryview:
        return frame

    def lend(self) -> None:
        return None


class Finisher:
    """Keeps the work that a handler leaves for later."""

    def __init__(self) -> None:
        self.work: Coroutine[Any, Any, Any] | None = None

    def finish(self, context: RequestContext, response: Any) -> None:
        raise AssertionError("administrative handlers return their answers")

    def finish_later(self, context: RequestContext, work: Coroutine[Any, Any, Any]) -> None:
        self.work = work

    def finish_in_slices(
        self,
        context: RequestContext,
        work: Generator[None, None, Any],
        waits: Callable[[], None] | None = None,
    ) -> None:
        raise AssertionError("administrative handlers return their answers")

    async def later(self) -> None:
        await asyncio.sleep(0)


def _known_address(host: str) -> str:
    if host != "localhost":
        raise OSError(host)
    return "127.0.0.1"


class Broker(Admin):
    """`ask` sends a request through the codec of its version, to the handler, and back."""

    authorizer: Authorizer = AllowAll()
    hosts = HostLookup(_known_address, InlineBackground())
    acls: AclReplica | None = None

    async def start(self) -> None:
        await super().start()
        self.config = SimpleNamespace(
            advertised_listeners={},
            auto_create_topics_enable=True,
            delete_topic_enable=True,
            max_request_partition_size_limit=2000,
            num_partitions=1,
            offset_metadata_max_bytes=4096,
            telemetry_max_bytes=10_000,
        )
        znodes = self.znodes
        subscriptions = Subscriptions()
        self.configs.client_metrics.on_change(subscriptions.put)
        self.services = Services(
            broker_id=BROKER_ID,
            cluster_id="the-cluster",
            config=cast("BrokerConfig", self.config),
            clock=self.clock,
            apis=APIS.for_clients(),
            features={"group.version": 1, "transaction.version": 2},
            znodes=self.znodes,
            metadata=self.metadata,
            replicas=self.replicas,  # type: ignore[arg-type]
            fetch_sessions=None,  # type: ignore[arg-type]
            topics=self.topics,
            configs=self.configs,
            quotas=ClientQuotas(self.configs.clients, BrokerConfig.load({}), self.clock, Metrics()),
            producer_ids=ProducerIds(lambda: allocate_producer_ids(znodes, BROKER_ID)),
            groups=None,  # type: ignore[arg-type]
            transactions=None,  # type: ignore[arg-type]
            add_partitions_to_txn_manager=None,  # type: ignore[arg-type]
            markers=None,  # type: ignore[arg-type]
            internal_topics=InternalTopics(
                self.topics,
                self.metadata,
                {
                    name: InternalTopic(3, lambda live: min(3, live), lambda _: {})
                    for name in (OFFSETS_TOPIC, TRANSACTION_TOPIC)
                },
            ),
            controller=self.controller,
            metadata_wait=self.metadata_wait,
            authorizer=self.authorizer,
            acls=self.acls,
            address_of=partial(self.hosts.address_of),
            telemetry=ClientInstances(subscriptions, self.clock, random.Random(1), Metrics()),
        )

    async def ask(
        self, api: Api, request: Any, version: int | None = None, peer: FakePeer | None = None
    ) -> Any:
        version = api.versions[-1] if version is None else version
        assert version in api.versions
        request, _ = request_class(api.key).decode(request.encode(version), version)
        response = await self._handle(api, request, version, peer or FakePeer())
        decoded, _ = response_class(api.key).decode(response.encode(version), version)
        return decoded

    async def _handle(self, api: Api, request: Any, version: int, peer: FakePeer) -> Any:
        finisher: Any = Finisher()
        context = RequestContext(
            self.services, Exchange(peer, 0.0), request, version, 1, "test", 0.0, finisher
        )
        try:
            response = api.handle(request, context)
            if api.is_async:
                return await response
            if api.is_sliced:
                response = in_one_go(response)
        except KafkaError as error:
            if api.refused is None:
                raise
            return in_one_go(api.refused(request, error, version))
        if response is None:
            assert finisher.work is not None
            return await finisher.work
        return response
