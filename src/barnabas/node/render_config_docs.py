"""Writes `docs/CONFIG.md`, which is a reading of the rows.

Run `python -m barnabas.node.render_config_docs > docs/CONFIG.md` after a change of a row.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from barnabas.core.config import Key
from barnabas.node.config_keys import SECTIONS
from barnabas.node.config_keys.words import INT_MAX, LONG_MAX

_PREFACE = """\
# Configuration of the broker

`barnabas start` reads a properties file as Apache Kafka does (`--config server.properties`);
`--set key=value` overrides single keys. Names, types and defaults are those of Apache Kafka 3.9
in ZooKeeper mode; a row says where a default differs. A key that is unknown, or that this broker
cannot honour, is refused at the start with a reason.

*Change* says when a new value takes effect: `read-only` at the next start; `per-broker` and
`cluster-wide` at once, through `barnabas config set`.

Any key may stand under `listener.name.<listener>.` to hold for that listener alone.

This file is rendered from `barnabas.node.config_keys`; edit the rows, then run
`python -m barnabas.node.render_config_docs > docs/CONFIG.md`.
"""

_NAMED = {INT_MAX: "2³¹−1", LONG_MAX: "2⁶³−1"}


def render() -> str:
    """The whole document."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield _PREFACE
    for title, rows in SECTIONS:
        yield f"## {title}\n"
        yield "| key | type | default | valid | change | what it does |"
        yield "|---|---|---|---|---|---|"
        for row in rows:
            yield _row(row)
        yield ""


def _row(row: Key) -> str:
    valid = "" if row.check is None else row.check.describe()
    cells = (
        f"`{row.name}`",
        row.type.name.lower(),
        _default(row),
        valid,
        row.update.value,
        row.doc,
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _default(row: Key) -> str:
    if row.default is None:
        return "unset"
    if isinstance(row.default, int) and row.default in _NAMED:
        return _NAMED[row.default]
    text = row.render(row.default)
    return f"`{text}`" if text else "empty"


if __name__ == "__main__":
    sys.stdout.write(render())
