"""Every kind that a spec may name has a function on Spark, and there are no others."""

from __future__ import annotations

from barnabas.pipelines.spark.runner import TRANSFORMERS, WRITERS
from barnabas.pipelines.spark.sources.readers import READERS
from barnabas.pipelines.spec.options.catalogue import CATALOGUE


def test_every_kind_of_the_catalogue_has_its_function() -> None:
    functions = {"source": READERS, "transform": TRANSFORMERS, "sink": WRITERS}
    assert {role: set(kinds) for role, kinds in CATALOGUE.items()} == {
        role: set(kinds) for role, kinds in functions.items()
    }
