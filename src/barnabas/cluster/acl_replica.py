"""This broker's copy of the access rules, which the authorizer decides by.

A broker hears of changes by notes, and reads everything again when a note cannot be understood, or when it is
told to. All reading goes through one lock, so what is taken over is never older than what was.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from barnabas.cluster.acl_store import (
    Rules,
    change_rules,
    list_patterns,
    make_acl_paths,
    named_by_note,
    read_rules,
)
from barnabas.cluster.acl_znodes import AclChangeZnode
from barnabas.cluster.change_notes import remove_old_notes
from barnabas.cluster.coordination import Coordination, Stat
from barnabas.cluster.store_errors import as_client_errors
from barnabas.cluster.znode_json import MalformedZnode
from barnabas.core.clock import Clock
from barnabas.core.waiting import Lock, Runner
from barnabas.security.acl.authorizer import AclAuthorizer
from barnabas.security.acl.bindings import ResourcePattern

logger = logging.getLogger(__name__)

_PARENTS = ((AclChangeZnode.LITERAL_PARENT, False), (AclChangeZnode.EXTENDED_PARENT, True))


class AclReplica:
    """`open` reads all rules before it returns; `refresh` reads what changed."""

    def __init__(self, znodes: Coordination, authorizer: AclAuthorizer, clock: Clock, runner: Runner) -> None:
        self.authorizer = authorizer
        self._znodes = znodes
        self._clock = clock
        self._lock = Lock(runner)
        self._is_all_unsure = False
        self._seen: frozenset[str] = frozenset()

    async def open(self, look: Callable[[], None]) -> None:
        """Raises MalformedZnode if a rule cannot be understood: it might forbid something."""
        await make_acl_paths(self._znodes)
        await self.refresh(look, everything=True)

    async def refresh(self, look: Callable[[], None], *, everything: bool) -> None:
        self._is_all_unsure |= everything
        await self._heed_notes(look)
        if self._is_all_unsure:
            await self._read_all()

    async def change(self, pattern: ResourcePattern, change: Callable[[Rules], Rules]) -> tuple[Rules, Rules]:
        """Change the rules of a pattern, for a client; before and after. This broker heeds them at once."""
        with as_client_errors():
            outcome = await change_rules(self._znodes, pattern, change)
            await self._read([pattern])
        return outcome

    async def _heed_notes(self, look: Callable[[], None]) -> None:
        named: dict[ResourcePattern, None] = {}
        notes: dict[str, tuple[bytes, Stat] | None] = {}
        for parent, is_extended in _PARENTS:
            names = await self._znodes.children(parent, lambda _: look())
            paths = [f"{parent}/{name}" for name in names]
            found = dict(zip(paths, await self._znodes.get_many(paths), strict=True))
            notes |= found
            for path, node in found.items():
                if node is None or path in self._seen:
                    continue
                try:
                    named[named_by_note(node[0], extended=is_extended)] = None
                except MalformedZnode as error:
                    logger.warning("%s: %s", path, error)
                    self._is_all_unsure = True
        await self._read(named)
        self._seen = frozenset(notes)
        await remove_old_notes(self._znodes, notes, self._clock)

    async def _read_all(self) -> None:
        self._is_all_unsure = False
        try:
            patterns = await list_patterns(self._znodes)
            await self._read(dict.fromkeys([*patterns, *self.authorizer.patterns()]))
        except BaseException:
            self._is_all_unsure = True
            raise

    async def _read(self, patterns: Iterable[ResourcePattern]) -> None:
        """What cannot be understood raises, once all the others are taken over."""
        failure: MalformedZnode | None = None
        async with self._lock:
            for pattern, rules in (await read_rules(self._znodes, list(patterns))).items():
                if isinstance(rules, MalformedZnode):
                    failure = rules
                else:
                    self.authorizer.replace(pattern, rules)
        if failure is not None:
            raise failure
