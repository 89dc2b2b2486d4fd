"""The drawing of a log: offsets from left to right; segments with their index entries, epochs, marks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from barnabas.console.html.charts import label, line, rect, svg, wide
from barnabas.console.html.elements import Content, Element, element
from barnabas.console.html.figures import number, size
from barnabas.console.view.rows import LogPicture

WIDTH = 960.0
LEFT, RIGHT = 12.0, 948.0
SEGMENTS_TOP, SEGMENTS_HEIGHT = 84.0, 56.0
SEGMENTS_BOTTOM = SEGMENTS_TOP + SEGMENTS_HEIGHT
EPOCHS_TOP, EPOCHS_HEIGHT = 148.0, 20.0
GROUPS_TOP = 176.0
HEIGHT = 226.0
SEGMENTS_DRAWN_MAX = 200
EPOCHS_DRAWN_MAX = 100
GROUPS_DRAWN_MAX = 60
GROUPS_TOLD_MAX = 12
GROUP_ROWS = 3
NAME_CHARACTERS_MAX = 30
LABEL_WIDTH = 7.0
"""Of one character of a label."""
MARK_ROWS = 4


@dataclass(frozen=True, slots=True)
class Scale:
    first: int
    last: int

    def x(self, offset: int) -> float:
        span = max(self.last - self.first, 1)
        return LEFT + (min(max(offset, self.first), self.last) - self.first) / span * (RIGHT - LEFT)


def log_chart(found: LogPicture) -> Element:
    end = found.end_offset if found.end_offset is not None else found.high_watermark
    first = min([found.start_offset, *(each.base_offset for each in found.segments[-SEGMENTS_DRAWN_MAX:])])
    scale = Scale(first, max(end, first + 1))
    name = f"The log of {found.topic}-{found.partition}"
    chart = svg(
        WIDTH,
        HEIGHT,
        name,
        _description(found, end),
        _segments(found, scale),
        _removed(found, scale),
        _epochs(found, scale),
        _transactions(found, scale),
        _marks(found, end, scale),
        _groups(found, scale),
    )
    return wide(name, chart)


def _description(found: LogPicture, end: int) -> str:
    said = f"Offsets {number(found.start_offset)} to {number(end)}"
    said += f", high watermark {number(found.high_watermark)}"
    said += f", last stable offset {number(found.last_stable_offset)}"
    if found.segments:
        said += f", {len(found.segments)} segments of {size(found.size_bytes)}"
    return said + "."


def _segments(found: LogPicture, scale: Scale) -> Iterator[Content]:
    if not found.segments:
        end = found.high_watermark
        yield rect(
            scale.x(found.start_offset),
            SEGMENTS_TOP,
            scale.x(end) - scale.x(found.start_offset),
            SEGMENTS_HEIGHT,
            "segment",
        )
        return
    for each in found.segments[-SEGMENTS_DRAWN_MAX:]:
        x, right = scale.x(each.base_offset), scale.x(each.next_offset)
        kind = "segment active" if each.is_active else "segment"
        told = f"segment {each.base_offset:,} to {each.next_offset:,}, {size(each.size_bytes)}"
        yield rect(
            x, SEGMENTS_TOP, max(right - x, 1.5), SEGMENTS_HEIGHT, kind, element("title", told), radius=2
        )
        shown = f"{each.base_offset:,}"
        if right - x > len(shown) * LABEL_WIDTH + 12:
            text = "segment-label active" if each.is_active else "segment-label"
            yield label(x + 6, SEGMENTS_TOP + 20, shown, text)
            yield label(x + 6, SEGMENTS_TOP + 36, size(each.size_bytes), text)
        if not each.is_active:
            for offset, _ in each.index_entries:
                at = scale.x(offset)
                yield line(at, SEGMENTS_BOTTOM - 10, at, SEGMENTS_BOTTOM, "index-entry")


def _removed(found: LogPicture, scale: Scale) -> Content:
    """Records before the log start offset: still in a file, and not readable."""
    if found.start_offset <= scale.first:
        return None
    return rect(
        scale.x(scale.first),
        SEGMENTS_TOP,
        scale.x(found.start_offset) - scale.x(scale.first),
        SEGMENTS_HEIGHT,
        "gone",
        element("title", "removed: before the log start offset"),
    )


def _epochs(found: LogPicture, scale: Scale) -> Iterator[Content]:
    epochs = found.epochs[-EPOCHS_DRAWN_MAX:]
    for index, each in enumerate(epochs):
        x = scale.x(each.start_offset)
        right = scale.x(epochs[index + 1].start_offset) if index + 1 < len(epochs) else RIGHT
        told = element("title", f"leader epoch {each.epoch} from offset {each.start_offset:,}")
        yield rect(
            x, EPOCHS_TOP, max(right - x, 1), EPOCHS_HEIGHT, "epoch-a" if index % 2 else "epoch-b", told
        )
        shown = f"epoch {each.epoch}"
        if right - x > len(shown) * LABEL_WIDTH + 8:
            yield label(x + 4, EPOCHS_TOP + 14, shown)


def _transactions(found: LogPicture, scale: Scale) -> Iterator[Content]:
    for producer_id, first, last in found.aborted_transactions:
        told = element("title", f"aborted transaction of producer {producer_id}, {first:,} to {last:,}")
        yield rect(
            scale.x(first), SEGMENTS_TOP - 6, max(scale.x(last) - scale.x(first), 2), 4, "aborted", told
        )
    for producer_id, first in found.open_transactions:
        told = element("title", f"open transaction of producer {producer_id} from {first:,}")
        yield rect(scale.x(first), SEGMENTS_TOP - 6, max(RIGHT - scale.x(first), 2), 4, "open", told)


def _marks(found: LogPicture, end: int, scale: Scale) -> Iterator[Content]:
    """Offsets with a name. Labels that would overlap stand in rows above each other."""
    marks = [
        (found.start_offset, "start", "log start"),
        (found.last_stable_offset, "lso", "last stable"),
        (found.high_watermark, "hw", "high watermark"),
    ]
    if found.end_offset is not None:
        marks.append((end, "leo", "log end"))
    taken = [-1.0] * MARK_ROWS
    for offset, kind, name in sorted(marks, key=lambda mark: mark[0], reverse=True):
        x = scale.x(offset)
        shown = f"{name} {offset:,}"
        width = len(shown) * LABEL_WIDTH
        is_left = x - width < LEFT
        reach = (x, x + width) if is_left else (x - width, x)
        row = next(
            (at for at in range(MARK_ROWS) if taken[at] < 0 or reach[1] + 4 < taken[at]), MARK_ROWS - 1
        )
        taken[row] = reach[0]
        y = 14.0 + row * 16
        yield line(x, y + 4, x, SEGMENTS_BOTTOM + 4, f"mark {kind}")
        yield label(x + (4 if is_left else -4), y, shown, f"mark-text {kind}", "start" if is_left else "end")


def _groups(found: LogPicture, scale: Scale) -> Iterator[Content]:
    """Committed offsets. Groups that stand at the same place share a mark; a label without room is left out,
    and its mark says the names when it is pointed at."""
    places: dict[int, list[str]] = {}
    for name, offset in found.committed:
        places.setdefault(round(scale.x(offset)), []).append(name)
    labels = _Labels()
    for x, names in sorted(places.items(), key=lambda place: -len(place[1]))[:GROUPS_DRAWN_MAX]:
        shown = _cut(names[0]) if len(names) == 1 else f"{len(names):,} groups"
        width = len(shown) * LABEL_WIDTH
        is_left = x - width < LEFT
        row = labels.place(x, (x, x + width) if is_left else (x - width, x))
        y = GROUPS_TOP if row is None else GROUPS_TOP + 14 + row * 15
        told = ", ".join(map(_cut, names[:GROUPS_TOLD_MAX])) + (
            "" if len(names) <= GROUPS_TOLD_MAX else ", …"
        )
        yield rect(x - 1, SEGMENTS_BOTTOM, 2, y - 3 - SEGMENTS_BOTTOM, "group-mark", element("title", told))
        if row is not None:
            yield label(
                x + (4 if is_left else -4), y, shown, "mark-text group", "start" if is_left else "end"
            )


class _Labels:
    """Rows of labels below the log. No label meets another one, or the line of a mark."""

    def __init__(self) -> None:
        self._placed: list[tuple[int, float, tuple[float, float]]] = []
        """Row, place of the mark, reach of the label."""

    def place(self, x: float, reach: tuple[float, float]) -> int | None:
        """The row for a label; None if there is no room."""
        row = next((each for each in range(GROUP_ROWS) if self._has_room(each, x, reach)), None)
        if row is not None:
            self._placed.append((row, x, reach))
        return row

    def _has_room(self, row: int, x: float, reach: tuple[float, float]) -> bool:
        for other_row, other_x, (start, end) in self._placed:
            if row == other_row and reach[0] < end + 8 and start - 8 < reach[1]:
                return False
            if row < other_row and reach[0] - 4 < other_x < reach[1] + 4:
                return False  # the other line goes through this label
            if row > other_row and start - 4 < x < end + 4:
                return False
        return True


def _cut(name: str) -> str:
    return name if len(name) <= NAME_CHARACTERS_MAX else f"{name[: NAME_CHARACTERS_MAX - 1]}…"
