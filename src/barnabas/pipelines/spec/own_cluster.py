"""Client settings for the pipeline's own cluster, where its spec gives none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from barnabas.client.security.settings import OPTIONS, SECRETS
from barnabas.pipelines.spec.model import Part, PipelineSpec
from barnabas.pipelines.spec.options.client_settings import PROTOCOL, is_reference, plain_names

_TOPICS = ("topic", "mirror")


def of_properties(properties: Mapping[str, str], file: Path) -> dict[str, str]:
    """Security settings in a file of client properties. Secrets become references to the file."""
    return {
        name: f"${{file:{file.absolute()}:{name}}}" if name in SECRETS and not is_reference(text) else text
        for name, text in properties.items()
        if name in OPTIONS
    }


def with_client_settings(spec: PipelineSpec, settings: Mapping[str, str]) -> PipelineSpec:
    """Spec whose parts use `settings` for the pipeline's own cluster, where they have no settings.

    A part that names other brokers gets nothing: those brokers must not see these credentials.
    """

    def given(part: Part) -> Part:
        own = plain_names(part.get("kafka") or {})
        if part.type not in _TOPICS or part.get("bootstrap") or PROTOCOL in own or not settings:
            return part
        return Part(part.type, {**part.options, "kafka": {**settings, **own}})

    def joined(part: Part) -> Part:
        if part.type != "join":
            return part
        return Part(part.type, {**part.options, "source": given(part["source"])})

    return replace(
        spec,
        source=given(spec.source),
        sink=given(spec.sink),
        transforms=tuple(map(joined, spec.transforms)),
    )


def own_client_settings(spec: PipelineSpec) -> dict[str, str]:
    """Client settings of the sink, or else of the source, for the own cluster; used for dead letters."""
    for part in (spec.sink, spec.source):
        if part.type in _TOPICS and not part.get("bootstrap") and part.get("kafka"):
            return plain_names(part["kafka"])
    return {}
