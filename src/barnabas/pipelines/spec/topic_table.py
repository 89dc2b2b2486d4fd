"""Pipelines of topics that are tables: the topic setting `barnabas.table` as the document of a spec.

The setting names format and place, and after `?` options of the pipeline:
`delta:/lake/orders?schema=id BIGINT, name STRING&mode=upsert&key=id`. They are options of the spec's source
and sink, under the same names. Escapes of URLs (`%26` for `&`) hold in them.

References to files and variables are refused. A user who may set a setting of a topic would read with them
whatever the service may read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote

from barnabas.config.definitions.topics import TABLE
from barnabas.pipelines.spec.problems import InvalidSpec, Problem, meant
from barnabas.security.identity.secret_references import has_reference

PREFIX: Final = "table-"
OF_SOURCE: Final = frozenset(
    {
        "envelope", "fail_on_data_loss", "format", "key_format", "key_schema", "samples", "schema",
        "schema_registry", "subject", "max_offsets_per_trigger",
    }
)  # fmt: skip
OF_SINK: Final = frozenset(
    {
        "compression", "evolve", "keep", "key", "maintenance", "mode", "partition_by", "record_columns",
        "target_file_size",
    }
)  # fmt: skip
TRIGGER: Final = "trigger"


def pipeline_of(topic: str) -> str:
    """Name of the pipeline that keeps the table of a topic."""
    return PREFIX + topic


def place_of(setting: str) -> tuple[str, str]:
    """Format and place of the table."""
    kind, _, rest = setting.partition(":")
    return kind, rest.partition("?")[0]


def document_of(topic: str, setting: str) -> dict[str, Any]:
    """Document of the pipeline; raises InvalidSpec for an option that there is not, and for a reference."""
    kind, place = place_of(setting)
    given = _options(setting.partition("?")[2])
    if any(map(has_reference, (place, *given.values()))):
        raise _invalid(
            "the setting of a topic holds no references such as ${env:NAME}; write the text itself"
        )
    source = {name: text for name, text in given.items() if name in OF_SOURCE}
    # `format` is that of the records: the table's is before the place.
    sink = {name: text for name, text in given.items() if name in OF_SINK}
    document: dict[str, Any] = {
        "name": pipeline_of(topic),
        "source": {"type": "topic", "topics": [topic], **source},
        "sink": {"type": "table", "format": kind, "path": place, **sink},
    }
    if TRIGGER in given:
        document[TRIGGER] = given[TRIGGER]
    return document


def _options(text: str) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for pair in filter(None, text.split("&")):
        name, is_given, value = pair.partition("=")
        known = OF_SOURCE | OF_SINK | {TRIGGER}
        if name not in known:
            raise _invalid(f"there is no option {name!r}; {meant(name, sorted(known))}")
        if not is_given:
            raise _invalid(f"option {name} has no value; expected {name}=VALUE")
        found[name] = unquote(value)
    return found


def _invalid(message: str) -> InvalidSpec:
    return InvalidSpec([Problem((TABLE,), TABLE, None, message)])
