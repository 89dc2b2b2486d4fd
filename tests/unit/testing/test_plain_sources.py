"""The pytest plugin keeps pytest from rewriting the asserts of Barnabas itself."""

from __future__ import annotations

import importlib

import pytest
from _pytest.assertion.rewrite import AssertionRewritingHook


@pytest.mark.parametrize("module", ["barnabas.storage.log.log", "barnabas.cli.main", "pyspark_barnabas"])
def test_modules_of_the_product_are_loaded_as_they_are(module: str) -> None:
    assert not isinstance(importlib.import_module(module).__loader__, AssertionRewritingHook)


def test_test_modules_are_rewritten() -> None:
    assert isinstance(__loader__, AssertionRewritingHook)  # type: ignore[name-defined]
