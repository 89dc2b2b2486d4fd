"""Maintenance of a table by its pipeline, between two of its commits.

A pipeline that commits often makes small files and many versions. After every so many micro-batches the
driver compacts small files, forgets old versions and removes files that no version needs. It does so
itself, in turn with its commits, so the two never compete. Another writer's commit may come first; the work
is then left to the next round.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from barnabas.core.clock import Clock
from barnabas.pipelines.tables.copy_on_write import compacted
from barnabas.pipelines.tables.data_files import Layout
from barnabas.pipelines.tables.file_names import BatchName
from barnabas.pipelines.tables.table import Change, Conflict, Table, TableRefused

logger = logging.getLogger(__name__)


class Upkept(NamedTuple):
    compacted: int
    """Small files that became larger ones."""
    removed: int
    """Files that no version needs."""


def maintain(table: Table, layout: Layout, name: BatchName, keep_ms: int, clock: Clock) -> Upkept:
    """One round of maintenance. Reasons to leave a part out are logged."""
    return Upkept(_compact(table, layout, name), _expire(table, keep_ms, clock))


def _compact(table: Table, layout: Layout, name: BatchName) -> int:
    table.refresh()
    try:
        table.refuse_rewrites()
        done = compacted(table, layout, name)
    except TableRefused as reason:
        logger.info("small files are not compacted: %s", reason)
        return 0
    if not done.removed:
        return 0
    try:
        table.commit(Change(None, done.added, done.removed))
    except Conflict as conflict:
        # A storage client that repeats a write may find its own: the files may be in the table.
        table.refresh()
        live = {each.path for each in table.live_files()}
        if any(each.path in live for each in done.added):
            return len(done.removed)
        logger.info("small files are compacted in the next round: %s", conflict)
        layout.storage.remove(each.path for each in done.added)
        return 0
    return len(done.removed)


def _expire(table: Table, keep_ms: int, clock: Clock) -> int:
    try:
        return table.expire(keep_ms, clock.now_ms())
    except Conflict as conflict:
        logger.info("old versions are removed in the next round: %s", conflict)
        return 0
