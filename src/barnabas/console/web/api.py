"""JSON under /api, and its description as OpenAPI 3.1, both from the dataclasses of the view."""

from __future__ import annotations

import asyncio
import json
import re
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from barnabas import __version__

if TYPE_CHECKING:
    from barnabas.console.web.section import Parameter, Question, Section

_SIMPLE: Final = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
UNBROKEN_BYTES: Final = 256 * 1024
_IN_PATH: Final = re.compile(r"\{(\w+)(?::(\w+))?\}")


def as_json(value: Any) -> Any:
    """The value with dataclasses as objects. Bytes never come here: records have a form of their own."""
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: as_json(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): as_json(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [as_json(each) for each in value]
    return value


async def encoded(value: Any) -> bytes:
    """Text of a JSON value. Long lists of an object are encoded element by element: other pages go on."""
    pieces, unbroken_bytes = [], 0
    for piece in _pieces(value):
        text = piece.encode()
        pieces.append(text)
        unbroken_bytes += len(text)
        if unbroken_bytes > UNBROKEN_BYTES:
            await asyncio.sleep(0)
            unbroken_bytes = 0
    return b"".join(pieces)


def _pieces(value: Any) -> Iterator[str]:
    if not isinstance(value, dict):
        yield from _elements(value)
        return
    start = "{"
    for name, member in value.items():
        yield f"{start}{_dumped(name)}:"
        yield from _elements(member)
        start = ","
    yield "}" if value else "{}"


def _elements(value: Any) -> Iterator[str]:
    if not isinstance(value, list):
        yield _dumped(value)
        return
    start = "["
    for each in value:
        yield start + _dumped(each)
        start = ","
    yield "]" if value else "[]"


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def openapi(sections: Sequence[Section], base: str = "") -> dict[str, Any]:
    schemas: dict[str, Any] = {}
    paths = {
        _IN_PATH.sub(r"{\1}", each.path): {"get": _operation(section, each, schemas)}
        for section in sections
        for each in section.questions
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Barnabas console",
            "version": __version__,
            "description": "The data of the console's pages, as JSON. Times are milliseconds since 1970,"
            " sizes bytes, rates per second. null is not known.",
        },
        **({"servers": [{"url": base}]} if base else {}),
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _operation(section: Section, question: Question, schemas: dict[str, Any]) -> dict[str, Any]:
    in_path = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "integer" if kind == "int" else "string"},
        }
        for name, kind in _IN_PATH.findall(question.path)
    ]
    return {
        "operationId": question.path.removeprefix("/api/")
        .replace("/", "_")
        .translate({ord(c): None for c in "{}:"}),
        "tags": [section.title],
        "summary": question.doc,
        "parameters": [*in_path, *map(_parameter, question.parameters)],
        "responses": {
            "200": {
                "description": "The answer.",
                "content": {"application/json": {"schema": _schema(question.returns, schemas)}},
            },
            "4XX": {"description": "A message says why not."},
        },
    }


def _parameter(found: Parameter) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": found.kind}
    if found.choices:
        schema["enum"] = list(found.choices)
    return {"name": found.name, "in": "query", "description": found.doc, "schema": schema}


def _schema(  # noqa: PLR0911 - a case for each kind of type
    found: Any, schemas: dict[str, Any], bound: Mapping[Any, Any] | None = None
) -> dict[str, Any]:
    if isinstance(found, TypeVar):
        return _schema((bound or {})[found], schemas)
    if found in _SIMPLE:
        return {"type": _SIMPLE[found]}
    origin, arguments = get_origin(found), get_args(found)
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [_schema(each, schemas, bound) for each in arguments]}
    if origin is tuple:
        if arguments[-1] is Ellipsis:
            return {"type": "array", "items": _schema(arguments[0], schemas, bound)}
        return {"type": "array", "prefixItems": [_schema(each, schemas, bound) for each in arguments]}
    if origin is dict or origin is Mapping:
        return {"type": "object", "additionalProperties": _schema(arguments[1], schemas, bound)}
    target = origin or found
    if is_dataclass(target) and isinstance(target, type):
        return _dataclass_schema(target, arguments, schemas)
    return {}


def _dataclass_schema(target: type, arguments: tuple[Any, ...], schemas: dict[str, Any]) -> dict[str, Any]:
    name = target.__name__ + "".join(each.__name__ for each in arguments)
    if name not in schemas:
        schemas[name] = {}
        bound = dict(zip(getattr(target, "__parameters__", ()), arguments, strict=True))
        hints = get_type_hints(target)
        own = fields(target)
        schemas[name] = {
            "type": "object",
            "properties": {each.name: _schema(hints[each.name], schemas, bound) for each in own},
            "required": [each.name for each in own],
        }
    return {"$ref": f"#/components/schemas/{name}"}
