from __future__ import annotations

import json
from pathlib import Path

from barnabas.pipelines.spec.options.catalogue import CATALOGUE
from barnabas.pipelines.spec.schema import pipeline_schema, render

PUBLISHED = Path(__file__).parents[4] / "docs" / "pipeline.schema.json"


def test_the_published_schema_is_the_one_that_the_rows_render() -> None:
    assert PUBLISHED.read_text() == render(), (
        "run: python -m barnabas.pipelines.spec.schema > docs/pipeline.schema.json"
    )


def test_every_kind_of_part_is_in_the_schema() -> None:
    definitions = json.dumps(pipeline_schema()["$defs"])
    for plugin in (each for by_name in CATALOGUE.values() for each in by_name.values()):
        assert f'{{"const": "{plugin.name}"}}' in definitions


def test_names_of_connectors_are_unique() -> None:
    names = [plugin.connect_class for role in ("source", "sink") for plugin in CATALOGUE[role].values()]
    assert len(names) == len(set(names))
