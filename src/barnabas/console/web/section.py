"""Section of the console: one file in `console/pages` with its pages, its forms and its questions under /api.

A file ends with its section, and `pages/__init__.py` lists it:

    SECTION = Section(
        "Topics", "/topics",
        routes=(get("/topics", show_topics), post("/topics", create_topic)),
        questions=(Question("/api/topics", "Topics.", answer_topics, Page[TopicRow], PARAMETERS),),
    )
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

from starlette.responses import Response

from barnabas.console.web.context import Context
from barnabas.console.web.navigation import Place

Handler = Callable[[Context], Awaitable[Response]]
Answer = Callable[[Context], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class PageRoute:
    method: Literal["GET", "POST"]
    path: str
    """In Starlette's form: `/topics/{topic}/partitions/{partition:int}`."""
    handle: Handler


def get(path: str, handle: Handler) -> PageRoute:
    return PageRoute("GET", path, handle)


def post(path: str, handle: Handler) -> PageRoute:
    return PageRoute("POST", path, handle)


@dataclass(frozen=True, slots=True)
class Parameter:
    """Parameter of a question, in the query. Those in the path follow from the path."""

    name: str
    kind: Literal["string", "integer", "boolean"]
    doc: str
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Question:
    """GET under /api: the same data as the page, as JSON."""

    path: str
    doc: str
    answer: Answer
    returns: Any
    """Type of the answer, for OpenAPI: a dataclass, or a tuple of them."""
    parameters: tuple[Parameter, ...] = ()


@dataclass(frozen=True, slots=True)
class Section:
    title: str
    path: str
    """Its first page, which the navigation links to."""
    routes: tuple[PageRoute, ...]
    questions: tuple[Question, ...] = ()
    is_in_navigation: bool = True
    within: str = ""
    """Path of the section that the navigation marks instead, for one that is not in it."""

    @property
    def place(self) -> Place:
        return Place(self.title, self.path, self.is_in_navigation, self.within)
