"""Producer id and epoch, by which coordinators know a producer."""

from __future__ import annotations

from typing import Final, NamedTuple

from barnabas.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID


class ProducerIdAndEpoch(NamedTuple):
    """Identity of a producer; a higher epoch of the same id fences it."""

    producer_id: int
    producer_epoch: int


NO_PRODUCER: Final = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
"""Records outside of a transaction, and requests that name no producer."""
