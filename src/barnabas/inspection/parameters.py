"""Parameters of a question, checked."""

from __future__ import annotations

from typing import Final

from barnabas.core.errors import InvalidRequest
from barnabas.inspection.wire import Question

ROWS_MAX: Final = 10_000
OFFSET_MAX: Final = 10_000_000
TEXT_LENGTH_MAX: Final = 1_024


def text(question: Question, name: str, default: str = "") -> str:
    value = question.get(name, default)
    if not isinstance(value, str) or len(value) > TEXT_LENGTH_MAX:
        raise InvalidRequest(f"{name} is a text of at most {TEXT_LENGTH_MAX} characters")
    return value


def number(question: Question, name: str, default: int = 0, most: int = OFFSET_MAX) -> int:
    value = question.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise InvalidRequest(f"{name} is a number from 0 to {most}")
    return value


def flag(question: Question, name: str) -> bool:
    value = question.get(name, False)
    if not isinstance(value, bool):
        raise InvalidRequest(f"{name} is true or false")
    return value


def texts(question: Question, name: str) -> list[str]:
    values = question.get(name, [])
    if (
        not isinstance(values, list)
        or len(values) > ROWS_MAX
        or not all(isinstance(each, str) for each in values)
    ):
        raise InvalidRequest(f"{name} is a list of at most {ROWS_MAX} texts")
    return list(values)


def choice(question: Question, name: str, choices: tuple[str, ...]) -> str:
    value = question.get(name, choices[0])
    if value not in choices:
        raise InvalidRequest(f"{name} is one of {', '.join(choices)}")
    return str(value)
