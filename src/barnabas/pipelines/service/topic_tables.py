"""Pipelines of topics that are tables: the service makes and keeps one for each topic with `barnabas.table`.

The service looks at the settings of all topics every few seconds and compares them with its pipelines:

- a topic with the setting and without the pipeline gets it;
- a changed setting changes the pipeline. A pipeline that a user has paused or stopped stays so;
- a topic without the setting loses the pipeline, never the table;
- a topic that was deleted and created again, with the setting, gets a new generation of its pipeline.

A broker that has just started may know no topics for a moment. So a topic that is missing keeps its pipeline
for `MISSING_MS`.

A client that may alter the configuration of a topic chooses a place that this service writes, and a schema
registry that it asks. On a cluster without security, every client may do as much already. On a secured one,
both must be among the places that `--tables` names.

Pipelines run without end, and each has a driver of its own when a shared one has died. So their number is
bounded.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from barnabas.config.definitions.topics import TABLE
from barnabas.core.clock import Clock
from barnabas.core.ids import Uuid
from barnabas.core.reporting.error_isolation import sweeping
from barnabas.core.reporting.rate_limited_log import RateLimitedLogger
from barnabas.pipelines.service.errors import AWAY, ServiceError
from barnabas.pipelines.service.store import Stored, Target
from barnabas.pipelines.spec.problems import InvalidSpec
from barnabas.pipelines.spec.topic_table import document_of, pipeline_of, place_of

logger = logging.getLogger(__name__)

PERIOD_S: Final = 3.0
MISSING_MS: Final = 60_000
TABLES_MAX: Final = 200
"""Pipelines that topics may have."""
REASON_CHARACTERS_MAX: Final = 500
SCHEMA_REGISTRY: Final = "schema_registry"
TOPIC_ID: Final = "barnabas.topic.id"
"""Key in the configuration of a kept pipeline, beside `barnabas.table`."""


class TopicTable(NamedTuple):
    topic_id: Uuid
    setting: str | None
    """None for a topic that is not a table."""
    is_known: bool = True
    """False where the service may not read the settings: it keeps what is there."""


class Topics(Protocol):
    async def tables(self) -> Mapping[str, TopicTable]:
        """All topics of the cluster."""


class Pipelines(Protocol):
    """The part of `PipelineService` that keeps pipelines."""

    @property
    def is_leader(self) -> bool: ...
    def names(self) -> list[str]: ...
    def stored(self, name: str) -> Stored: ...
    def is_at_rest(self, name: str) -> bool: ...
    async def keep(self, name: str, config: Mapping[str, str]) -> None: ...
    async def set_target(self, name: str, target: Target) -> None: ...
    async def delete(self, name: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Allowed:
    """Places in which topics may have tables."""

    places: Sequence[str] = ()
    is_anywhere: bool = False

    def __call__(self, place: str) -> bool:
        if self.is_anywhere:
            return True
        if ".." in place.split("/"):
            return False
        return any(place == each or place.startswith(each.rstrip("/") + "/") for each in self.places)


class TopicTables:
    def __init__(
        self,
        pipelines: Pipelines,
        topics: Topics,
        clock: Clock,
        allowed: Allowed,
        client_settings: Mapping[str, str],
    ) -> None:
        self._pipelines = pipelines
        self._topics = topics
        self._clock = clock
        self._allowed = allowed
        self._client_settings = client_settings
        """Settings of the service's own clients, with secrets as references."""
        self._missing_since: dict[str, int] = {}
        self._limited_log = RateLimitedLogger(logger, clock)
        self._complaints: dict[str, str] = {}
        self._ending: set[str] = set()
        """Pipelines that stop before they are deleted."""

    async def keep(self) -> None:
        """Compare topics and pipelines periodically, without end."""
        while True:
            await asyncio.sleep(PERIOD_S)
            with sweeping("keeping the tables of topics"):
                await self.refresh()

    async def refresh(self) -> None:
        if not self._pipelines.is_leader:
            return
        try:
            topics = await self._topics.tables()
        except AWAY as error:
            logger.debug("the settings of topics cannot be read now: %s", error)
            return
        self._complaints = {topic: told for topic, told in self._complaints.items() if topic in topics}
        for topic, table in topics.items():
            with sweeping("keeping the table of a topic", topic):
                if table.setting is not None:
                    await self._make(topic, table)
        for name in self._pipelines.names():
            with sweeping("keeping the pipeline of a table", name):
                await self._remove_if_unwanted(name, topics)

    async def _make(self, topic: str, table: TopicTable) -> None:
        name = pipeline_of(topic)
        names = self._pipelines.names()
        known = self._pipelines.stored(name) if name in names else None
        if known is not None and not _is_kept(known):
            self._complain(topic, f"there is another pipeline {name}")
            return
        if known is None and sum(_is_kept(self._pipelines.stored(each)) for each in names) >= TABLES_MAX:
            self._complain(topic, f"this service keeps {TABLES_MAX} tables of topics already")
            return
        try:
            wanted = self._config(topic, table)
            if known is not None and known.config == wanted:
                if name in self._ending:
                    self._ending.discard(name)
                    await self._pipelines.set_target(name, Target.RUNNING)
                return
            if known is not None and known.config[TOPIC_ID] != wanted[TOPIC_ID]:
                logger.info("topic %s was created again: its pipeline begins again", topic)
                await self._pipelines.delete(name)
            await self._pipelines.keep(name, wanted)
        except (InvalidSpec, ServiceError) as error:
            self._complain(topic, str(error))
        else:
            self._complaints.pop(topic, None)
            self._limited_log.info(
                "kept", "pipeline %s keeps topic %s as a table: %s", name, topic, _cut(table.setting or "")
            )

    def _config(self, topic: str, table: TopicTable) -> dict[str, str]:
        assert table.setting is not None
        place = place_of(table.setting)[1]
        if not self._allowed(place):
            raise ServiceError(403, f"{place} is not in a place that 'pipeline serve --tables' names")
        document: dict[str, Any] = document_of(topic, table.setting)
        registry = document["source"].get(SCHEMA_REGISTRY)
        if registry is not None and not self._allowed(registry):
            raise ServiceError(403, f"{registry} is not a place that 'pipeline serve --tables' names")
        if self._client_settings:
            document["source"]["kafka"] = dict(self._client_settings)
        return {
            "connector.class": "Pipeline",
            "name": pipeline_of(topic),
            "pipeline.spec": json.dumps(document),
            TABLE: table.setting,
            TOPIC_ID: str(table.topic_id),
        }

    async def _remove_if_unwanted(self, name: str, topics: Mapping[str, TopicTable]) -> None:
        if not _is_kept(self._pipelines.stored(name)):
            return
        topic = name.removeprefix(pipeline_of(""))
        if topic in topics:
            self._missing_since.pop(topic, None)
            if topics[topic].setting is not None or not topics[topic].is_known:
                return
            reason = "has no table any more"
        else:
            since = self._missing_since.setdefault(topic, self._clock.now_ms())
            if self._clock.now_ms() - since < MISSING_MS:
                return
            reason = "is gone"
        if not self._pipelines.is_at_rest(name):
            # The name stays until the last commit: a table must not be removed before it.
            if name not in self._ending:
                self._ending.add(name)
                await self._pipelines.set_target(name, Target.STOPPED)
            return
        self._ending.discard(name)
        self._missing_since.pop(topic, None)
        logger.info("topic %s %s: its pipeline is deleted, and the table stays", topic, reason)
        await self._pipelines.delete(name)

    def _complain(self, topic: str, reason: str) -> None:
        reason = _cut(reason)
        if self._complaints.get(topic) != reason:
            self._complaints[topic] = reason
            self._limited_log.warn("no table", "topic %s gets no table (%s): %s", topic, TABLE, reason)


def _is_kept(known: Stored) -> bool:
    """Whether the service has made the pipeline for a topic."""
    return known.config.keys() >= {TABLE, TOPIC_ID}


def _cut(text: str) -> str:
    return text if len(text) <= REASON_CHARACTERS_MAX else text[:REASON_CHARACTERS_MAX] + " …"
