"""How brokers hear that somebody changed a configuration.

Whoever writes a configuration leaves a sequential note under `/config/changes` that names it. Every
broker watches there and reads what the notes since the last one name; the note says only where to
look, so reading twice does no harm. Notes are left for the others and removed when they are old.
"""

from __future__ import annotations

import logging
from typing import Final

from barnabas.cluster.change_notes import remove_old_notes
from barnabas.cluster.client_entity_znodes import entity_path_of
from barnabas.cluster.coordination import BadArguments, Coordination, CoordinationError, WatchEvent
from barnabas.cluster.notification_znodes import ConfigChangeZnode
from barnabas.cluster.znode_json import MalformedZnode
from barnabas.cluster.znodes import desanitize
from barnabas.config.repository import ConfigRepository
from barnabas.controller.patience import Patience
from barnabas.core.clock import Clock
from barnabas.core.scheduler import Scheduler
from barnabas.core.waiting import Runner, Task

logger = logging.getLogger(__name__)

_NO_NUMBER: Final = -1


class ConfigNotifications:
    """`start` once the settings have been loaded; `session_renewed` after each new session."""

    def __init__(
        self,
        znodes: Coordination,
        configs: ConfigRepository,
        clock: Clock,
        scheduler: Scheduler,
        runner: Runner,
    ) -> None:
        self._znodes = znodes
        self._configs = configs
        self._clock = clock
        self._runner = runner
        self._patience = Patience(znodes, scheduler, runner)
        self._seen: frozenset[str] = frozenset()
        """Paths of notes that were heeded and are still there."""
        self._is_due = False
        """Something has changed since the last look."""
        self._is_unsure = False
        """Notes may have been missed."""
        self._is_looking = True
        self._task: Task | None = None

    async def start(self) -> None:
        """Read what the present notes name, and watch for more."""
        await self._process()
        self._is_looking = False
        if self._is_due:
            self._look()

    async def close(self) -> None:
        if self._task is not None:
            await self._task.stop()

    def session_renewed(self) -> None:
        """The watch went with the old session, and notes may have come meanwhile, and gone. Everything of
        users and client ids is read again: credentials that were taken back must not live on here."""
        self._is_unsure = True
        self._look()

    def _look(self) -> None:
        self._is_due = True
        if not self._is_looking:
            self._is_looking = True
            self._task = self._runner.start(self._run())

    async def _run(self) -> None:
        while self._is_due:
            self._is_due = False
            try:
                await self._process()
            except CoordinationError as error:
                logger.info("changed settings are read in the next session: %r", error)
            except Exception:
                logger.exception("changed settings could not be read")
        self._is_looking = False

    async def _process(self) -> None:
        names = await self._patience.until_answered(
            lambda: self._znodes.children(ConfigChangeZnode.PARENT, self._changed)
        )
        paths = [f"{ConfigChangeZnode.PARENT}/{name}" for name in sorted(names, key=_number)]
        nodes = await self._patience.until_answered(lambda: self._znodes.get_many(paths))
        found = dict(zip(paths, nodes, strict=True))
        named: dict[str, None] = {}
        for path, node in found.items():
            if node is not None and path not in self._seen:
                try:
                    named[ConfigChangeZnode.decode(node[0])] = None
                except MalformedZnode as error:
                    logger.warning("%s: %s", path, error)
        for entity_path in named:
            await self._reload(entity_path)
        if self._is_unsure:
            await self._patience.until_answered(self._configs.clients.reload_all)
            self._is_unsure = False
        self._seen = frozenset(paths)
        await remove_old_notes(self._znodes, found, self._clock)

    async def _reload(self, entity_path: str) -> None:
        client_entity = entity_path_of(entity_path)
        entity_type, _, stored_name = entity_path.partition("/")
        if client_entity is None and (not stored_name or "/" in stored_name):
            logger.info("a note names %r, which has no settings here", entity_path)
            return
        logger.info("the settings of %s have changed", entity_path)
        try:
            if client_entity is not None:
                await self._patience.until_answered(lambda: self._configs.clients.reload(client_entity))
            else:
                await self._patience.until_answered(
                    lambda: self._configs.reload(entity_type, desanitize(stored_name))
                )
        except BadArguments as error:
            logger.warning("a note names %r, which nothing can be called: %s", entity_path, error)
        except CoordinationError:
            raise
        except Exception:
            logger.exception(
                "the settings of %s could not be taken over; other notes are heeded", entity_path
            )

    def _changed(self, event: WatchEvent) -> None:  # noqa: ARG002 - whatever it was, look
        self._look()


def _number(name: str) -> int:
    digits = name[-10:]
    return int(digits) if digits.isdecimal() else _NO_NUMBER
