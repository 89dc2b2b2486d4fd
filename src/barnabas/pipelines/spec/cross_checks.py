"""Cross checks of a spec: combinations of valid parts that the whole does not allow."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from barnabas.core.errors import InvalidTopicException
from barnabas.core.ids import check_topic_name
from barnabas.pipelines.spec.model import Delivery, Engine, Part, Tolerance, Trigger
from barnabas.pipelines.spec.options.mirror import mirror_complaints
from barnabas.pipelines.spec.options.option import Value
from barnabas.pipelines.spec.options.sinks import EXACTLY_ONCE_SINKS
from barnabas.pipelines.spec.yaml_source import Path
from barnabas.security.identity.secret_references import has_reference

_MASTER = re.compile(
    r"local(\[(\*|\d+)(,\s*\d+)?\])?|local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]|yarn|\w+://.+|.*\$\{.*"
)
"""A word of Spark, any address, or a reference."""
Complaints = Iterator[tuple[Path, str]]


def complaints_about_whole(
    top: Mapping[str, Value],
    source: Part | None,
    sink: Part | None,
    transforms: Sequence[Part],
    errors: Mapping[str, Value],
    trigger: Trigger,
) -> Complaints:
    """Complaints about the whole spec. A part that could not be parsed is None."""
    yield from _topic_names(source, sink, errors)
    if sink is not None:
        yield from _delivery(top, sink, transforms, errors)
    if source is not None and sink is not None:
        yield from _circles(source, sink, transforms, errors)
        if sink.type == "mirror":
            kinds = [part.type for part in transforms]
            yield from mirror_complaints(source.type, source.options, sink.options, kinds)
    if source is not None:
        yield from _engine(top, source, trigger)


def master_complaint(master: str) -> str | None:
    if _MASTER.fullmatch(master):
        return None
    known = "local[*], local-cluster[n,cores,MB], spark://host:port, yarn or k8s://…"
    return f"found {master!r}; expected {known}"


def _topic_names(source: Part | None, sink: Part | None, errors: Mapping[str, Value]) -> Complaints:
    """Topic names that no broker accepts. Names are not secrets: the group, offsets and schemas use them."""
    given: list[tuple[Path, Value]] = [(("errors", "dead_letter_topic"), errors.get("dead_letter_topic"))]
    if source is not None and source.type == "topic":
        given += [(("source", "topics"), name) for name in source.get("topics") or ()]
    if sink is not None and sink.type == "topic":
        given.append((("sink", "topic"), sink.get("topic")))
    for path, name in given:
        if not isinstance(name, str):
            continue
        if has_reference(name):
            yield path, f"found the reference {name!r}; expected the topic's name, written out"
            continue
        try:
            check_topic_name(name)
        except InvalidTopicException as error:
            yield path, error.message


def _delivery(
    top: Mapping[str, Value], sink: Part, transforms: Sequence[Part], errors: Mapping[str, Value]
) -> Complaints:
    if top.get("delivery") == Delivery.EXACTLY_ONCE.value and sink.type not in EXACTLY_ONCE_SINKS:
        able = ", ".join(sorted(EXACTLY_ONCE_SINKS))
        yield (
            ("delivery",),
            f"sink {sink.type} cannot deliver exactly once (these can: {able}); expected at-least-once",
        )
    updates = [
        at for at, part in enumerate(transforms) if part.type == "window" and part["emit"] == "updates"
    ]
    only_adds = sink.type == "files" or (sink.type == "table" and sink.get("mode") != "upsert")
    if updates and only_adds:
        yield (
            ("transforms", updates[0]),
            f"sink {sink.type} only adds rows; expected emit: final" + _or_upsert(sink),
        )
    if errors.get("dead_letter_topic") and errors.get("tolerance") == Tolerance.NONE.value:
        yield (
            ("errors", "dead_letter_topic"),
            "with tolerance none the first bad record stops the pipeline; expected tolerance: all",
        )


def _or_upsert(sink: Part) -> str:
    return ", or mode: upsert" if sink.type == "table" else ""


def _circles(source: Part, sink: Part, transforms: Sequence[Part], errors: Mapping[str, Value]) -> Complaints:
    """Cycles: a pipeline that reads its own output never ends."""
    if source.type != "topic":
        return
    read = set(source.get("topics") or ())
    is_rerouted = any(part.type in ("RegexRouter", "TimestampRouter") for part in transforms)
    is_elsewhere = source.get("bootstrap") != sink.get("bootstrap")
    if sink.type == "topic" and sink.get("topic") in read and not is_rerouted and not is_elsewhere:
        yield ("sink", "topic"), f"the pipeline would read its own output, {sink['topic']!r}, for ever"
    if errors.get("dead_letter_topic") in read:
        found = f"the pipeline would read its own dead letters, {errors['dead_letter_topic']!r}, for ever"
        yield ("errors", "dead_letter_topic"), f"{found}; expected a topic that is not read here"


def _engine(top: Mapping[str, Value], source: Part, trigger: Trigger) -> Complaints:
    """Engine and trigger. Closed segment files end, so a pipeline that reads them must end too."""
    if top.get("engine") != Engine.SEGMENTS.value:
        if source.get("manifest"):
            yield ("source", "manifest"), "only engine: segments reads a manifest"
        return
    if source.type != "topic":
        yield ("engine",), f"segments reads topics, not {source.type}; expected auto"
    elif not source.get("manifest"):
        yield ("source",), "engine segments needs 'manifest': the file that `barnabas log manifest` writes"
    if not trigger.available_now:
        found = "engine segments reads closed files and then ends; expected trigger: available_now"
        path = ("trigger" if "trigger" in top else "engine",)
        yield path, f"{found} (afterwards, engine: auto continues where the files end)"
