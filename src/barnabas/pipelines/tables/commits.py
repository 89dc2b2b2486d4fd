"""The commit of a micro-batch: refresh, look at the mark, commit; again if another commit came between.

- If the table holds the batch already, another driver committed it, or this one did and did not get the
  answer. The token in the mark tells which. Files of this attempt are removed only if the token is
  another's: a file that a table lists must never be removed.
- If the table holds a later batch, another driver runs the query, and this one stops.
- If the outcome of a commit is unknown and the table does not show it, the batch fails, and its files stay:
  the commit may still arrive. The batch runs again, and finds or removes them.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from typing import Final

from barnabas.core.backoff import Backoff
from barnabas.pipelines.tables.data_files import DataFile
from barnabas.pipelines.tables.mark import BatchMark
from barnabas.pipelines.tables.table import Change, ColumnsChanged, Conflict, Table

logger = logging.getLogger(__name__)

COMMITS_MAX: Final = 40
BACKOFF: Final = Backoff(first_ms=50.0, max_ms=5_000.0)

Plan = Callable[[], Change]
"""Change against the present version of the table; called again after each conflict."""


class Replaced(Exception):
    """Another driver has committed a later batch of the query."""


class NotTheSameBatch(Exception):
    """The table holds a batch of this number with other end offsets."""


class TooManyConflicts(Exception):
    """Other writers came first, again and again, or changed the columns; the batch must run again."""


def is_done(table: Table, mark: BatchMark) -> bool:
    """True if the table holds the batch. The table must have been refreshed."""
    held = table.mark(mark.query)
    if held is None or held.batch_id < mark.batch_id:
        return False
    if held.batch_id > mark.batch_id:
        raise Replaced(
            f"the table holds batch {held.batch_id} of the query, and this driver is at {mark.batch_id}:"
            " another driver has replaced it"
        )
    if not held.is_same_batch(mark):
        raise NotTheSameBatch(
            f"the table holds batch {mark.batch_id} with the end {_end(held)}, and the checkpoint plans"
            f" it with {_end(mark)}: the checkpoint is an older copy, or a topic was created again"
        )
    return True


def commit_batch(
    table: Table,
    mark: BatchMark,
    plan: Plan,
    remove: Callable[[Sequence[DataFile]], None],
    pause: Callable[[float], object],
) -> bool:
    """Commit the change of a batch once; False if another driver has committed it.

    `remove` removes files that no commit lists, and never will.
    """
    made: Sequence[DataFile] = ()
    for attempt in range(COMMITS_MAX):
        table.refresh()
        if is_done(table, mark):
            return _is_ours(table, mark, made, remove)
        change = plan()
        made = change.added
        try:
            table.commit(change)
        except ColumnsChanged as changed:
            remove(made)
            raise TooManyConflicts(
                f"batch {mark.batch_id}: {changed}; the batch runs again with the present columns"
            ) from None
        except Conflict as conflict:
            logger.info("batch %d: another writer committed first: %s", mark.batch_id, conflict)
        except Exception as error:
            # The commit may have arrived although its answer did not. Or another driver came first, and
            # removed the files of this attempt.
            table.refresh()
            if not is_done(table, mark):
                raise
            logger.warning("batch %d: is in the table, although the commit failed: %s", mark.batch_id, error)
            return _is_ours(table, mark, made, remove)
        else:
            return True
        pause(BACKOFF.after_ms(attempt) / 1_000 * random.uniform(0.5, 1))  # noqa: S311 - no secret
    remove(made)
    raise TooManyConflicts(f"batch {mark.batch_id}: other writers came first {COMMITS_MAX} times")


def _is_ours(
    table: Table, mark: BatchMark, made: Sequence[DataFile], remove: Callable[[Sequence[DataFile]], None]
) -> bool:
    held = table.mark(mark.query)
    assert held is not None
    if held.token == mark.token:
        return True
    if held.token:
        remove(made)
    return False


def _end(mark: BatchMark) -> str:
    return str([*mark.ends, mark.topic_ids] if mark.topic_ids else mark.ends)
