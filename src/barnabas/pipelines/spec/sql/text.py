"""Quick check of SQL without Spark: closed brackets and quotes, and a query that reads `input`.

Spark parses the text again when the pipeline runs. This check finds typing errors at once. A misspelt column
needs a parser (`sql.columns`); Spark finds a misspelt function or a wrong type.
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
    """Error in an expression or query, or None."""
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
    """Error in a query, which must read the input rows, or None."""
    complaint = sql_complaint(text)
    if complaint is not None:
        return complaint
    bare = _SKIPPED.sub(lambda found: found.group() if found.group().startswith("`") else " ", text)
    if not re.match(r"\s*\(*\s*(SELECT|WITH|FROM|VALUES|TABLE)\b", bare, re.IGNORECASE):
        return f"{_shown(text)} is not a query; expected {_QUERY}"
    if not re.search(rf"\b{INPUT}\b", bare, re.IGNORECASE):
        return f"the query does not read its input rows; expected {_QUERY}"
    return None


def _shown(text: str) -> str:
    short = " ".join(text.split())
    return repr(short if len(short) <= 60 else short[:59] + "…")
