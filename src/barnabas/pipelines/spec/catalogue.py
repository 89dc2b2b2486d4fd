"""Every kind of source, sink and transform there is, by role and name."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from barnabas.pipelines.spec.options import Plugin
from barnabas.pipelines.spec.sink_options import SINKS
from barnabas.pipelines.spec.source_options import SOURCES
from barnabas.pipelines.spec.transform_options import TRANSFORMS

CATALOGUE: Mapping[str, Mapping[str, Plugin]] = {
    "source": SOURCES,
    "transform": TRANSFORMS,
    "sink": SINKS,
}


def plugins() -> Iterator[Plugin]:
    for by_name in CATALOGUE.values():
        yield from by_name.values()


def implementation(plugin: Plugin) -> Callable[..., Any]:
    """The function behind a plugin; importing it needs Spark."""
    module, _, function = plugin.implementation.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), function)
    return found
