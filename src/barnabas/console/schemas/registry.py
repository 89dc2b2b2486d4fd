"""Client of a schema registry, by Confluent's REST interface.

A registry that hangs holds no page: each question has a deadline, and after one that got no answer no other
is asked for a while. Answers are kept: the schema of an id forever, lists for a few seconds. Users who look
at the same page at the same time share one question.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast
from urllib.parse import quote

from barnabas.client.security.tls_context import TlsSettings, tls_context
from barnabas.console.formats.bounds import SCHEMA_CHARACTERS_MAX
from barnabas.console.schemas.http import OK, Address, NoAnswer, ask_json
from barnabas.core.clock import Clock
from barnabas.core.errors import InvalidConfig
from barnabas.security.identity.secret_references import UnresolvedSecret, resolve

T = TypeVar("T")

ACCEPT: Final = "application/vnd.schemaregistry.v1+json, application/json"
DEADLINE_S: Final = 3.0
AWAY_MS: Final = 10_000.0
LISTS_KEPT_MS: Final = 5_000.0
MISSING_KEPT_MS: Final = 10_000.0
ANSWERS_MAX: Final = 2_000
ANSWER_CHARACTERS_MAX: Final = 32 * 1024 * 1024
"""Characters of all answers that are kept."""
AT_ONCE: Final = 4
SUBJECTS_MAX: Final = 100_000
VERSIONS_MAX: Final = 10_000
REFERENCES_MAX: Final = 100
REFERENCES_CHARACTERS_MAX: Final = 4 * 1024 * 1024
URL_KEY: Final = "schema.registry.url"
USER_KEY: Final = "schema.registry.basic.auth.user.info"
_TLS_PREFIX: Final = "schema.registry.ssl."
NOT_FOUND: Final = 404


class RegistryError(Exception):
    """The registry did not answer, or not as expected; the message is for the user."""

    def __init__(self, message: str, status: int = 502) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Reference:
    name: str
    """As the schema writes it: a name of Avro, a file that Protobuf imports, a `$ref` of JSON Schema."""
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class Schema:
    schema_id: int
    type: str
    """AVRO, PROTOBUF or JSON."""
    text: str
    references: tuple[Reference, ...] = ()
    subject: str = ""
    version: int = 0


class Registry:
    def __init__(self, address: Address, tls: ssl.SSLContext | None, clock: Clock) -> None:
        self._address = address
        self._tls = tls
        self._clock = clock
        self._answers: OrderedDict[str, tuple[float | None, Any, int]] = OrderedDict()
        """By path: until when they are kept (None: forever), the answer, and its characters."""
        self._characters = 0
        self._asking: dict[str, asyncio.Task[Any]] = {}
        self._room = asyncio.Semaphore(AT_ONCE)
        self._away: tuple[float, str] = (0.0, "")

    @classmethod
    def of(cls, url: str, given: Mapping[str, str], clock: Clock) -> Registry:
        """The registry at an address. `given` may have its user and its TLS as `schema.registry.*`.
        INVALID_CONFIG says what is wrong.
        """
        try:
            address = Address.parse(url)
            user = resolve(given[USER_KEY]) if USER_KEY in given else None
        except (ValueError, UnresolvedSecret) as error:
            raise InvalidConfig(f"the schema registry: {error}") from None
        if user is not None:
            address = address._replace(credentials=user)
        tls = {
            name.removeprefix("schema.registry."): text
            for name, text in given.items()
            if name.startswith(_TLS_PREFIX)
        }
        unknown = [
            name
            for name in given
            if name.startswith("schema.registry.")
            and name not in (URL_KEY, USER_KEY)
            and not name.startswith(_TLS_PREFIX)
        ]
        if unknown:
            raise InvalidConfig(f"{unknown[0]} is not a setting of the console's schema registry")
        if tls and address.scheme != "https":
            raise InvalidConfig(f"{_TLS_PREFIX}* needs a registry at https://")
        context = None
        if address.scheme == "https":
            context = tls_context(TlsSettings.parse(tls))
        return cls(address, context, clock)

    @property
    def shown_url(self) -> str:
        """Its address without credentials."""
        return self._address.shown

    async def close(self) -> None:
        tasks = list(self._asking.values())
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- questions ---

    async def subjects(self) -> list[str]:
        return await self._ask("/subjects", _subjects)

    async def versions(self, subject: str) -> list[int]:
        return await self._ask(f"/subjects/{_quoted(subject)}/versions", _versions)

    async def schema(self, subject: str, version: int) -> Schema:
        path = f"/subjects/{_quoted(subject)}/versions/{version}"
        found = await self._ask(path, _schema)
        return (
            found
            if found.subject
            else Schema(found.schema_id, found.type, found.text, found.references, subject, version)
        )

    async def schema_by_id(self, schema_id: int) -> Schema:
        """The schema of an id, which never changes."""
        found: Schema = await self._ask(f"/schemas/ids/{schema_id}", _schema, kept_ms=None)
        return Schema(schema_id, found.type, found.text, found.references)

    async def compatibility(self, subject: str | None) -> str | None:
        """Level of a subject, or of all that have no own one. None where the registry does not say."""
        path = "/config" if subject is None else f"/config/{_quoted(subject)}?defaultToGlobal=true"
        try:
            return await self._ask(path, _compatibility)
        except RegistryError as error:
            if error.status == NOT_FOUND:
                return None
            raise

    async def uses(self, subject: str, version: int) -> list[int]:
        """Ids of the schemas that refer to this one, as far as the registry says."""
        path = f"/subjects/{_quoted(subject)}/versions/{version}/referencedby"
        try:
            return await self._ask(path, _versions)
        except RegistryError as error:
            if error.status in (NOT_FOUND, 405, 501):
                return []
            raise

    async def references(self, schema: Schema) -> list[tuple[Reference, Schema]]:
        """All schemas that this one refers to, also through others: each once, after those that it uses."""
        found: dict[tuple[str, int], tuple[Reference, Schema]] = {}
        begun: set[tuple[str, int]] = set()
        characters = 0
        waiting: list[tuple[Reference, Schema | None]] = [
            (each, None) for each in reversed(schema.references)
        ]
        while waiting:
            reference, loaded = waiting.pop()
            key = (reference.subject, reference.version)
            if loaded is not None:
                found.setdefault(key, (reference, loaded))
                continue
            if key in begun:
                continue
            begun.add(key)
            if len(begun) > REFERENCES_MAX:
                raise RegistryError(f"the schema refers to more than {REFERENCES_MAX} others", 422)
            loaded = await self.schema(*key)
            characters += len(loaded.text)
            if characters > REFERENCES_CHARACTERS_MAX:
                raise RegistryError("the schemas that this one refers to are too large", 422)
            waiting.append((reference, loaded))
            waiting += [(each, None) for each in reversed(loaded.references)]
        return list(found.values())

    # --- changes ---

    async def register(self, subject: str, kind: str, text: str, references: Sequence[Reference]) -> int:
        """Id of the schema, which is a version of the subject afterwards."""
        path = f"/subjects/{_quoted(subject)}/versions"
        found = await self._change("POST", path, _written(kind, text, references))
        return int(found["id"])

    async def misfits(
        self, subject: str, kind: str, text: str, references: Sequence[Reference]
    ) -> list[str] | None:
        """Why the schema does not fit the newest version; None if it fits, or if there is none."""
        path = f"/compatibility/subjects/{_quoted(subject)}/versions/latest?verbose=true"
        try:
            found = await self._change("POST", path, _written(kind, text, references))
        except RegistryError as error:
            if error.status == NOT_FOUND:
                return None
            raise
        return None if found["is_compatible"] else [str(each) for each in found.get("messages") or ()]

    async def set_compatibility(self, subject: str, level: str) -> None:
        await self._change("PUT", f"/config/{_quoted(subject)}", {"compatibility": level})

    async def delete(self, subject: str, version: int | None) -> None:
        """Delete a version, or the subject with all of them. The registry keeps their ids."""
        rest = "" if version is None else f"/versions/{version}"
        await self._change("DELETE", f"/subjects/{_quoted(subject)}{rest}", None)

    async def _change(self, method: str, path: str, given: object) -> Any:
        try:
            status, body = await ask_json(
                self._address, path, DEADLINE_S, tls=self._tls, accept=ACCEPT, method=method, given=given
            )
        except NoAnswer as error:
            raise RegistryError(f"the schema registry at {self.shown_url}: {error}", 503) from None
        finally:
            self._forget_lists()
        if status != OK:
            raise RegistryError(_refusal(status, body), status if 400 <= status < 500 else 502)
        return body

    def _forget_lists(self) -> None:
        """Ask again for what may have changed: everything but the schemas of ids."""
        for path in [path for path, (until_ms, _, _) in self._answers.items() if until_ms is not None]:
            self._characters -= self._answers.pop(path)[2]

    # --- asking ---

    async def _ask(self, path: str, read: Callable[[Any], T], *, kept_ms: float | None = LISTS_KEPT_MS) -> T:
        now_ms = self._clock.monotonic_ms()
        known = self._answers.get(path)
        if known is not None and (known[0] is None or now_ms < known[0]):
            self._answers.move_to_end(path)
            if isinstance(known[1], RegistryError):
                raise RegistryError(str(known[1]), known[1].status)
            found: T = known[1]
            return found
        if now_ms < self._away[0]:
            raise RegistryError(self._away[1], 503)
        task = self._asking.get(path)
        if task is None:
            task = self._asking[path] = asyncio.create_task(self._fetch(path, read, kept_ms))
            task.add_done_callback(lambda done: self._asked(path, done))
        # Shielded: a user who leaves does not end the question of the others.
        return cast("T", await asyncio.shield(task))

    def _asked(self, path: str, task: asyncio.Task[Any]) -> None:
        self._asking.pop(path, None)
        if not task.cancelled():
            task.exception()  # each user has seen it

    async def _fetch(self, path: str, read: Callable[[Any], T], kept_ms: float | None) -> T:
        async with self._room:
            now_ms = self._clock.monotonic_ms()
            if now_ms < self._away[0]:
                raise RegistryError(self._away[1], 503)
            try:
                status, body = await ask_json(self._address, path, DEADLINE_S, tls=self._tls, accept=ACCEPT)
            except NoAnswer as error:
                told = f"the schema registry at {self.shown_url}: {error}"
                self._away = (self._clock.monotonic_ms() + AWAY_MS, told)
                raise RegistryError(told, 503) from None
        if status != OK:
            refusal = RegistryError(_refusal(status, body), status if 400 <= status < 500 else 502)
            self._keep(path, refusal, MISSING_KEPT_MS, 100)
            raise refusal
        try:
            found = read(body)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise RegistryError("the schema registry's answer makes no sense") from None
        self._keep(path, found, kept_ms, len(getattr(found, "text", "")) + 100)
        return found

    def _keep(self, path: str, found: object, kept_ms: float | None, characters: int) -> None:
        until_ms = None if kept_ms is None else self._clock.monotonic_ms() + kept_ms
        previous = self._answers.pop(path, None)
        self._characters += characters - (0 if previous is None else previous[2])
        self._answers[path] = (until_ms, found, characters)
        while len(self._answers) > ANSWERS_MAX or self._characters > ANSWER_CHARACTERS_MAX:
            self._characters -= self._answers.popitem(last=False)[1][2]


def _written(kind: str, text: str, references: Sequence[Reference]) -> dict[str, Any]:
    found: dict[str, Any] = {"schema": text}
    if kind != "AVRO":
        found["schemaType"] = kind
    if references:
        found["references"] = [
            {"name": each.name, "subject": each.subject, "version": each.version} for each in references
        ]
    return found


def _quoted(name: str) -> str:
    return quote(name, safe="")


def _refusal(status: int, body: Any) -> str:
    said = body.get("message") if isinstance(body, dict) else None
    return f"the schema registry answered {status}" + (f": {said[:300]}" if isinstance(said, str) else "")


def _subjects(body: Any) -> list[str]:
    return sorted(str(each) for each in _list(body)[:SUBJECTS_MAX])


def _versions(body: Any) -> list[int]:
    return sorted(int(each) for each in _list(body)[:VERSIONS_MAX])


def _list(body: Any) -> list[Any]:
    if not isinstance(body, list):
        raise TypeError("not a list")
    return body


def _schema(body: Any) -> Schema:
    text = body["schema"]
    if not isinstance(text, str) or len(text) > SCHEMA_CHARACTERS_MAX:
        raise RegistryError(f"a schema has more than {SCHEMA_CHARACTERS_MAX >> 20} MiB", 422)
    references = tuple(
        Reference(str(each["name"]), str(each["subject"]), int(each["version"]))
        for each in (body.get("references") or ())[: REFERENCES_MAX + 1]
    )
    kind = str(body.get("schemaType") or "AVRO").upper()[:40]
    return Schema(
        int(body.get("id") or 0),
        kind,
        text,
        references,
        str(body.get("subject") or ""),
        int(body.get("version") or 0),
    )


def _compatibility(body: Any) -> str:
    return str(body.get("compatibilityLevel") or body["compatibility"])[:100]
