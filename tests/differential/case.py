"""Declaration of a case, and the register of all cases.

    @case(ApiKey.FETCH, "7+")
    def a_session_goes_on(world: World) -> Case:
        letters = world.shared("letters")
        first = yield fetch(letters, session_epoch=0)
        yield fetch(letters, session_id=first.session_id, session_epoch=1)

A yielded request of the API under test is sent in the version under test, one of another API in the newest
version that both brokers speak. `yield` returns the answer or CLOSED.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.schema.declarations import Versions
from barnabas.protocol.schema.message import Message
from barnabas.requests.served_versions import SERVED_VERSIONS

if TYPE_CHECKING:
    from tests.differential.world import World


class Closed:
    """The broker closed the connection instead of answering."""

    def __repr__(self) -> str:
        return "<connection closed>"


CLOSED: Final = Closed()


@dataclass(frozen=True)
class Unanswered:
    """A request after which the next response must be that of a later request."""

    request: Message


@dataclass(frozen=True)
class Until:
    """A request repeated until its answer is as wished; only that answer is compared."""

    request: Message
    wished: Callable[[Any], bool]


@dataclass(frozen=True)
class InVersion:
    """A request in its own version, independent of the version under test."""

    request: Message
    version: int


@dataclass(frozen=True)
class Frame:
    """A frame by hand. `answer` is what its answer is read as; without one its bytes are compared."""

    api_key: int
    version: int
    body: bytes
    header_version: int = 1
    answer: tuple[type[Message], int] | None = None


@dataclass(frozen=True)
class At:
    """A step to one broker of a cluster; without it a step goes to the controller."""

    node: int
    step: Message | Until | InVersion


Step: TypeAlias = Message | Unanswered | Until | InVersion | Frame | At
Case: TypeAlias = Generator[Step, Any, None]
CaseFunction: TypeAlias = "Callable[[World], Case]"


@dataclass(frozen=True)
class Declared:
    api: ApiKey
    name: str
    versions: Versions
    run: CaseFunction


@dataclass(frozen=True)
class Triple:
    """One case in one version: what the report counts."""

    case: Declared
    version: int

    def __str__(self) -> str:
        return f"{self.case.api.camel_name}-v{self.version}-{self.case.name}"


REGISTER: list[Declared] = []


def case(api: ApiKey, versions: str = "0+") -> Callable[[CaseFunction], CaseFunction]:
    def declare(function: CaseFunction) -> CaseFunction:
        name = function.__name__.strip("_").replace("_", "-")
        known = {(declared.api, declared.name) for declared in REGISTER}
        assert (api, name) not in known, f"{api.name} has two cases named {name}"
        REGISTER.append(Declared(api, name, Versions.parse(versions), function))
        return function

    return declare


def all_triples() -> list[Triple]:
    """Every case in every version that Barnabas advertises and that can express it."""
    found = []
    for declared in sorted(REGISTER, key=lambda each: each.api):
        served = SERVED_VERSIONS.get(declared.api, range(0))
        found += [Triple(declared, version) for version in served if version in declared.versions]
    return found
