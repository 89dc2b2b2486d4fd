"""Bound on the values that bytes in Avro may become, before they are decoded.

Avro has values that take no byte: null, records of them, fixed of size 0. Ten bytes hold an array of any
number of them, and a chain of records may double at each link. A client that registers a schema could so end
the process that decodes.

A schema has a fixed number of values, and parts that repeat: items of arrays and maps, branches of unions.
Each repetition takes at least a byte, or the schema is refused, and so the bytes bound the repetitions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from barnabas.console.records.decoding import Undecodable

_BYTES: Final = {"null": 0, "float": 4, "double": 8}
"""Fewest bytes of a primitive type, where they are not 1."""


class _Size(NamedTuple):
    """Values of a part of a schema, and the fewest bytes that they take, without what repeats."""

    values: int
    bytes: int


class ValueBounds:
    """Bounds of one schema, as `fastavro.parse_schema` returns it."""

    def __init__(self, schema: Any) -> None:
        self._records: dict[str, _Size | None] = {}
        self._repeated: list[tuple[Any, int]] = []
        """Parts that repeat, with the bytes of a repetition beside the part's own."""
        self._values = self._size(schema).values
        self._values_per_byte = max(self._rates(), default=0)

    def of(self, size_bytes: int) -> int:
        """The most values that as many bytes can become."""
        return self._values + size_bytes * self._values_per_byte

    def _rates(self) -> Iterator[int]:
        while self._repeated:
            part, beside = self._repeated.pop()
            size = self._size(part)
            if not size.bytes + beside:
                raise Undecodable("the schema has an array of items that take no byte")
            yield -(-size.values // (size.bytes + beside))

    def _size(self, schema: Any) -> _Size:
        if isinstance(schema, list):
            self._repeated += [(branch, 1) for branch in schema]
            return _Size(0, 1)
        if isinstance(schema, str):
            return self._named(schema)
        kind = schema["type"]
        if kind in ("record", "error"):
            return self._record(schema)
        if kind == "array":
            self._repeated.append((schema["items"], 0))
        elif kind == "map":
            self._repeated.append((schema["values"], 1))
        elif kind in ("fixed", "enum"):
            found = self._records[schema["name"]] = _Size(1, schema.get("size", 1))
            return found
        else:
            return self._size(kind)
        return _Size(1, 1)

    def _named(self, name: str) -> _Size:
        if name not in self._records:
            return _Size(1, _BYTES.get(name, 1))
        found = self._records[name]
        if found is None:
            raise Undecodable(f"each {name} of the schema contains another one")
        return found

    def _record(self, schema: Any) -> _Size:
        self._records[schema["name"]] = None
        parts = [self._size(each["type"]) for each in schema["fields"]]
        found = _Size(1 + sum(each.values for each in parts), sum(each.bytes for each in parts))
        self._records[schema["name"]] = found
        return found
