"""Complaints about transactions that are still undecided when everything has had the time to end."""

from __future__ import annotations

from collections.abc import Iterator

from tests.chaos.history import History

AT_WORK = ("Ongoing", "PrepareCommit", "PrepareAbort")


def stuck_last_stable_offsets(history: History) -> Iterator[str]:
    for each in history.undecided:
        yield (
            f"stuck last stable offset: committed readers of {each.topic}-{each.partition} come to"
            f" {each.last_stable_offset}, and the high watermark is {each.high_watermark}"
        )


def hanging_transactions(history: History) -> Iterator[str]:
    for each in history.undecided:
        for found in each.open:
            if found.coordinator_state not in AT_WORK:
                yield (
                    f"hanging transaction: producer {found.producer_id} with epoch {found.producer_epoch}"
                    f" has one open in {each.topic}-{each.partition} from {found.first_offset} on; its"
                    f" coordinator says: {found.coordinator_state or 'unknown'}"
                )
