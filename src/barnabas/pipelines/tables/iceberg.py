"""Apache Iceberg tables through `pyiceberg`, without a JVM.

The mark of a batch is a *table property* in the commit with its files. Marks in the summary of a snapshot,
as other sinks write them, are lost when snapshots expire. Every commit of a batch makes a snapshot, even
without files. So it carries the requirement that the branch has not moved, and of two drivers one is
refused.

Files carry Iceberg's field ids, which readers follow through renamed columns. New columns get their ids
from a change that is planned before the files are written and committed with them. If another writer
changes the columns in between, the ids differ: the commit is refused, and the batch runs again.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.conversions import from_bytes
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    TableAlreadyExistsError,
    ValidationError,
    ValidationException,
)
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, parquet_file_to_data_file, schema_to_pyarrow
from pyiceberg.manifest import ManifestContent
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table import Transaction
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import PrimitiveType

from barnabas.core.clock import Clock
from barnabas.pipelines.state.durable_files import local_path, sync_files
from barnabas.pipelines.tables.data_files import Layout
from barnabas.pipelines.tables.mark import BatchMark
from barnabas.pipelines.tables.schemas import conform, with_ids_small
from barnabas.pipelines.tables.storage import Storage
from barnabas.pipelines.tables.table import (
    Change,
    ColumnsChanged,
    Conflict,
    Figures,
    LiveFile,
    TableRefused,
)

MARK: Final = "barnabas.batch."
"""Prefix of the properties with marks; the query id follows."""
PROPERTIES: Final = {
    "commit.retry.num-retries": "0",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}
NO_RETRY: Final = "commit.retry.num-retries"
CATALOG_FILE: Final = "catalog.db"
"""SQLite catalogue of a table that has a path of its own."""
NAMESPACE: Final = "barnabas"
DATA: Final = "data/"
HINT: Final = "metadata/version-hint.text"
_LOCAL: Final = "file://"
_ORIGIN: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(//[^/]*)?")
"""Scheme and host of a location."""


class Iceberg:
    format = "iceberg"
    can_widen = True

    def __init__(
        self,
        catalog: Catalog,
        table: IcebergTable,
        options: Mapping[str, str],
        clock: Clock,
        *,
        has_hint: bool,
    ) -> None:
        self._catalog = catalog
        self._table = table
        self._options = options
        self._clock = clock
        self._has_hint = has_hint

    @classmethod
    def open_path(
        cls, storage: Storage, columns: pa.Schema, partition_by: Sequence[str], clock: Clock, *, create: bool
    ) -> Iceberg:
        """A table with a directory of its own, and a SQLite catalogue in it."""
        root = local_path(storage.root)
        if root is None:
            raise TableRefused(
                f"sink.path: {storage.root} is on no local disk, where an Iceberg table needs"
                " 'catalog' and 'table'"
            )
        if not create and not (root / CATALOG_FILE).exists():
            raise TableRefused(f"there is no Iceberg table at {storage.root}, and create is false")
        if any(each in str(root) for each in "%#?"):
            raise TableRefused(f"sink.path: {root} has '%', '#' or '?', which Iceberg's paths cannot have")
        root.mkdir(parents=True, exist_ok=True)
        location = f"{_LOCAL}{root}"  # not percent-encoded: pyiceberg takes the path as it stands
        properties = {
            "type": "sql",
            "uri": f"sqlite:///{root / CATALOG_FILE}",
            "warehouse": location,
            **storage.resolved_options,
        }
        found = (f"{NAMESPACE}.{root.name.replace('.', '_')}", location)
        return cls._open(
            properties, found, columns, partition_by, clock, storage.options, create=create, has_hint=True
        )

    @classmethod
    def open_catalog(
        cls,
        properties: Mapping[str, str],
        name: str,
        storage_options: Mapping[str, str],
        columns: pa.Schema,
        partition_by: Sequence[str],
        clock: Clock,
        *,
        create: bool,
    ) -> Iceberg:
        """A table of a catalogue, by its name."""
        return cls._open(
            properties,
            (name, None),
            columns,
            partition_by,
            clock,
            storage_options,
            create=create,
            has_hint=False,
        )

    @classmethod
    def _open(
        cls,
        properties: Mapping[str, str],
        named: tuple[str, str | None],
        columns: pa.Schema,
        partition_by: Sequence[str],
        clock: Clock,
        storage_options: Mapping[str, str],
        *,
        create: bool,
        has_hint: bool,
    ) -> Iceberg:
        name, location = named
        given = {"py-io-impl": "barnabas.pipelines.tables.synced_file_io.SyncedFileIO", **properties}
        catalog = load_catalog("barnabas", **given)
        try:
            table = catalog.load_table(name)
        except NoSuchTableError:
            if not create:
                raise TableRefused(f"there is no Iceberg table {name}, and create is false") from None
            table = _create(catalog, name, location, columns, partition_by)
        if table.format_version not in (1, 2):
            raise TableRefused(
                f"the Iceberg table {name} has format version {table.format_version}; expected 2"
            )
        found = cls(catalog, table, storage_options, clock, has_hint=has_hint)
        found.partition_by()
        return found

    def refresh(self) -> None:
        self._table.refresh()

    def columns(self) -> pa.Schema:
        return _arrow(self._table.schema())

    def columns_with(self, added: Sequence[pa.Field], widened: Sequence[pa.Field]) -> pa.Schema:
        planned = self._table.transaction()
        _change_columns(planned, pa.schema([*added, *widened]))
        return _arrow(planned.table_metadata.schema())

    def partition_by(self) -> tuple[str, ...]:
        spec, schema = self._table.spec(), self._table.schema()
        names = []
        for each in spec.fields:
            if not isinstance(each.transform, IdentityTransform):
                raise TableRefused(
                    f"the Iceberg table is partitioned by {each.transform}, {each.name};"
                    " pipelines write tables that are partitioned by columns"
                )
            name = schema.find_column_name(each.source_id)
            assert name is not None
            names.append(name)
        return tuple(names)

    def layout(self, columns: pa.Schema, target_bytes: int, codec: str) -> Layout:
        storage = self._storage()
        return Layout(
            storage, columns, self.partition_by(), directory=DATA, target_bytes=target_bytes, codec=codec
        )

    def mark(self, query: str) -> BatchMark | None:
        text = self._table.properties.get(MARK + query)
        return None if text is None else BatchMark.of_text(text)

    def refuse_rewrites(self) -> None:
        snapshot = self._table.current_snapshot()
        if snapshot is None:
            return
        for each in snapshot.manifests(self._table.io):
            if each.content == ManifestContent.DELETES:
                raise TableRefused(
                    "another writer keeps deletes of rows in files of their own (merge-on-read); pipelines"
                    " replace whole files, and cannot upsert into this table"
                )

    def commit(self, change: Change) -> None:
        work = self._table.transaction()
        if self._table.properties.get(NO_RETRY) != PROPERTIES[NO_RETRY]:
            # Its retry would commit without a look at the mark. It reads the present properties, not these.
            self._switch_off_retry()
            work = self._table.transaction()
        if change.columns is not None:
            try:
                _change_columns(work, change.columns)
            except ValidationError as error:
                raise ColumnsChanged(f"another writer changed the columns: {error}") from None
            if _arrow(work.table_metadata.schema()) != change.columns:
                raise ColumnsChanged("another writer changed the columns")
        summary = {} if change.mark is None else {"barnabas.batch": change.mark.to_text()}
        if change.mark is not None:
            work.set_properties({MARK + change.mark.query: change.mark.to_text()})
        update = work.update_snapshot(snapshot_properties=summary)
        with update.overwrite() if change.removed else update.fast_append() as files:
            for each in change.added:
                files.append_data_file(
                    parquet_file_to_data_file(
                        self._table.io, work.table_metadata, f"{self._root}/{each.path}"
                    )
                )
            for gone in change.removed:
                files.delete_data_file(gone.handle.file)
        try:
            work.commit_transaction()
        except (CommitFailedException, ValidationException) as error:
            raise Conflict(str(error)) from error
        self._hint()

    def live_files(self) -> list[LiveFile]:
        schema, spec = self._table.schema(), self._table.spec()
        by_id: dict[int, tuple[str, PrimitiveType]] = {
            each.field_id: (each.name, each.field_type)
            for each in schema.fields
            if isinstance(each.field_type, PrimitiveType)
        }
        found = []
        for task in self._table.scan().plan_files():
            file = task.file
            partition = {}
            if file.spec_id == self._table.metadata.default_spec_id and spec != UNPARTITIONED_PARTITION_SPEC:
                names = [schema.find_column_name(each.source_id) or "" for each in spec.fields]
                partition = {name: file.partition[at] for at, name in enumerate(names)}
            least, greatest = file.lower_bounds or {}, file.upper_bounds or {}
            bounds = {
                by_id[each][0]: (
                    from_bytes(by_id[each][1], least[each]),
                    from_bytes(by_id[each][1], greatest[each]),
                )
                for each in least
                if each in by_id and each in greatest
            }
            path = file.file_path
            inside = path[len(self._root) + 1 :] if path.startswith(f"{self._root}/") else path
            found.append(
                LiveFile(inside, file.file_size_in_bytes, file.record_count, partition, bounds, task)
            )
        return found

    def read(self, file: LiveFile, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
        schema = self._table.schema()
        names = [each for each in columns.names if each in schema.column_names]
        scan = ArrowScan(
            table_metadata=self._table.metadata,
            io=self._table.io,
            projected_schema=schema.select(*names),
            row_filter=AlwaysTrue(),
        )
        for batch in scan.to_record_batches([file.handle]):
            yield conform(batch, columns)

    def figures(self) -> Figures:
        snapshot = self._table.current_snapshot()
        summary = (
            {} if snapshot is None or snapshot.summary is None else snapshot.summary.additional_properties
        )
        return Figures(
            self.format,
            "-" if snapshot is None else str(snapshot.snapshot_id),
            int(summary.get("total-records", 0)),
            int(summary.get("total-data-files", 0)),
            int(summary.get("total-files-size", 0)),
            0 if snapshot is None else snapshot.timestamp_ms,
        )

    def expire(self, keep_ms: int, now_ms: int) -> int:
        self.refresh()
        before = datetime.fromtimestamp((now_ms - keep_ms) / 1_000, UTC)
        try:
            self._table.maintenance.expire_snapshots().older_than(before).commit()
        except CommitFailedException as error:
            raise Conflict(str(error)) from error
        self.refresh()
        self._hint()
        storage = self._storage()
        needed = self._needed()
        orphans = [
            each.path
            for each in storage.list()
            if each.path.startswith(("data/", "metadata/"))
            and each.path not in needed
            and each.changed_ms < now_ms - keep_ms
        ]
        storage.remove(orphans)
        return len(orphans)

    def _needed(self) -> set[str]:
        """Files that some snapshot or the metadata log refers to.

        Snapshots share manifests, and each is read once. Writers name a file in several forms: `file:/` and
        `file:///`, `s3:` and `s3a:`. So only paths are compared.
        """
        metadata, io = self._table.metadata, self._table.io
        paths = {self._table.metadata_location, f"{self._root}/{HINT}"}
        paths |= {each.metadata_file for each in metadata.metadata_log}
        for snapshot in metadata.snapshots:
            paths.add(snapshot.manifest_list)
            for manifest in snapshot.manifests(io):
                if manifest.manifest_path in paths:
                    continue
                paths.add(manifest.manifest_path)
                paths |= {
                    entry.data_file.file_path
                    for entry in manifest.fetch_manifest_entry(io, discard_deleted=True)
                }
        paths |= {each.statistics_path for each in (*metadata.statistics, *metadata.partition_statistics)}
        root = _ORIGIN.sub("", self._root) + "/"
        return {each.removeprefix(root) for each in (_ORIGIN.sub("", path) for path in paths)}

    def _switch_off_retry(self) -> None:
        work = self._table.transaction()
        work.set_properties({NO_RETRY: PROPERTIES[NO_RETRY]})
        try:
            work.commit_transaction()
        except CommitFailedException as error:
            raise Conflict(str(error)) from error

    def _hint(self) -> None:
        """Note the present metadata file where readers without a catalogue look for it."""
        root = local_path(self._storage().root)
        if not self._has_hint or root is None:
            return
        name = Path(self._table.metadata_location).name.removesuffix(".metadata.json")
        partial = root / "metadata" / f".{uuid.uuid4().hex}.tmp"
        partial.write_text(name)
        sync_files([partial])
        partial.replace(root / HINT)

    def _storage(self) -> Storage:
        return Storage(self._root.removeprefix(_LOCAL), self._options)

    @property
    def _root(self) -> str:
        return self._table.location().rstrip("/")


def _create(
    catalog: Catalog, name: str, location: str | None, columns: pa.Schema, partition_by: Sequence[str]
) -> IcebergTable:
    with suppress(NamespaceAlreadyExistsError):  # another pipeline created it at the same moment
        catalog.create_namespace_if_not_exists(name.rpartition(".")[0])
    try:
        with catalog.create_table_transaction(
            name, schema=columns, location=location, properties=dict(PROPERTIES)
        ) as work:
            if partition_by:
                with work.update_spec() as spec:
                    for each in partition_by:
                        spec.add_identity(each)
    except (TableAlreadyExistsError, CommitFailedException):
        pass  # another pipeline created it at the same moment
    return catalog.load_table(name)


def _change_columns(work: Transaction, columns: pa.Schema) -> None:
    """Add and widen columns, by name. Ids that stand in `columns` are ignored: the table gives them."""
    unnumbered = pa.schema([_without_ids(each) for each in columns])
    with work.update_schema() as update:
        update.union_by_name(unnumbered)


def _without_ids(field: pa.Field) -> pa.Field:
    kind = field.type
    if pa.types.is_list(kind):
        kind = pa.list_(_without_ids(kind.value_field))
    elif pa.types.is_map(kind):
        kind = pa.map_(_without_ids(kind.key_field), _without_ids(kind.item_field))
    elif pa.types.is_struct(kind):
        kind = pa.struct([_without_ids(each) for each in kind])
    return pa.field(field.name, kind, field.nullable)


def _arrow(schema: Schema) -> pa.Schema:
    return pa.schema([with_ids_small(each) for each in schema_to_pyarrow(schema, include_field_ids=True)])
