"""ACL replica: this broker's copy of the ACLs, from which the authorizer decides.

Change notifications name the changed patterns. The replica reads all ACLs again if a notification is
malformed, or on request. All reading goes through one lock, so newer rules are never replaced by older ones.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from barnabas.cluster.coordination.contract import Coordination, Stat
from barnabas.cluster.stores.acl_store import (
    Rules,
    change_rules,
    list_patterns,
    make_acl_paths,
    named_by_notification,
    read_rules,
)
from barnabas.cluster.stores.change_notifications import SeenNotifications
from barnabas.cluster.stores.errors import as_client_errors
from barnabas.cluster.znodes.acls import AclChangeZnode
from barnabas.cluster.znodes.json_codec import MalformedZnode
from barnabas.core.clock import Clock
from barnabas.core.waiting import Lock
from barnabas.security.acl.authorizer import AclAuthorizer
from barnabas.security.acl.bindings import ResourcePattern

logger = logging.getLogger(__name__)

_PARENTS = ((AclChangeZnode.LITERAL_PARENT, False), (AclChangeZnode.EXTENDED_PARENT, True))


class AclReplica:
    """Copy of the ACLs. `open` reads all of them before it returns; `refresh` reads the changed ones."""

    def __init__(self, znodes: Coordination, authorizer: AclAuthorizer, clock: Clock) -> None:
        self.authorizer = authorizer
        self._znodes = znodes
        self._lock = Lock()
        self._is_all_unsure = False
        self._seen = SeenNotifications(znodes, clock)

    async def open(self, look: Callable[[], None]) -> None:
        """Read all ACLs. Raises MalformedZnode if one cannot be read: it might deny something."""
        await make_acl_paths(self._znodes)
        await self.refresh(look, everything=True)

    async def refresh(self, look: Callable[[], None], *, everything: bool) -> None:
        self._is_all_unsure |= everything
        await self._process_notifications(look)
        if self._is_all_unsure:
            await self._read_all()

    async def change(self, pattern: ResourcePattern, change: Callable[[Rules], Rules]) -> tuple[Rules, Rules]:
        """Change the ACLs of a pattern for a client, and apply them here at once; returns them before and
        after.
        """
        with as_client_errors():
            outcome = await change_rules(self._znodes, pattern, change)
            await self._read([pattern])
        return outcome

    async def _process_notifications(self, look: Callable[[], None]) -> None:
        named: dict[ResourcePattern, None] = {}
        notes: dict[str, tuple[bytes, Stat] | None] = {}
        for parent, is_extended in _PARENTS:
            names = await self._znodes.children(parent, lambda _: look())
            paths = [f"{parent}/{name}" for name in names]
            found = dict(zip(paths, await self._znodes.get_many(paths), strict=True))
            notes |= found
            for path, node in found.items():
                if path in self._seen:
                    continue
                if node is None:
                    self._is_all_unsure = True
                    continue
                try:
                    named[named_by_notification(node[0], extended=is_extended)] = None
                except MalformedZnode as error:
                    logger.warning("%s: %s", path, error)
                    self._is_all_unsure = True
        await self._read(named)
        await self._seen.processed(notes)

    async def _read_all(self) -> None:
        self._is_all_unsure = False
        try:
            patterns = await list_patterns(self._znodes)
            await self._read(dict.fromkeys([*patterns, *self.authorizer.patterns()]))
        except BaseException:
            self._is_all_unsure = True
            raise

    async def _read(self, patterns: Iterable[ResourcePattern]) -> None:
        """Read the ACLs of these patterns. A malformed node raises after all the others are applied."""
        failure: MalformedZnode | None = None
        async with self._lock:
            for pattern, rules in (await read_rules(self._znodes, list(patterns))).items():
                if isinstance(rules, MalformedZnode):
                    failure = rules
                else:
                    self.authorizer.replace(pattern, rules)
        if failure is not None:
            raise failure
