"""The table that a sink's options name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from barnabas.core.clock import Clock
from barnabas.pipelines.state.durable_files import local_path
from barnabas.pipelines.tables.object_files import for_iceberg
from barnabas.pipelines.tables.storage import Storage
from barnabas.pipelines.tables.table import Table, TableRefused


def open_table(
    options: Mapping[str, Any],
    columns: pa.Schema,
    partition_by: Sequence[str],
    clock: Clock,
    *,
    create: bool,
) -> Table:
    """Open or create it. `options` are the sink's, with secrets resolved."""
    for name in partition_by:
        at = columns.get_field_index(name)
        if at >= 0 and (pa.types.is_nested(columns.types[at]) or pa.types.is_binary(columns.types[at])):
            raise TableRefused(
                f"a table cannot be partitioned by {name}, of type {columns.types[at]}; cast it to text"
            )
    path = options.get("path") or ""
    local = local_path(path)
    # Tasks may have another working directory.
    storage = Storage(path if local is None else str(local), options.get("storage") or {})
    if options["format"] == "delta":
        from barnabas.pipelines.tables.delta import Delta  # noqa: PLC0415 - an optional package

        return Delta.open(storage, columns, partition_by, clock, create=create)
    from barnabas.pipelines.tables.iceberg import Iceberg  # noqa: PLC0415 - an optional package

    if options.get("path"):
        return Iceberg.open_path(storage, columns, partition_by, clock, create=create)
    # The catalogue's own properties come first.
    properties = {**for_iceberg(storage.resolved_options), **options["catalog"]}
    return Iceberg.open_catalog(
        properties, options["table"], storage.options, columns, partition_by, clock, create=create
    )
