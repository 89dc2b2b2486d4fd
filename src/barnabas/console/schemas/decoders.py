"""Decoders of keys and values: by the schema that a framed record names, or by a message given for a topic.

The framing is Confluent's (`client.extensions.schema_frame`). Schemas become decoders once. A page waits for
registries a few seconds in all, however many schemas its records name; what is fetched later is there for the
next page.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from barnabas.client.extensions.schema_frame import UnframedRecord, is_framed, place_of, unframe
from barnabas.console.formats.avro import AvroSchema
from barnabas.console.formats.bounds import VALUE_BYTES_MAX, Undecodable, UnusableSchema
from barnabas.console.protobuf.model import File, Message, Types
from barnabas.console.protobuf.proto_text import parse_proto
from barnabas.console.protobuf.values import decode_message
from barnabas.console.protobuf.well_known import well_known
from barnabas.console.schemas.registry import Registry, RegistryError, Schema
from barnabas.core.clock import Clock

PAGE_WAITS_MS: Final = 4_000.0
PAGE_DECODES_MS: Final = 6_000.0
"""For all values of a page, the wait for registries included."""
UNBROKEN_MS: Final = 10.0
SCHEMAS_MAX: Final = 300
SCHEMA_CHARACTERS_KEPT_MAX: Final = 4 * 1024 * 1024
"""Texts of the schemas that decoders are kept for. A decoder takes up to sixty times the text."""
INLINE_BYTES_MAX: Final = 16 * 1024
"""A larger value is decoded by a thread, so that other pages go on."""

Kind = Literal["avro", "protobuf", "json"]
Part = Literal["key", "value"]


@dataclass(frozen=True, slots=True)
class Decoded:
    value: Any
    kind: Kind
    schema: str
    """Name of the schema, for people."""
    schema_id: int | None = None


@dataclass(frozen=True, slots=True)
class _Compiled:
    kind: Kind
    decode: Callable[[bytes], Any]


class SchemaDecoders:
    """Decoders by schema id, kept while they are used."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._compiled: OrderedDict[int, asyncio.Task[_Compiled]] = OrderedDict()
        self._characters: dict[int, int] = {}
        """Of the text behind each decoder that is ready."""

    async def decode(self, data: bytes, wait_s: float) -> Decoded:
        if len(data) > VALUE_BYTES_MAX:
            raise Undecodable("the value is too large to be decoded")
        schema_id, payload = unframe(data)
        compiled = await self._of(schema_id, wait_s)
        if len(payload) <= INLINE_BYTES_MAX:
            value = compiled.decode(payload)
        else:
            value = await asyncio.to_thread(compiled.decode, payload)
        return Decoded(value, compiled.kind, f"{compiled.kind}, schema {schema_id}", schema_id)

    async def _of(self, schema_id: int, wait_s: float) -> _Compiled:
        task = self._compiled.get(schema_id)
        if task is None or (task.done() and not task.cancelled() and task.exception() is not None):
            task = self._compiled[schema_id] = asyncio.create_task(self._compile(schema_id))
            task.add_done_callback(_look)
            while len(self._compiled) > SCHEMAS_MAX:
                self._drop_oldest()
        self._compiled.move_to_end(schema_id)
        if not task.done():
            await asyncio.wait((task,), timeout=wait_s)
        if not task.done():
            raise Undecodable(f"the schema registry is slow: schema {schema_id} is not here yet")
        try:
            return task.result()
        except (RegistryError, UnusableSchema) as error:
            raise Undecodable(f"schema {schema_id}: {error}") from None

    async def _compile(self, schema_id: int) -> _Compiled:
        schema = await self._registry.schema_by_id(schema_id)
        others = [each.text for _, each in await self._registry.references(schema)]
        compiled = await asyncio.to_thread(_compiled, schema, others)
        if schema_id in self._compiled:
            self._characters[schema_id] = len(schema.text) + sum(map(len, others))
        while sum(self._characters.values()) > SCHEMA_CHARACTERS_KEPT_MAX and len(self._compiled) > 1:
            self._drop_oldest()
        return compiled

    def _drop_oldest(self) -> None:
        schema_id, _ = self._compiled.popitem(last=False)
        self._characters.pop(schema_id, None)


