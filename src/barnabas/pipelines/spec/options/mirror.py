"""Options of the mirror sink."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.pipelines.spec.options.client_settings import client_settings_complaint
from barnabas.pipelines.spec.options.option import Kind, Option, Plugin, Value
from barnabas.pipelines.spec.options.value_parsers import pattern_complaint

ROW_FILTERS = frozenset(("filter", "Filter"))
"""Transforms that leave the remaining records as they are."""


def mirror_complaints(
    source_type: str, source: Mapping[str, Value], sink: Mapping[str, Value], transforms: list[str]
) -> list[tuple[tuple[str | int, ...], str]]:
    """Complaints about the other parts of a pipeline with a mirror sink."""
    if source_type != "topic":
        return [(("source", "type"), f"a mirror copies topics, not {source_type}; expected topic")]
    found: list[tuple[tuple[str | int, ...], str]] = []
    if source.get("format") != "raw":
        found.append((("source",), "a mirror copies the bytes of records; expected format: raw"))
    if source.get("headers") is False:
        found.append((("source", "headers"), "a mirror copies headers; leave the option out"))
    for at, kind in enumerate(transforms):
        if kind not in ROW_FILTERS:
            found.append(
                (("transforms", at), f"a mirror copies records unchanged; expected filter, not {kind}")
            )
    is_same = source.get("bootstrap") == sink.get("bootstrap")
    if is_same and (not sink.get("prefix") or source.get("pattern")):
        found.append(
            (
                ("sink",),
                (
                    "source and mirror are the same cluster, so the mirror could read its own copies for ever;"
                    " expected another bootstrap in one of them, or a prefix and topics by name"
                ),
            )
        )
    return found


MIRROR = Plugin(
    "sink", "mirror", "Copies of topics in another cluster. Exactly once: one transaction per micro-batch.", (
        Option("prefix", Kind.TEXT, "", "Beginning of the copies' names, such as `east.`."),
        Option("bootstrap", Kind.LIST, None, "Bootstrap servers. Default: those of the service.",
               aliases=("bootstrap.servers", "kafka.bootstrap.servers")),
        Option("groups", Kind.TEXT, None, "Regular expression of the groups whose committed offsets are translated. Default: none.",
               check=pattern_complaint),
        Option("sync_interval", Kind.DURATION, "60 seconds", "Pause between two translations of committed offsets."),
        Option("compression", Kind.CHOICE, None, "Codec of the batches.", choices=("none", "gzip", "snappy", "lz4", "zstd")),
        Option("kafka", Kind.MAP, None, "Client settings, passed on as `kafka.<name>`. Secrets must be references.", check=client_settings_complaint),
    ),
    primary="prefix", connect_class="MirrorSink",
)  # fmt: skip
