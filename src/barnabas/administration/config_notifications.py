"""Configuration change notifications between brokers (`/config/changes`).

A broker that writes a configuration also creates a sequential znode under `/config/changes` that names the
changed entity. Every broker watches that path and reads the entities that new notifications name. A
notification says only where to look, so reading it twice does no harm. Each broker leaves the notifications
for the others and removes those that are old.
"""

from __future__ import annotations

import logging
from typing import Final

from barnabas.cluster.coordination.contract import BadArguments, Coordination, CoordinationError, WatchEvent
from barnabas.cluster.coordination.store_retry import StoreRetry
from barnabas.cluster.stores.change_notifications import SeenNotifications
from barnabas.cluster.stores.client_entities import entity_path_of
from barnabas.cluster.znodes.json_codec import MalformedZnode
from barnabas.cluster.znodes.layout import desanitize
from barnabas.cluster.znodes.notifications import ConfigChangeZnode
from barnabas.config.dynamic.repository import ConfigRepository
from barnabas.core.clock import Clock
from barnabas.core.scheduler import Scheduler
from barnabas.core.waiting import Task

logger = logging.getLogger(__name__)

_NO_NUMBER: Final = -1


class ConfigNotifications:
    """Watch for changed configurations. Call `start` after the first load, `session_renewed` in each new
    session.
    """

    def __init__(
        self,
        znodes: Coordination,
        configs: ConfigRepository,
        clock: Clock,
        scheduler: Scheduler,
    ) -> None:
        self._znodes = znodes
        self._configs = configs
        self._retry = StoreRetry(znodes, scheduler)
        self._seen = SeenNotifications(znodes, clock)
        self._is_due = False
        """Notifications have changed since the last read."""
        self._is_unsure = False
        """Notifications may have been missed."""
        self._is_looking = True
        self._task: Task | None = None

    async def start(self) -> None:
        """Process the present notifications and watch for more."""
        await self._process()
        self._is_looking = False
        if self._is_due:
            self._look()

    async def close(self) -> None:
        if self._task is not None:
            await self._task.stop()

    def session_renewed(self) -> None:
        """Read all settings again.

        The watch ended with the old session. Notifications may have come and gone meanwhile. Revoked
        credentials must not stay valid here, and an old retention must not delete what a new one keeps.
        """
        self._is_unsure = True
        self._look()

    def _look(self) -> None:
        self._is_due = True
        if not self._is_looking:
            self._is_looking = True
            self._task = Task(self._run())

    async def _run(self) -> None:
        while self._is_due:
            self._is_due = False
            try:
                await self._process()
            except CoordinationError as error:
                logger.info("configuration changes are read in the next session: %r", error)
            except Exception:
                logger.exception(
                    "configuration changes could not be read; the next change or session reads them"
                )
        self._is_looking = False

    async def _process(self) -> None:
        names = await self._retry.until_answered(
            lambda: self._znodes.children(ConfigChangeZnode.PARENT, self._changed)
        )
        paths = [f"{ConfigChangeZnode.PARENT}/{name}" for name in sorted(names, key=_number)]
        nodes = await self._retry.until_answered(lambda: self._znodes.get_many(paths))
        found = dict(zip(paths, nodes, strict=True))
        named: dict[str, None] = {}
        for path, node in found.items():
            if path in self._seen:
                continue
            if node is None:
                self._is_unsure = True
            else:
                try:
                    named[ConfigChangeZnode.decode(node[0])] = None
                except MalformedZnode as error:
                    logger.warning("%s: %s", path, error)
        for entity_path in named:
            await self._reload(entity_path)
        if self._is_unsure:
            await self._retry.until_answered(self._configs.reload_all)
            self._is_unsure = False
        await self._seen.processed(found)

    async def _reload(self, entity_path: str) -> None:
        client_entity = entity_path_of(entity_path)
        entity_type, _, stored_name = entity_path.partition("/")
        if client_entity is None and (not stored_name or "/" in stored_name):
            logger.info("configuration change notification for %r is ignored: unknown entity", entity_path)
            return
        logger.info("configuration of %s has changed", entity_path)
        try:
            if client_entity is not None:
                await self._retry.until_answered(lambda: self._configs.clients.reload(client_entity))
            else:
                await self._retry.until_answered(
                    lambda: self._configs.reload(entity_type, desanitize(stored_name))
                )
        except BadArguments as error:
            logger.warning(
                "configuration change notification for %r is ignored: invalid name: %s", entity_path, error
            )
        except CoordinationError:
            raise
        except Exception:
            logger.exception("configuration of %s could not be applied; write it again to retry", entity_path)

    def _changed(self, event: WatchEvent) -> None:  # noqa: ARG002 - any event means: read again
        self._look()


def _number(name: str) -> int:
    digits = name[-10:]
    return int(digits) if digits.isdecimal() else _NO_NUMBER
