"""The records of a decision as batches of the log.

A decision is one batch, so that a replay sees all of it or nothing. Where its records stand each for itself,
it is as many batches as the partition's `max.message.bytes` asks for: a topic's deletion, the expiry of a
large group and its deletion must not fail because there is much to remove.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from barnabas.coordinator.decision import CoordinatorRecord
from barnabas.records.builder import BatchBuilder

RECORD_OVERHEAD_BYTES_MAX = 40
"""What a record takes besides its key and value: lengths, deltas and flags, all at their longest."""


def as_batches(
    records: Sequence[CoordinatorRecord],
    new_batch: Callable[[], BatchBuilder],
    now_ms: int,
    bytes_max: int | None,
) -> Iterator[tuple[Sequence[CoordinatorRecord], bytearray]]:
    """Each batch with the records in it: one, or with `bytes_max` several that are no larger. A record that
    is larger by itself is alone in its batch."""
    builder, start = new_batch(), 0
    for place, record in enumerate(records):
        key, value = record.encode()
        if bytes_max is not None and place > start:
            size = len(key) + len(value or b"") + RECORD_OVERHEAD_BYTES_MAX
            if builder.inflated_size_bytes + size > bytes_max:
                yield records[start:place], builder.build()
                builder, start = new_batch(), place
        builder.append(key, value, (), now_ms)
    yield records[start:], builder.build()
