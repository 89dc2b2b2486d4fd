"""Renderer of `docs/CONFIG.md` from the rows.

Run `python -m barnabas.config.render_docs > docs/CONFIG.md` after a change of a row.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from barnabas.config.definitions import SECTIONS
from barnabas.config.definitions.keys import Key
from barnabas.config.definitions.topics import TOPIC_KEYS
from barnabas.core.integers import INT_MAX, LONG_MAX

_PREFACE = """\
# Configuration

`barnabas start` reads a properties file as Apache Kafka does (`--config server.properties`);
`--set key=value` overrides single keys. Names, types and defaults are those of Apache Kafka 3.9
in ZooKeeper mode; a row says where a default differs. A key that is unknown, or that this broker
cannot honour, is refused at the start with a reason. The start names all such keys at once.

The `server.properties` of Apache Kafka 4 starts a broker. `node.id` is its `broker.id`, and listeners in
`controller.listener.names` are not served. One warning lists the keys of KRaft without effect. Refused
are `process.roles` without `broker`, and a quorum of several controllers without `zookeeper.connect`.

*Change* says when a new value takes effect: `read-only` at the next start; `per-broker` and
`cluster-wide` at once, through `barnabas config set`; `per-listener` at once for one listener of one
broker, under the name that begins with `listener.name.<listener>.`.

Any key of the broker may stand under `listener.name.<listener>.` to hold for that listener alone.

Settings of single topics come last. This file is rendered from the rows in
`barnabas.config.definitions`; edit those, then run
`python -m barnabas.config.render_docs > docs/CONFIG.md`.
"""

_TOPIC_PREFACE = """\
## Topics' own settings

Given when a topic is created (`barnabas topic create --config key=value`) or later
(`barnabas config set topic NAME key=value`), at once effective. A topic that does not set a key has
the value of the broker's key beside it.
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
            yield _cells(
                f"`{row.name}`",
                row.type.name.lower(),
                _default(row),
                _valid(row),
                row.update.value,
                row.doc,
            )
        yield ""
    yield _TOPIC_PREFACE
    yield "| key | type | default | valid | broker's key | what it does |"
    yield "|---|---|---|---|---|---|"
    for row in TOPIC_KEYS.values():
        synonym = f"`{row.synonym}`" if row.synonym else ""
        yield _cells(f"`{row.name}`", row.type.name.lower(), _default(row), _valid(row), synonym, row.doc)
    yield ""


def _cells(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _valid(row: Key) -> str:
    return "" if row.check is None else row.check.describe()


def _default(row: Key) -> str:
    if row.default is None:
        return "unset"
    if isinstance(row.default, int) and row.default in _NAMED:
        return _NAMED[row.default]
    text = row.render(row.default)
    return f"`{text}`" if text else "empty"


if __name__ == "__main__":
    sys.stdout.write(render())
