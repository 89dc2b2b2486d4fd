"""Catalogue of all sources, sinks and transforms, by role and name."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.pipelines.spec.options.option import Plugin
from barnabas.pipelines.spec.options.sinks import SINKS
from barnabas.pipelines.spec.options.sources import SOURCES
from barnabas.pipelines.spec.options.transforms import TRANSFORMS

CATALOGUE: Mapping[str, Mapping[str, Plugin]] = {
    "source": SOURCES,
    "transform": TRANSFORMS,
    "sink": SINKS,
}
