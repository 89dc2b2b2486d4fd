"""Texts of schemas as people read them, and the lines in which two of them differ.

Comparing two texts takes time that grows with the product of their lines. Equal lines at the beginning and
the end are left out. The lines between are compared if they are few enough; else all of them count as
changed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Final, Literal, NamedTuple

from barnabas.console.formats.json_text import json_text

COMPARED_MAX: Final = 1_000_000
"""Product of the lines that are compared."""
AROUND: Final = 3
"""Equal lines that are shown beside a change."""
READABLE_CHARACTERS_MAX: Final = 4 * 1024 * 1024
"""A schema whose text with line breaks is longer stays as it is."""
SHOWN_CHARACTERS_MAX: Final = 256 * 1024

Change = Literal["same", "added", "removed", "skipped"]


class Line(NamedTuple):
    change: Change
    text: str


def readable(text: str, kind: str) -> str:
    """JSON with line breaks; Protobuf as it is."""
    if kind == "PROTOBUF":
        return text
    try:
        found = json_text(json.loads(text), READABLE_CHARACTERS_MAX, indent=2)
    except (ValueError, RecursionError):
        return text
    return text if len(found) > READABLE_CHARACTERS_MAX else found


def differences(before: str, after: str) -> list[Line]:
    """Lines of both texts, with the equal ones that are far from a change left out."""
    return _near_changes(_compared(before.splitlines(), after.splitlines()))


def _compared(before: Sequence[str], after: Sequence[str]) -> list[Line]:
    start = 0
    while start < min(len(before), len(after)) and before[start] == after[start]:
        start += 1
    end = 0
    while end < min(len(before), len(after)) - start and before[-1 - end] == after[-1 - end]:
        end += 1
    old, new = before[start : len(before) - end], after[start : len(after) - end]
    middle: list[Line] = []
    if len(old) * len(new) > COMPARED_MAX:
        middle = [*(Line("removed", each) for each in old), *(Line("added", each) for each in new)]
    else:
        for what, old_from, old_to, new_from, new_to in SequenceMatcher(None, old, new).get_opcodes():
            if what == "equal":
                middle += [Line("same", each) for each in old[old_from:old_to]]
                continue
            middle += [Line("removed", each) for each in old[old_from:old_to]]
            middle += [Line("added", each) for each in new[new_from:new_to]]
    first = [Line("same", each) for each in before[:start]]
    return [*first, *middle, *(Line("same", each) for each in before[len(before) - end :])]


def _near_changes(lines: list[Line]) -> list[Line]:
    near = [False] * len(lines)
    left = 0
    for order in (range(len(lines)), range(len(lines) - 1, -1, -1)):
        left = 0
        for at in order:
            left = AROUND + 1 if lines[at].change != "same" else left
            near[at] = near[at] or left > 0
            left = max(left - 1, 0)
    found: list[Line] = []
    skipped = 0
    for line, is_near in zip(lines, near, strict=True):
        if not is_near:
            skipped += 1
            continue
        if skipped:
            found.append(Line("skipped", f"{skipped:,} equal lines"))
            skipped = 0
        found.append(line)
    if skipped:
        found.append(Line("skipped", f"{skipped:,} equal lines"))
    return found
