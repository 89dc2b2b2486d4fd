"""Delta Lake tables through `deltalake`, without a JVM.

The mark of a batch is a `txn` action (query id, batch number) in the commit with its files. It outlives
checkpoints and the clean-up of the log. End offsets and token are in the same commit's info, which the log
keeps for `delta.logRetentionDuration`.

`deltalake` adds files in one commit with the `txn` action, but leaves the columns as they are. So columns
are added by a commit before it. A driver that dies between the two leaves a column of nulls, which the next
attempt finds. Delta's type widening is not supported by `deltalake`: a value must fit the type that the
column has.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Field, Schema, Transaction
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction

from barnabas.core.clock import Clock
from barnabas.pipelines.state.durable_files import local_path, sync_files
from barnabas.pipelines.tables.data_files import Layout, partition_text
from barnabas.pipelines.tables.mark import BatchMark
from barnabas.pipelines.tables.schemas import conform, plain, with_ids_small
from barnabas.pipelines.tables.storage import Storage
from barnabas.pipelines.tables.table import (
    Change,
    ColumnsChanged,
    Conflict,
    Figures,
    LiveFile,
    TableRefused,
)

MARK: Final = "barnabas.mark"
HISTORY: Final = (1, 30, 1_000)
"""Commits that are searched for the end offsets of a batch: the last one, unless others write the table."""
READ_BYTES: Final = 32 << 20
"""Size of the batches in which a file is read."""
READ_ROWS_MAX: Final = 64 << 10
WRITER_VERSION_MAX: Final = 2
FEATURES_VERSION: Final = 7
SUPPORTED: Final = frozenset(
    {"appendOnly", "invariants", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"}
)
"""Features of a table that files added from outside do not break."""
NO_CHECKPOINT_LOSS: Final = {"delta.logRetentionDuration": "interval 30 days"}


class Delta:
    format = "delta"
    can_widen = False

    def __init__(self, table: DeltaTable, storage: Storage, clock: Clock) -> None:
        self._table = table
        self._storage = storage
        self._clock = clock

    @classmethod
    def open(
        cls, storage: Storage, columns: pa.Schema, partition_by: Sequence[str], clock: Clock, *, create: bool
    ) -> Delta:
        """The table at a location, created if it is missing and `create` is true."""
        options = storage.resolved_options or None
        if not DeltaTable.is_deltatable(storage.url, options):
            if not create:
                raise TableRefused(f"there is no Delta table at {storage.root}, and create is false")
            DeltaTable.create(
                storage.url,
                columns,
                mode="ignore",
                partition_by=list(partition_by),
                configuration=NO_CHECKPOINT_LOSS,
                storage_options=options,
            )
        found = cls(DeltaTable(storage.url, storage_options=options), storage, clock)
        found.refuse_features()
        return found

    def refuse_features(self) -> None:
        protocol = self._table.protocol()
        version = protocol.min_writer_version
        if version <= WRITER_VERSION_MAX:
            return
        others = sorted(set(protocol.writer_features or ()) - SUPPORTED)
        if version != FEATURES_VERSION or others:
            raise TableRefused(
                f"the Delta table at {self._storage.root} has writer version {version}"
                f" {', '.join(others)}, which pipelines do not write"
            )

    def refuse_rewrites(self) -> None:
        if self._table.metadata().configuration.get("delta.appendOnly") == "true":
            raise TableRefused(
                f"the Delta table at {self._storage.root} is append-only; expected mode: append"
            )

    def refresh(self) -> None:
        self._table.update_incremental()

    def columns(self) -> pa.Schema:
        found = pa.schema(self._table.schema().to_arrow())
        return pa.schema([with_ids_small(each) for each in found])

    def columns_with(self, added: Sequence[pa.Field], widened: Sequence[pa.Field]) -> pa.Schema:
        assert not widened, "Delta columns keep their types"
        return pa.schema([*self.columns(), *(with_ids_small(each) for each in added)])

    def partition_by(self) -> tuple[str, ...]:
        return tuple(self._table.metadata().partition_columns)

    def layout(self, columns: pa.Schema, target_bytes: int, codec: str) -> Layout:
        return Layout(
            self._storage,
            columns,
            self.partition_by(),
            has_partition_columns=False,
            target_bytes=target_bytes,
            codec=codec,
        )

    def mark(self, query: str) -> BatchMark | None:
        batch_id = self._table.transaction_version(query)
        if batch_id is None:
            return None
        for commits in HISTORY:
            for each in self._table.history(commits):
                if MARK in each:
                    found = BatchMark.of_text(each[MARK])
                    if found.query == query and found.batch_id == batch_id:
                        return found
        return BatchMark("", query, 0, batch_id, (), "")

    def commit(self, change: Change) -> None:
        if change.columns is not None:
            self._add_columns(change.columns)
        now_ms = self._clock.now_ms()
        has_new_rows = change.mark is not None
        actions: list[AddAction | RemoveAction] = [
            AddAction(
                each.path,
                each.size,
                dict(each.partition),
                now_ms,
                has_new_rows,
                json.dumps(each.statistics),
            )
            for each in change.added
        ]
        actions += [
            RemoveAction(each.path, has_new_rows, now_ms, each.size, each.handle) for each in change.removed
        ]
        self._write(actions, change.mark)

    def live_files(self) -> list[LiveFile]:
        types = {each.name: each.type for each in self.columns()}
        found = []
        for each in pa.table(self._table.get_add_actions()).to_pylist():
            partition = each.get("partition") or {}
            least, greatest = each.get("min") or {}, each.get("max") or {}
            bounds = {
                name: (value, greatest.get(name))
                for name, value in least.items()
                if value is not None and greatest.get(name) is not None and name in types
            }
            texts = {name: partition_text(value) for name, value in partition.items()}
            rows = each["num_records"]
            found.append(
                LiveFile(
                    unquote(each["path"]),
                    each["size_bytes"],
                    -1 if rows is None else rows,
                    partition,
                    bounds,
                    texts,
                )
            )
        return found

    def read(self, file: LiveFile, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
        with self._storage.open_input(file.path) as stream:
            parquet = pq.ParquetFile(stream)
            names = [name for name in columns.names if name in parquet.schema_arrow.names]
            for batch in parquet.iter_batches(_rows_at_once(parquet.metadata), columns=names):
                whole = batch
                for name, value in file.partition.items():
                    if name in columns.names:
                        kind = columns.field(name).type
                        whole = whole.append_column(name, pa.repeat(pa.scalar(value, kind), batch.num_rows))
                yield conform(whole, columns)

    def figures(self) -> Figures:
        files = pa.table(self._table.get_add_actions())
        return Figures(
            self.format,
            str(self._table.version()),
            sum(each or 0 for each in files.column("num_records").to_pylist()),
            files.num_rows,
            sum(files.column("size_bytes").to_pylist()),
            int(self._table.history(1)[0]["timestamp"]),
        )

    def expire(self, keep_ms: int, now_ms: int) -> int:  # noqa: ARG002 - `vacuum` has a clock of its own
        hours = -(-timedelta(milliseconds=keep_ms) // timedelta(hours=1))  # rounded up
        removed = self._table.vacuum(
            retention_hours=hours,
            dry_run=False,
            enforce_retention_duration=False,
            full=True,
        )
        self._table.create_checkpoint()
        self._table.cleanup_metadata()
        return len(removed)

    def _add_columns(self, columns: pa.Schema) -> None:
        there = self.columns()
        for each in columns:
            if each.name in there.names and plain(there.field(each.name).type) != plain(each.type):
                raise ColumnsChanged(f"another writer added column {each.name} with another type")
        added = [Field.from_arrow(each) for each in columns if each.name not in there.names]
        if not added:
            return
        before = self._table.version()
        try:
            self._table.alter.add_columns(added, commit_properties=CommitProperties(max_commit_retries=0))
        except CommitFailedError as error:
            raise Conflict(str(error)) from error
        self.refresh()
        self._sync_log(before)
        if self._table.version() != before + 1:
            # It may hold the batch, or have changed the files that this commit is to remove.
            raise Conflict("another writer committed after the new columns")

    def _write(self, actions: list[AddAction | RemoveAction], mark: BatchMark | None) -> None:
        properties = CommitProperties(max_commit_retries=0)
        if mark is not None:
            properties = CommitProperties(
                custom_metadata={MARK: mark.to_text()},
                max_commit_retries=0,
                app_transactions=[Transaction(mark.query, mark.batch_id)],
            )
        before = self._table.version()
        try:
            self._table.create_write_transaction(
                actions,
                "append",
                Schema.from_arrow(self.columns()),
                partition_by=list(self.partition_by()),
                commit_properties=properties,
            )
        except CommitFailedError as error:
            raise Conflict(str(error)) from error
        self.refresh()
        self._sync_log(before)

    def _sync_log(self, before: int) -> None:
        """Sync the commits after a version on a local disk: `deltalake` writes them without.

        The present version may be another writer's. Readers need all versions up to it.
        """
        root = local_path(self._storage.root)
        if root is not None:
            log = root / "_delta_log"
            sync_files(log / f"{each:020}.json" for each in range(before + 1, self._table.version() + 1))


def _rows_at_once(footer: pq.FileMetaData) -> int:
    """Rows that fill a batch, by the size of the file's rows in memory."""
    size = sum(footer.row_group(each).total_byte_size for each in range(footer.num_row_groups))
    return max(1, min(READ_ROWS_MAX, int(READ_BYTES * footer.num_rows // max(size, 1))))
