"""Records as applications see them, with their metadata."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from barnabas.core.ids import TopicPartition

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    Key = TypeVarWithDefault("Key", default=Any)
    Value = TypeVarWithDefault("Value", default=Any)
else:  # Python 3.11 has no defaults of type variables
    Key = TypeVar("Key")
    Value = TypeVar("Value")

Header = tuple[str, bytes | None]
Headers = Sequence[Header] | Mapping[str, bytes | str | None]
"""Headers of a record to send. A sequence keeps the order, and may name a key more than once."""

NO_TIMESTAMP_TYPE: Final = -1
CREATE_TIME: Final = 0
LOG_APPEND_TIME: Final = 1

UNKNOWN_OFFSET: Final = -1
"""Offset of a record whose broker sends none: acks=0, or a duplicate that is too old."""


class Record(NamedTuple, Generic[Key, Value]):
    """Record that a consumer received. `key` and `value` are deserialized."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: Key
    value: Value
    headers: tuple[Header, ...] = ()
    timestamp_type: int = CREATE_TIME
    leader_epoch: int = -1

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def header(self, name: str) -> bytes | None:
        """Value of the last header of that name; None where there is none."""
        for key, value in reversed(self.headers):
            if key == name:
                return value
        return None


class RecordMetadata(NamedTuple):
    """Place of a record that was acknowledged."""

    topic: str
    partition: int
    offset: int
    """UNKNOWN_OFFSET with acks=0."""
    timestamp_ms: int
    """Timestamp in the log: the producer's, or the broker's with LogAppendTime."""

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class ProducerRecord(NamedTuple):
    """Record to send, before its key and value are serialized."""

    topic: str
    value: Any = None
    key: Any = None
    headers: Headers | None = None
    partition: int | None = None
    """None leaves the choice to the partitioner."""
    timestamp_ms: int | None = None
    """None means the time of sending."""


def header_pairs(headers: Headers | None) -> Sequence[Header]:
    """Headers as pairs of a name and bytes. Text becomes UTF-8. Other types raise TypeError."""
    if not headers:
        return ()
    pairs: Iterable[tuple[str, Any]] = headers.items() if isinstance(headers, Mapping) else headers
    return [_header(*pair) if isinstance(pair, tuple | list) else _header(pair) for pair in pairs]


def _header(*pair: Any) -> Header:
    """One header, checked before a batch has it: a batch that cannot be encoded fails all of its records."""
    if len(pair) != 2 or not isinstance(pair[0], str):
        raise TypeError(f"a header is a name (str) and bytes, not {pair!r}")
    name, value = pair
    if isinstance(value, str):
        return name, value.encode()
    if value is None or isinstance(value, bytes):
        return name, value
    if isinstance(value, bytearray | memoryview):
        return name, bytes(value)
    raise TypeError(f"the header {name!r} is {type(value).__name__}, not bytes")
