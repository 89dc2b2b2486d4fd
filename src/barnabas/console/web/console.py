"""The console of one cluster: settings, sections, sessions, the connection that sessions share."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import Any, Final

from barnabas.client.core.client_errors import ClientClosed
from barnabas.client.core.steps import ClusterUnreachable
from barnabas.console.protobuf.model import Message
from barnabas.console.records.masking import Masks
from barnabas.console.records.tails import Tails
from barnabas.console.schemas.decoders import SchemaDecoders
from barnabas.console.schemas.given import GivenSchemas, TopicPart
from barnabas.console.schemas.registry import Registry
from barnabas.console.view.history import GROUPS_MAX
from barnabas.console.view.interface import ClusterView
from barnabas.console.view.paging import LIMIT_MAX
from barnabas.console.view.rows import GroupQuery, GroupRow, TopicQuery
from barnabas.console.web.connections import Connection, Connections
from barnabas.console.web.navigation import ClusterLink, Place, base_of
from barnabas.console.web.proofs import Proven
from barnabas.console.web.sessions import Sessions, cookie_name
from barnabas.core.clock import Clock
from barnabas.core.errors import KafkaError
from barnabas.core.reporting.rate_limited_log import RateLimitedLogger

logger = logging.getLogger(__name__)

REOPEN_S: Final = 1.0
OPENING_S: Final = 3.0
READS_AT_ONCE: Final = 4
SAMPLE_S: Final = 10.0
FIRST_SAMPLES_S: Final = (1.0, 3.0)
"""Pauses before the first samples: a trend needs two."""
TOPICS_LOOKED_AT: Final = 50
SAMPLED_FOR_MS: Final = 900_000.0
"""A user who has not looked for this long gets no more samples."""


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    is_read_only: bool = False
    token: str | None = None
    """Secret that a browser must show before it may use the console's own login."""
    pipelines_url: str | None = None
    registry: Registry | None = None
    is_tls: bool = False
    mcp_tools: frozenset[str] = frozenset()
    """Tools that agents may use; without any there is no endpoint for them."""
    masks: Masks = field(default_factory=Masks)
    edited: frozenset[str] = frozenset()
    """What visitors may change by the console's own access: schemas, pipelines."""
    messages: Mapping[TopicPart, Message] = field(default_factory=dict)
    """Messages of Protobuf by topic."""
    name: str = ""
    """Name of the cluster, in a console of several."""
    clusters: tuple[ClusterLink, ...] = ()
    """All clusters of a console of several."""

    @property
    def base(self) -> str:
        """What goes before the paths of all pages."""
        return base_of(self.name) if self.name else ""

    @property
    def cookie(self) -> str:
        return cookie_name(is_tls=self.is_tls, cluster=self.name)


class Console:
    def __init__(
        self,
        settings: ConsoleSettings,
        connections: Connections,
        places: Sequence[Place],
        description: Mapping[str, Any],
        clock: Clock,
    ) -> None:
        self.settings = settings
        self.connections = connections
        self.places = places
        self.description = description
        """The API as OpenAPI."""
        self.clock = clock
        self.sessions = Sessions(clock)
        self.proven = Proven(self.sessions, connections, clock)
        self.tails = Tails(clock, settings.masks)
        self.registry = settings.registry
        self.schemas = None if settings.registry is None else SchemaDecoders(settings.registry)
        self.given = GivenSchemas(settings.messages)
        self.reading = asyncio.Semaphore(READS_AT_ONCE)
        """Pages of messages that are read at the same time: each may hold many records."""
        self.downloads = 0
        self.shared: Connection | None = None
        """Connection of every session, where the brokers ask for no login or the console has one."""
        self.cluster_name = settings.name or "Kafka"
        self._is_open = asyncio.Event()
        self._limited_log = RateLimitedLogger(logger, clock)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(self._sample())]
        if not self.connections.needs_login:
            tasks.append(asyncio.create_task(self._open_shared()))
        try:
            yield
        finally:
            for each in tasks:
                each.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.tails.close()
            await self.proven.close()
            await self.sessions.close()
            await self.connections.close()
            if self.registry is not None:
                await self.registry.close()
            if self.shared is not None:
                await self.shared.close()

    async def until_open(self) -> None:
        """Wait a moment for the shared connection: the first page may be asked for while it is opened."""
        if self.shared is None and not self.connections.needs_login:
            with suppress(TimeoutError):
                async with asyncio.timeout(OPENING_S):
                    await self._is_open.wait()

    async def _open_shared(self) -> None:
        """Open the shared connection. The brokers may start later than the console."""
        while self.shared is None:
            with suppress(KafkaError, ClusterUnreachable):
                self.shared = await self.connections.open_shared()
                continue
            await asyncio.sleep(REOPEN_S)
        self._is_open.set()
        if self.settings.name:
            return
        with suppress(KafkaError, ClusterUnreachable):
            self.cluster_name = (await self.shared.view.overview()).cluster_id or self.cluster_name

    async def _sample(self) -> None:
        """Take samples of lag and traffic, for their trend: those that each user may see."""
        pauses = chain(FIRST_SAMPLES_S, repeat(SAMPLE_S))
        while True:
            await asyncio.sleep(next(pauses))
            since_ms = self.clock.monotonic_ms() - SAMPLED_FOR_MS
            signed_in = [each.connection for each in self.sessions if each.used_ms > since_ms]
            for connection in (self.shared, *signed_in):
                if connection is not None:
                    # In a task of its own: a user who signs out now cancels it.
                    await asyncio.gather(self._sample_of(connection), return_exceptions=True)

    async def _sample_of(self, connection: Connection) -> None:
        view = connection.view
        try:
            connection.history.add(self.clock.now_ms(), await _all_groups(view))
            overview = await view.overview()
            connection.traffic.add(overview.at_ms, overview.traffic)
            # Rates of topics come from two looks: the page that is opened next has the second one.
            await view.topics(TopicQuery(limit=TOPICS_LOOKED_AT))
        except (KafkaError, ClientClosed, ClusterUnreachable):
            return  # the next sample is soon
        except Exception as error:  # noqa: BLE001 - one sample is missing, the next ones are not
            self._limited_log.error("sample", "a sample of lag and traffic failed", cause=error)


async def _all_groups(view: ClusterView) -> list[GroupRow]:
    found: list[GroupRow] = []
    while len(found) < GROUPS_MAX:
        page = await view.groups(GroupQuery(offset=len(found), limit=LIMIT_MAX, with_members=False))
        found += page.rows
        if len(page.rows) < LIMIT_MAX:
            break
    return found
