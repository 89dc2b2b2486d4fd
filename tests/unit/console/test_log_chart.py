"""The drawing of a log: labels of groups do not meet."""

from __future__ import annotations

import re

from barnabas.console.html.elements import render
from barnabas.console.pages.partition.log_chart import GROUPS_TOP, LABEL_WIDTH, log_chart
from barnabas.console.view.rows import LogPicture

_LABEL = re.compile(
    r'<text x="([\d.]+)" y="([\d.]+)" class="mark-text group" text-anchor="(\w+)"[^>]*>([^<]*)</text>'
)
_MARK = re.compile(r'<rect x="([\d.]+)" y="[\d.]+" width="2" height="([\d.]+)" class="group-mark">')


def picture(*committed: tuple[str, int]) -> str:
    return render(
        log_chart(LogPicture("orders", 0, 1, 3, 0, 1_000, 1_000, 1_000, None, None, committed=committed))
    )


def test_labels_of_groups_meet_neither_each_other_nor_a_mark() -> None:
    shown = picture(*((f"team-{number}.processor", number * 13 % 1_000) for number in range(80)))
    spans = []
    for x, y, anchor, text in _LABEL.findall(shown):
        width = len(text) * LABEL_WIDTH
        at = float(x)
        spans.append((float(y), at, at + width) if anchor == "start" else (float(y), at - width, at))
    assert len(spans) >= 6
    for index, (y, start, end) in enumerate(spans):
        for other_y, other_start, other_end in spans[index + 1 :]:
            assert y != other_y or end <= other_start or other_end <= start
        for x, height in _MARK.findall(shown):
            goes_through = start + 1 < float(x) + 1 < end - 1
            assert not goes_through or 140 + float(height) <= max(y - 15, GROUPS_TOP)


def test_groups_at_one_place_share_a_mark_that_tells_their_names() -> None:
    shown = picture(("billing", 500), ("audit", 500), ("alone", 20))
    assert ">2 groups</text>" in shown
    assert "<title>billing, audit</title>" in shown
    assert ">alone</text>" in shown
    assert len(_MARK.findall(shown)) == 2
