"""How a pipeline reaches the cluster that it runs on, where its spec does not say so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from barnabas.client.security_settings import OPTIONS, SECRETS
from barnabas.pipelines.spec.client_settings import PROTOCOL, is_reference, plain_names
from barnabas.pipelines.spec.model import Part, PipelineSpec


def of_properties(properties: Mapping[str, str], file: Path) -> dict[str, str]:
    """Those about security in a file of client properties; secrets become references to the file."""
    return {
        name: f"${{file:{file.absolute()}:{name}}}" if name in SECRETS and not is_reference(text) else text
        for name, text in properties.items()
        if name in OPTIONS
    }


def with_client_settings(spec: PipelineSpec, settings: Mapping[str, str]) -> PipelineSpec:
    """The spec, whose parts reach the pipeline's own cluster by `settings` where they say nothing else. One
    that names other brokers gets nothing: they must not see these credentials."""

    def given(part: Part) -> Part:
        own = plain_names(part.get("kafka") or {})
        if part.type != "topic" or part.get("bootstrap") or PROTOCOL in own or not settings:
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
    """Those by which its sink, or else its source, reaches that cluster; for dead letters beside them."""
    for part in (spec.sink, spec.source):
        if part.type == "topic" and not part.get("bootstrap") and part.get("kafka"):
            return plain_names(part["kafka"])
    return {}
