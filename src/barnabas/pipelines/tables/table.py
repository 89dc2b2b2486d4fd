"""A table as the sink sees it, whichever format it has.

A commit adds files, removes files and sets the mark of a micro-batch, all or nothing. It succeeds only if
no commit came between the last `refresh` and it. Otherwise it raises `Conflict`, and nothing has changed.
Both libraries offer to retry by themselves; that is off. A retry of pyiceberg commits a batch again that
another driver has committed meanwhile, because it does not look at the mark. So `commits` looks after each
refresh.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from barnabas.pipelines.tables.data_files import DataFile, Layout
from barnabas.pipelines.tables.mark import BatchMark


class Conflict(Exception):
    """Another commit came first; nothing of this one is in the table."""


class ColumnsChanged(Exception):
    """Another writer changed columns that the files of this commit have; no new attempt can commit them."""


class TableRefused(Exception):
    """A table that pipelines cannot write, or not in this way. The message is for the user."""


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A data file of the table's present version."""

    path: str
    """Relative to the directory of the table, or a URL for a file elsewhere."""
    size: int
    rows: int
    partition: Mapping[str, Any]
    bounds: Mapping[str, tuple[Any, Any]]
    """Least and greatest value of columns, as far as they are known."""
    handle: Any = field(repr=False, compare=False, hash=False)
    """The format's own entry, which its removal needs."""


@dataclass(frozen=True, slots=True)
class Change:
    """Changes of one commit."""

    mark: BatchMark | None
    """None for maintenance, which changes no rows."""
    added: Sequence[DataFile] = ()
    removed: Sequence[LiveFile] = ()
    columns: pa.Schema | None = None
    """Columns that the table has from this commit on; None if they stay."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Size of a table, for the status of its pipeline."""

    format: str
    version: str
    rows: int
    files: int
    bytes: int
    committed_at_ms: int

    def to_document(self) -> dict[str, Any]:
        return asdict(self)


class Table(Protocol):
    format: str
    can_widen: bool
    """True if the format widens the type of a column."""

    def refresh(self) -> None:
        """Read the present version."""

    def columns(self) -> pa.Schema:
        """Columns of the present version."""

    def columns_with(self, added: Sequence[pa.Field], widened: Sequence[pa.Field]) -> pa.Schema:
        """Columns after a change, which a later commit makes."""

    def partition_by(self) -> tuple[str, ...]: ...

    def layout(self, columns: pa.Schema, target_bytes: int, codec: str) -> Layout: ...

    def mark(self, query: str) -> BatchMark | None:
        """Mark of the last batch of a query."""

    def commit(self, change: Change) -> None: ...

    def live_files(self) -> list[LiveFile]: ...

    def read(self, file: LiveFile, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Rows of a file, with exactly these columns."""

    def refuse_rewrites(self) -> None:
        """Raises TableRefused if files of the table cannot be replaced."""

    def figures(self) -> Figures: ...

    def expire(self, keep_ms: int, now_ms: int) -> int:
        """Forget versions older than `keep_ms`; remove files that no version needs, and return how many."""
