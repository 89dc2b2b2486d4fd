"""Values in Avro whose schema a registry has: the framing of Confluent, a zero byte and a schema id.

A schema is fetched once: that of an id never changes. A failure is kept for a while too, so a page of records
with unknown ids asks the registry once for each.
"""

from __future__ import annotations

import asyncio
import io
import json
import urllib.error
import urllib.request
from collections import OrderedDict
from typing import Any, Final, TypeAlias

from barnabas.console.records.avro_bounds import ValueBounds
from barnabas.console.records.decoding import Undecodable
from barnabas.core.clock import Clock
from barnabas.core.optional_dependencies import install_command

SCHEMAS_MAX: Final = 500
SCHEMA_BYTES_MAX: Final = 1 << 20
FAILURE_KEPT_MS: Final = 10_000.0
TIMEOUT_S: Final = 5.0
VALUE_BYTES_MAX: Final = 4 * 1024 * 1024
VALUES_MAX: Final = VALUE_BYTES_MAX
"""Values within one decoded value."""

_Known: TypeAlias = tuple[Any, ValueBounds]


class RegistryDecoder:
    """A `decoding.Decoder`."""

    def __init__(self, url: str, clock: Clock) -> None:
        self._url = url.rstrip("/")
        self._clock = clock
        self._schemas: OrderedDict[int, asyncio.Future[_Known]] = OrderedDict()
        self._failed: dict[int, tuple[float, str]] = {}

    async def decode(self, data: bytes) -> Any:
        if len(data) > VALUE_BYTES_MAX:
            raise Undecodable("the value is too large to be decoded")
        schema, bounds = await self._schema(int.from_bytes(data[1:5], "big"))
        if bounds.of(len(data)) > VALUES_MAX:
            raise Undecodable("the value may have too many parts to be decoded")
        try:
            import fastavro  # noqa: PLC0415 - an optional dependency
        except ImportError:
            raise Undecodable(f"Avro needs fastavro; install it with {install_command('formats')}") from None
        try:
            return fastavro.schemaless_reader(io.BytesIO(data[5:]), schema, None)
        except (
            ValueError,
            EOFError,
            IndexError,
            TypeError,
            KeyError,
            RecursionError,
            OverflowError,
        ) as error:
            raise Undecodable(f"the value does not fit its schema: {error or type(error).__name__}") from None

    async def _schema(self, schema_id: int) -> _Known:
        failed = self._failed.get(schema_id)
        if failed is not None and self._clock.monotonic_ms() - failed[0] < FAILURE_KEPT_MS:
            raise Undecodable(failed[1])
        known = self._schemas.get(schema_id)
        if known is None:
            known = self._schemas[schema_id] = asyncio.ensure_future(
                asyncio.to_thread(self._fetch, schema_id)
            )
            while len(self._schemas) > SCHEMAS_MAX:
                self._schemas.popitem(last=False)
        else:
            self._schemas.move_to_end(schema_id)
        try:
            return await asyncio.shield(known)
        except Undecodable as error:
            self._schemas.pop(schema_id, None)
            if len(self._failed) >= SCHEMAS_MAX:
                self._failed.clear()
            self._failed[schema_id] = (self._clock.monotonic_ms(), str(error))
            raise

    def _fetch(self, schema_id: int) -> _Known:
        if not self._url.startswith(("http://", "https://")):
            raise Undecodable("the schema registry's address begins with http:// or https://")
        request = urllib.request.Request(  # noqa: S310 - the scheme is checked above
            f"{self._url}/schemas/ids/{schema_id}", headers={"accept": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310
                body = answer.read(SCHEMA_BYTES_MAX + 1)
        except urllib.error.HTTPError as error:
            raise Undecodable(f"the schema registry answered {error.code} for schema {schema_id}") from None
        except OSError as error:
            raise Undecodable(f"the schema registry cannot be reached: {error}") from None
        if len(body) > SCHEMA_BYTES_MAX:
            raise Undecodable(f"schema {schema_id} is too large")
        try:
            found = json.loads(body)
            if found.get("schemaType", "AVRO") != "AVRO":
                raise Undecodable(f"schema {schema_id} is {found['schemaType']}, which is not decoded here")
            import fastavro  # noqa: PLC0415

            schema = fastavro.parse_schema(json.loads(found["schema"]))
            return schema, ValueBounds(schema)
        except ImportError:
            raise Undecodable(f"Avro needs fastavro; install it with {install_command('formats')}") from None
        except Undecodable:
            raise
        except Exception as error:  # noqa: BLE001 - a schema of a registry that others write
            raise Undecodable(f"schema {schema_id} cannot be used: {error}") from None
