"""JSON of a large answer: the same text, with turns of other pages between its parts."""

from __future__ import annotations

import asyncio
import json

import pytest

from barnabas.console.web.api import UNBROKEN_BYTES, encoded


@pytest.mark.parametrize(
    "value",
    [{}, [], {"rows": []}, {"rows": [1, {"a": None}], "é": "ü\n"}, [1, [2, [3]]], "text", None, 1.5, True],
)
def test_the_text_is_that_of_the_standard_library(value: object) -> None:
    expected = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    assert asyncio.run(encoded(value)) == expected


def test_other_pages_have_turns_while_a_large_answer_is_encoded() -> None:
    turns = 0

    async def run() -> None:
        nonlocal turns
        work = asyncio.create_task(encoded({"rows": ["x" * (UNBROKEN_BYTES + 1)] * 5}))
        while not work.done():
            turns += 1
            await asyncio.sleep(0)

    asyncio.run(run())
    assert turns > 5
