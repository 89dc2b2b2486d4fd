"""How far the log goes, and how far its readers may go.

    log start offset ≤ last stable offset ≤ high watermark ≤ log end offset

Offsets below the start are gone, those from the end on do not exist yet; consumers read to
the high watermark or to the last stable offset, followers to the end. The order above holds
at all times.
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
        """Of leaders and followers alike: it only grows. True when it did."""
        assert offset <= self.log_end_offset, "the high watermark cannot pass the end of the log"
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        return True

    def update_high_watermark(self, offset: int) -> int:
        """After a start, a move or a cut: set, within the log; returns what it became."""
        self.high_watermark = min(max(offset, self.log_start_offset), self.log_end_offset)
        return self.high_watermark

    def last_stable_offset(self, first_unstable_offset: int) -> int:
        """Where committed readers stop when the fate of what begins at this offset is undecided."""
        return min(max(first_unstable_offset, self.log_start_offset), self.high_watermark)

    def advance_log_start(self, offset: int) -> None:
        assert self.log_start_offset < offset <= self.high_watermark
        self.log_start_offset = offset

    def truncated(self, offset: int) -> None:
        """The log ends at `offset`; a start behind that comes down with it."""
        self.restarted(min(self.log_start_offset, offset), offset, self.high_watermark)

    def restarted(self, log_start_offset: int, log_end_offset: int, high_watermark: int) -> None:
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.update_high_watermark(high_watermark)
