"""Field functions of message declarations: `int32("3+", default=-1)`.

Every function takes the versions that have the field, its default, whether older versions may silently drop
it, and the tag of a tagged field. Its declared return type is the type of the attribute, so mypy refuses a
declaration whose annotation and wire type disagree. At run time it returns a Field, which the metaclass
removes again. That is the reason for the one relaxed rule below.
"""

from __future__ import annotations

# mypy: disable-error-code="no-any-return"
from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

from barnabas.core.ids import ZERO_UUID
from barnabas.protocol.schema.declarations import FRESH, Field, Kind, RecordsField
from barnabas.protocol.schema.message import Message

T = TypeVar("T")
M = TypeVar("M", bound=Message)

STRING = Kind("string")
BYTES = Kind("bytes")
RECORDS = Kind("records")


class Scalar(Generic[T]):
    """Function for a fixed-width type, and the default of its fields that state none."""

    def __init__(self, kind: Kind, zero: T) -> None:
        self.kind = kind
        self._zero = zero

    def __call__(
        self,
        versions: str = "0+",
        *,
        default: T | None = None,
        ignorable: bool = False,
        tag: int | None = None,
    ) -> T:
        return _field(self.kind, versions, "none", self._zero if default is None else default, ignorable, tag)


boolean = Scalar(Kind("bool", "?"), False)
int8 = Scalar(Kind("int8", "b"), 0)
int16 = Scalar(Kind("int16", "h"), 0)
int32 = Scalar(Kind("int32", "i"), 0)
int64 = Scalar(Kind("int64", "q"), 0)
float64 = Scalar(Kind("float64", "d"), 0.0)
uuid = Scalar(Kind("uuid", "16s"), ZERO_UUID)


@overload
def string(
    versions: str = "0+", *, default: str = "", ignorable: bool = False, tag: int | None = None
) -> str: ...
@overload
def string(
    versions: str = "0+",
    *,
    nullable: str,
    default: str | None = "",
    ignorable: bool = False,
    tag: int | None = None,
) -> str | None: ...
def string(
    versions: str = "0+",
    *,
    nullable: str = "none",
    default: str | None = "",
    ignorable: bool = False,
    tag: int | None = None,
) -> str | None:
    return _field(STRING, versions, nullable, default, ignorable, tag)


@overload
def binary(versions: str = "0+", *, default: bytes = b"", ignorable: bool = False) -> bytes: ...
@overload
def binary(
    versions: str = "0+", *, nullable: str, default: bytes | None = b"", ignorable: bool = False
) -> bytes | None: ...
def binary(
    versions: str = "0+", *, nullable: str = "none", default: bytes | None = b"", ignorable: bool = False
) -> bytes | None:
    """Kafka's `bytes`: opaque to the broker, copied out of the frame."""
    return _field(BYTES, versions, nullable, default, ignorable, None)


def records(versions: str = "0+", *, nullable: str = "none") -> RecordsField:
    """Record batches: never copied, neither on the way in nor on the way out."""
    return _field(RECORDS, versions, nullable, None, False, None)


@overload
def array(
    of: Callable[..., T], versions: str = "0+", *, ignorable: bool = False, tag: int | None = None
) -> list[T]: ...
@overload
def array(
    of: Callable[..., T],
    versions: str = "0+",
    *,
    nullable: str,
    default: object | None = FRESH,
    ignorable: bool = False,
    tag: int | None = None,
) -> list[T] | None: ...
def array(
    of: Callable[..., T],
    versions: str = "0+",
    *,
    nullable: str = "none",
    default: object | None = FRESH,
    ignorable: bool = False,
    tag: int | None = None,
) -> list[T] | None:
    """A list of structs (`of` is their class) or of scalars (`of` is their function: `array(int32)`)."""
    if isinstance(of, Scalar):
        element = of.kind
    else:
        element = {string: STRING, binary: BYTES}.get(of) or Kind("struct", message=_message_class(of))
    return _field(Kind("array", element=element), versions, nullable, default, ignorable, tag)


@overload
def struct(of: type[M], versions: str = "0+", *, ignorable: bool = False) -> M: ...
@overload
def struct(of: type[M], versions: str = "0+", *, nullable: str, ignorable: bool = False) -> M | None: ...
@overload
def struct(
    of: type[M], versions: str = "0+", *, nullable: str = "none", tag: int, ignorable: bool = False
) -> M | None: ...
def struct(
    of: type[M],
    versions: str = "0+",
    *,
    nullable: str = "none",
    tag: int | None = None,
    ignorable: bool = False,
) -> M | None:
    """A struct in place. Nullable and tagged ones are None by default."""
    default = FRESH if nullable == "none" and tag is None else None
    return _field(Kind("struct", message=of), versions, nullable, default, ignorable, tag)


def _field(
    kind: Kind, versions: str, nullable: str, default: object, ignorable: bool, tag: int | None
) -> Any:  # the class body has the type of the attribute, the metaclass has the Field
    return Field(kind, versions, nullable, default, ignorable, tag)


def _message_class(of: object) -> type[Message]:
    assert isinstance(of, type), f"{of!r} cannot be an element of an array"
    assert issubclass(of, Message), f"{of!r} cannot be an element of an array"
    return of
