"""Arrow batches of a consumer, by the decoder that Spark's connector uses (`barnabas.records.columnar`).

numpy and pyarrow are imported by the first use: a consumer of records does not need them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from barnabas.client.consumer.core.handing_out import BatchesOfPartition
from barnabas.core.optional_dependencies import MissingExtra, install_command

if TYPE_CHECKING:
    import pyarrow as pa

ARROW_BYTES: Final = 1 << 20

Decode = Callable[..., Iterator["pa.RecordBatch"]]


def arrow_decoder(columns: Sequence[str] | None) -> Decode:
    """Decoder to these columns; by default all but headers. `MissingExtra` names what to install."""
    try:
        from barnabas.records.columnar.decode import OFFSET_MAX, DecodeTarget  # noqa: PLC0415 - an extra
        from barnabas.records.columnar.legacy import decode_legacy  # noqa: PLC0415
        from barnabas.records.columnar.pieces import decode_pieces  # noqa: PLC0415
        from barnabas.records.columnar.schema import ARROW_TYPES, DEFAULT_COLUMNS  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtra(f"tables need pyarrow and numpy ({error}): {install_command('tables')}") from error
    names = tuple(DEFAULT_COLUMNS if columns is None else columns)
    for name in names:
        if name not in ARROW_TYPES:
            raise ValueError(f"there is no column {name!r}: the columns are {', '.join(ARROW_TYPES)}")

    def decode(taken: BatchesOfPartition, end: int = OFFSET_MAX) -> Iterator[pa.RecordBatch]:
        target = DecodeTarget(taken.at.topic, taken.at.partition, names)
        if taken.legacy is not None:
            yield from decode_legacy(taken.legacy, target, taken.start, end)
        else:
            yield from decode_pieces(iter(taken.batches), target, taken.start, end)

    return decode
