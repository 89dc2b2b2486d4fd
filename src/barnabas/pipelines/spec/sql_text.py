"""A look at SQL without Spark: does every bracket and quote that opens close, and is `input` read.

Spark parses the text again when the pipeline runs. What is found here is what a slip of the hand
leaves behind, heard of in the time of a keystroke; a misspelt column takes a parser (`sql_columns`), a
misspelt function and a wrong type are left to Spark.
"""

from __future__ import annotations

import re
from typing import Final

_SKIPPED: Final = re.compile(
    r"\b[rR](?:'[^']*'|\"[^\"]*\")|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`|--[^\n]*|/\*.*?\*/",
    re.DOTALL,
)
_PAIRS: Final = {")": "(", "]": "["}
INPUT: Final = "input"
_QUERY: Final = "SELECT … FROM input …"


def sql_complaint(text: str) -> str | None:
    """What is wrong with an expression or a query, or None."""
    bare = _SKIPPED.sub(" ", text)
    if not text.strip():
        return "there is nothing; expected SQL"
    quote = re.search(r"['\"`]", bare)
    if quote:
        return f"a {quote.group()} opens and does not close, in {_shown(text)}"
    open_brackets: list[str] = []
    for char in bare:
        if char in "([":
            open_brackets.append(char)
        elif char in _PAIRS and (not open_brackets or open_brackets.pop() != _PAIRS[char]):
            return f"a {char!r} closes what was not opened, in {_shown(text)}"
    if open_brackets:
        return f"a {open_brackets[-1]!r} is not closed, in {_shown(text)}"
    return None


def query_complaint(text: str) -> str | None:
    """The same for a whole query, which must read the rows that it is given."""
    complaint = sql_complaint(text)
    if complaint is not None:
        return complaint
    bare = _SKIPPED.sub(lambda found: found.group() if found.group().startswith("`") else " ", text)
    if not re.match(r"\s*\(*\s*(SELECT|WITH|FROM|VALUES|TABLE)\b", bare, re.IGNORECASE):
        return f"{_shown(text)} is not a query; expected {_QUERY}"
    if not re.search(rf"\b{INPUT}\b", bare, re.IGNORECASE):
        return f"the query does not read the rows that come in; expected {_QUERY}"
    return None


def _shown(text: str) -> str:
    short = " ".join(text.split())
    return repr(short if len(short) <= 60 else short[:59] + "…")
