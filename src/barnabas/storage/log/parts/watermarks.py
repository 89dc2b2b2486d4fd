"""Watermarks of a log: log start offset, high watermark, log end offset.

    log start offset ≤ last stable offset ≤ high watermark ≤ log end offset

This order holds at all times. Records below the start are deleted; the next append gets the end. Consumers
read up to the high watermark or the last stable offset, followers up to the end.
"""

from __future__ import annotations


class Watermarks:
    __slots__ = ("high_watermark", "log_end_offset", "log_start_offset")

    def __init__(self, log_start_offset: int, log_end_offset: int) -> None:
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.high_watermark = log_start_offset

    def appended(self, log_end_offset: int) -> None:
        self.log_end_offset = log_end_offset

    def advance_high_watermark(self, offset: int) -> bool:
        """Raise the high watermark, on leaders and followers. True if it changed; it never falls here."""
        assert offset <= self.log_end_offset, "the high watermark cannot pass the end of the log"
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        return True

    def update_high_watermark(self, offset: int) -> int:
        """Set the high watermark after a start, a move or a truncation; returns it, bounded by the log."""
        self.high_watermark = min(max(offset, self.log_start_offset), self.log_end_offset)
        return self.high_watermark

    def last_stable_offset(self, first_unstable_offset: int) -> int:
        """Last stable offset while the transaction that begins at `first_unstable_offset` is undecided."""
        return min(max(first_unstable_offset, self.log_start_offset), self.high_watermark)

    def advance_log_start(self, offset: int) -> None:
        assert self.log_start_offset < offset <= self.high_watermark
        self.log_start_offset = offset

    def truncated(self, offset: int) -> None:
        """Set the end of the log to `offset`; a higher start falls with it."""
        self.restarted(min(self.log_start_offset, offset), offset, self.high_watermark)

    def restarted(self, log_start_offset: int, log_end_offset: int, high_watermark: int) -> None:
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.update_high_watermark(high_watermark)
