"""Which elements of a request a rule selects, and how a request is split by them.

A request names its topics and partitions in arrays: topics with a name or an id, and partitions below them as
structs or as numbers. `split` divides such a request in two, the elements that a selection covers and all
others, so that a broker serves the others. `merge` adds the error responses of the selected elements to the
response of the others.

A selection without topic and partition covers whole requests.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any, Final, NamedTuple

from barnabas.core.ids import TopicPartition, Uuid
from barnabas.protocol.schema.message import Message

NameOf = Callable[[Uuid], str | None]
"""Name of a topic by its id, as the broker knows it."""

_TOPIC_NAMES: Final = ("name", "topic", "topic_name")
_PARTITION_NUMBERS: Final = ("index", "partition", "partition_index")
_GROUP_NAMES: Final = ("group_id", "group")
_GROUP_ARRAYS: Final = ("groups", "groups_names", "group_ids")
_SAME_ELEMENT: Final = (*_TOPIC_NAMES, "topic_id", "group_id")


class Selection(NamedTuple):
    """Part of a request that a rule is about."""

    topic: str | None = None
    partition: int | None = None
    group: str | None = None

    @property
    def is_of_elements(self) -> bool:
        return self.topic is not None or self.partition is not None

    def names_group_of(self, request: Message) -> bool:
        """Whether the request is about the selected group, or none is selected."""
        return self.group is None or self.group in groups_of(request)

    def split(self, request: Message, name_of: NameOf) -> tuple[Message | None, Message | None]:
        """The request with the selected elements, and the request with all others; None if it has none."""
        if not self.is_of_elements:
            return request, None
        array = _topics_of(request)
        if array is None:
            return None, request
        selected, others = [], []
        for topic in getattr(request, array):
            inside, outside = self._split_topic(topic, name_of)
            if inside is not None:
                selected.append(inside)
            if outside is not None:
                others.append(outside)
        return (
            _with(request, array, selected) if selected else None,
            _with(request, array, others) if others else None,
        )

    def _split_topic(self, topic: Any, name_of: NameOf) -> tuple[Any, Any]:
        if self.topic is not None and topic_name(topic, name_of) != self.topic:
            return None, topic
        if self.partition is None:
            return topic, None
        array = _partitions_of(topic)
        if array is None:
            return None, topic
        partitions = getattr(topic, array)
        inside = [each for each in partitions if partition_number(each) == self.partition]
        outside = [each for each in partitions if partition_number(each) != self.partition]
        return (
            _with(topic, array, inside) if inside else None,
            _with(topic, array, outside) if outside else None,
        )


def places_in(request: Message, name_of: NameOf) -> list[TopicPartition]:
    """Partitions that a request names, in its order."""
    array = _topics_of(request)
    found: list[TopicPartition] = []
    for topic in getattr(request, array) if array is not None else ():
        name, partitions = topic_name(topic, name_of), _partitions_of(topic)
        for each in getattr(topic, partitions) if partitions is not None else ():
            number = partition_number(each)
            if name is not None and number is not None:
                found.append(TopicPartition(name, number))
    return found


def groups_of(request: Message) -> set[str]:
    """Groups that a request names, at its top or in an array."""
    found: set[str] = set()
    for name in _GROUP_NAMES:
        value = getattr(request, name, None)
        if isinstance(value, str):
            found.add(value)
    for array in _GROUP_ARRAYS:
        for each in getattr(request, array, None) or ():
            found.add(each if isinstance(each, str) else getattr(each, "group_id", ""))
    key = getattr(request, "key", None)  # of FindCoordinator
    if isinstance(key, str):
        found.update((key, *(getattr(request, "coordinator_keys", None) or ())))
    return found


def topic_name(topic: Any, name_of: NameOf) -> str | None:
    if isinstance(topic, str):
        return topic
    for field in _TOPIC_NAMES:
        if getattr(topic, field, None):
            return str(getattr(topic, field))
    topic_id = getattr(topic, "topic_id", None)
    return None if topic_id is None else name_of(topic_id)


def partition_number(partition: Any) -> int | None:
    if isinstance(partition, int):
        return partition
    return next((getattr(partition, each) for each in _PARTITION_NUMBERS if hasattr(partition, each)), None)


def merge(answer: Message, refused: Message) -> Message:
    """Add the elements of `refused` to `answer`: partitions to their topic, topics to the response."""
    for field in type(refused).__schema__.fields:
        more = getattr(refused, field.name)
        if not isinstance(more, list) or not more:
            continue
        here = getattr(answer, field.name) or []
        for element in more:
            same = next((each for each in here if _is_same(each, element)), None)
            if same is None:
                here.append(element)
            else:
                merge(same, element)
        setattr(answer, field.name, here)
    return answer


def _is_same(one: Any, other: Any) -> bool:
    """Whether two structs are about the same topic or group. Partitions are never the same."""
    names = [each for each in _SAME_ELEMENT if isinstance(one, Message) and hasattr(one, each)]
    return bool(names) and all(getattr(one, each) == getattr(other, each) for each in names)


def _topics_of(request: Message) -> str | None:
    """Name of the array of topics: structs that have a topic's name or id, or plain names."""
    for field in type(request).__schema__.fields:
        element = field.kind.element
        if element is None or not field.name.startswith("topic"):
            continue
        struct = element.message
        names = () if struct is None else {each.name for each in struct.__schema__.fields}
        names_topics = struct is None or any(each in names for each in (*_TOPIC_NAMES, "topic_id"))
        if names_topics and getattr(request, field.name):
            return field.name
    return None


def _partitions_of(topic: Any) -> str | None:
    if not isinstance(topic, Message):
        return None
    for field in type(topic).__schema__.fields:
        if field.kind.element is not None and field.name.startswith("partition"):
            return field.name
    return None


def _with(message: Any, array: str, elements: list[Any]) -> Any:
    changed = copy(message)
    setattr(changed, array, elements)
    return changed
