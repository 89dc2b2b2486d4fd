"""Every kind of source, sink and transform there is, by role and name."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.pipelines.spec.options import Plugin
from barnabas.pipelines.spec.sink_options import SINKS
from barnabas.pipelines.spec.source_options import SOURCES
from barnabas.pipelines.spec.transform_options import TRANSFORMS

CATALOGUE: Mapping[str, Mapping[str, Plugin]] = {
    "source": SOURCES,
    "transform": TRANSFORMS,
    "sink": SINKS,
}