def _look(task: asyncio.Task[_Compiled]) -> None:
    if not task.cancelled():
        task.exception()


def _compiled(schema: Schema, others: Sequence[str]) -> _Compiled:
    match schema.type:
        case "AVRO":
            return _Compiled("avro", AvroSchema(schema.text, others).decode)
        case "PROTOBUF":
            file = parse_proto(schema.text)
            types = Types([*well_known(), *map(parse_proto, others), file])
            del types  # it has resolved the names
            return _Compiled("protobuf", lambda payload: _by_place(payload, file))
        case "JSON":
            return _Compiled("json", _json)
    raise UnusableSchema(f"it is {schema.type}, which is not decoded here")


def _by_place(payload: bytes, file: File) -> Any:
    """Decode a message whose place in its file comes first."""
    try:
        places, data = place_of(payload)
    except UnframedRecord as error:
        raise Undecodable(str(error)) from None
    declared, message = file.messages, None
    for place in places:
        declared = [each for each in declared if not each.is_map_entry]
        if not 0 <= place < len(declared):
            raise Undecodable("the value names a message that the schema does not have")
        message = declared[place]
        declared = message.messages
    assert message is not None
    return decode_message(data, message)


def _json(payload: bytes) -> Any:
    try:
        return json.loads(payload)
    except RecursionError:
        raise Undecodable("the JSON is nested too deeply") from None
    except ValueError as error:
        raise Undecodable(f"the bytes are not JSON: {error}") from None


def without_frame(data: bytes) -> bytes:
    """The message itself, of a framed one whose schema is not at hand."""
    if not is_framed(data):
        return data
    try:
        return place_of(unframe(data)[1])[1]
    except UnframedRecord as error:
        raise Undecodable(str(error)) from None


class PartDecoder:
    """Decoder of the keys or of the values of one topic, for one page: a `records.decoding.Decoder`."""

    def __init__(
        self,
        schemas: SchemaDecoders | None,
        message: Message | None,
        clock: Clock,
        decodes_ms: float = PAGE_DECODES_MS,
    ) -> None:
        self._schemas = schemas
        self._message = message
        self._clock = clock
        self._decodes_ms = decodes_ms
        self._until_ms = clock.monotonic_ms() + PAGE_WAITS_MS
        self._spent_ms = self._unbroken_ms = 0.0

    @property
    def is_spent(self) -> bool:
        """Whether the page has decoded as much as it may: other values are left as they are."""
        return self._spent_ms > self._decodes_ms

    async def decode(self, data: bytes) -> Decoded | None:
        """None if nothing says how to decode these bytes."""
        if self._message is None and (self._schemas is None or not is_framed(data)):
            return None
        if self.is_spent:
            raise Undecodable("this page has decoded as much as it may")
        begun_ms = self._clock.monotonic_ms()
        try:
            return await self._decoded(data)
        finally:
            took_ms = self._clock.monotonic_ms() - begun_ms
            self._spent_ms += took_ms
            self._unbroken_ms += took_ms
            if self._unbroken_ms > UNBROKEN_MS:
                self._unbroken_ms = 0.0
                await asyncio.sleep(0)  # other pages wait for the same loop

    async def _decoded(self, data: bytes) -> Decoded:
        if self._message is not None:
            return await self._by_message(data, self._message)
        assert self._schemas is not None
        left_ms = max(self._until_ms - self._clock.monotonic_ms(), 0.0)
        return await self._schemas.decode(data, left_ms / 1_000)

    async def _by_message(self, data: bytes, message: Message) -> Decoded:
        if len(data) <= INLINE_BYTES_MAX:
            value = decode_message(data, message)
        else:
            value = await asyncio.to_thread(decode_message, data, message)
        return Decoded(value, "protobuf", f"protobuf, {message.full_name}")
