"""Elements of a request that a rule selects, and the split of a request by them.

A request names its topics and partitions in arrays: topics with a name or an id, and partitions below them as
structs or as numbers. OffsetFetch has such arrays within its groups. Other requests name groups or resources
in an array. `split` divides a request in two, the elements that a selection covers and all others, so that a
broker serves the others. `merge` adds the error responses of the selected elements to the response of the
others. `replace` puts them in the place of what the broker answered.

A selection that names no elements of the request covers the whole request.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any, Final, NamedTuple

from barnabas.core.ids import TopicPartition, Uuid
from barnabas.protocol.schema.declarations import MessageType
from barnabas.protocol.schema.message import Message

NameOf = Callable[[Uuid], str | None]
"""Name of a topic by its id, as the broker knows it."""

_TOPIC_NAMES: Final = ("name", "topic", "topic_name")
_PARTITION_NUMBERS: Final = ("index", "partition", "partition_index")
TRANSACTIONAL_IDS: Final = ("transactional_id", "v3_and_below_transactional_id")
_GROUP_KEY: Final = 0
_TRANSACTION_KEY: Final = 1
"""Types of keys of FindCoordinator."""
_GROUP_NAMES: Final = ("group_id", "group")
_GROUP_ARRAYS: Final = ("groups", "groups_names", "group_ids")
_TRANSACTION_ARRAYS: Final = ("transactional_ids", "transactions")
"""In DescribeTransactions, and in AddPartitionsToTxn of brokers."""
_GROUPS: Final = "groups"
_COORDINATOR_KEYS: Final = "coordinator_keys"
_RESOURCES: Final = "resources"
_SAME_ELEMENT: Final = (*_TOPIC_NAMES, "topic_id", "group_id", "key", "resource_name", "resource_type")


class Selection(NamedTuple):
    """Part of a request that a rule is about."""

    topic: str | None = None
    partitions: frozenset[int] | None = None
    group: str | None = None
    transactional_id: str | None = None
    resource: str | None = None
    """A resource of DescribeConfigs, AlterConfigs and IncrementalAlterConfigs."""

    @property
    def is_of_elements(self) -> bool:
        return self.topic is not None or self.partitions is not None

    def names_subject_of(self, request: Message) -> bool:
        """Whether the request is about the selected group and transactional id, if one is selected."""
        if self.group is not None and self.group not in groups_of(request):
            return False
        if self.resource is not None and self.resource not in map(_resource_name, _resources_of(request)):
            return False
        return self.transactional_id is None or self.transactional_id in transactional_ids_of(request)

    def shown(self) -> dict[str, object]:
        """Names and values, as a test gave them."""
        numbers = None if self.partitions is None else sorted(self.partitions)
        return {
            "topic": self.topic,
            "partition": numbers[0] if numbers is not None and len(numbers) == 1 else numbers,
            "group": self.group,
            "transactional_id": self.transactional_id,
            "resource": self.resource,
        }

    def split(self, request: Message, name_of: NameOf) -> tuple[Message | None, Message | None]:
        """The request with the selected elements, and the request with all others; None if it has none."""
        if not self.is_of_elements:
            return self._split_names(request)
        array = _topics_of(request)
        if array is not None:
            return _split_array(request, array, lambda topic: self._split_topic(topic, name_of))
        if _groups_with_topics(request):
            return _split_array(request, _GROUPS, lambda group: self.split(group, name_of))
        return None, request

    def _split_names(self, request: Message) -> tuple[Message | None, Message | None]:
        """Split a request that names several groups, coordinators or resources."""
        array, is_inside = self._array_of_names(request)
        if array is None:
            return request, None
        inside = [each for each in getattr(request, array) if is_inside(each)]
        outside = [each for each in getattr(request, array) if not is_inside(each)]
        return (
            _with(request, array, inside) if inside else None,
            _with(request, array, outside) if outside else None,
        )

    def _array_of_names(self, request: Message) -> tuple[str | None, Callable[[Any], bool]]:
        """The array that has the selected names, and which of its elements they are."""
        if self.resource is not None:
            return _RESOURCES, lambda each: _resource_name(each) == self.resource
        wanted = {each for each in (self.group, self.transactional_id) if each is not None}
        arrays = [*_GROUP_ARRAYS] if self.group is not None else []
        arrays += _TRANSACTION_ARRAYS if self.transactional_id is not None else []
        for array in (*arrays, _COORDINATOR_KEYS) if wanted else ():
            if getattr(request, array, None):
                return array, lambda each: _subject_of(each) in wanted
        return None, lambda _: True

    def _split_topic(self, topic: Any, name_of: NameOf) -> tuple[Any, Any]:
        if self.topic is not None and topic_name(topic, name_of) != self.topic:
            return None, topic
        if self.partitions is None:
            return topic, None
        array = _partitions_of(topic)
        if array is None:
            return None, topic
        partitions = getattr(topic, array)
        inside = [each for each in partitions if partition_number(each) in self.partitions]
        outside = [each for each in partitions if partition_number(each) not in self.partitions]
        return (
            _with(topic, array, inside) if inside else None,
            _with(topic, array, outside) if outside else None,
        )


def _split_array(
    message: Message, array: str, split: Callable[[Any], tuple[Any, Any]]
) -> tuple[Message | None, Message | None]:
    """Split each element of an array, and the message with it."""
    selected, others = [], []
    for element in getattr(message, array):
        inside, outside = split(element)
        if inside is not None:
            selected.append(inside)
        if outside is not None:
            others.append(outside)
    return (
        _with(message, array, selected) if selected else None,
        _with(message, array, others) if others else None,
    )


def _groups_with_topics(request: Message) -> list[Message]:
    """Groups of a request that have topics of their own, as OffsetFetch has them."""
    groups = getattr(request, _GROUPS, None) or []
    return [each for each in groups if isinstance(each, Message) and hasattr(each, "topics")]


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
    for group in _groups_with_topics(request):
        found += places_in(group, name_of)
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
    return found | _coordinator_keys(request, _GROUP_KEY)


def transactional_ids_of(request: Message) -> set[str]:
    """Transactional ids that a request names, at its top or in an array."""
    found = {getattr(request, name, None) for name in TRANSACTIONAL_IDS}
    for array in _TRANSACTION_ARRAYS:
        found |= {_subject_of(each) for each in getattr(request, array, None) or ()}
    return {each for each in found if each} | _coordinator_keys(request, _TRANSACTION_KEY)


def _coordinator_keys(request: Message, key_type: int) -> set[str]:
    """Keys of a FindCoordinator request, if they are of this type."""
    key = getattr(request, "key", None)
    if not isinstance(key, str) or getattr(request, "key_type", None) != key_type:
        return set()
    return {each for each in (key, *(getattr(request, "coordinator_keys", None) or ())) if each}


def _subject_of(element: Any) -> str | None:
    """The group or the transactional id of an element of an array."""
    if isinstance(element, str):
        return element
    return getattr(element, "group_id", None) or getattr(element, "transactional_id", None)


def _resources_of(request: Message) -> list[Any]:
    return getattr(request, _RESOURCES, None) or []


def _resource_name(resource: Any) -> str:
    return getattr(resource, "resource_name", "")


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


def replace(answer: Message, refused: Message) -> Message:
    """Put the elements of `refused` in the place of those of `answer` that are about the same."""
    for field in type(refused).__schema__.fields:
        more = getattr(refused, field.name)
        if not isinstance(more, list) or not more:
            continue
        here = list(getattr(answer, field.name) or [])
        for element in more:
            at = next((at for at, each in enumerate(here) if _answers_same(each, element)), None)
            if at is None:
                here.append(element)
            elif _has_elements(element):
                replace(here[at], element)
            else:
                here[at] = element
        setattr(answer, field.name, here)
    return answer


def _answers_same(one: Any, other: Any) -> bool:
    """Whether two structs are about the same. A refusal knows no id of a topic that was made just now."""
    name = topic_name(one, lambda _: None)
    if _is_same(one, other) or (name is not None and name == topic_name(other, lambda _: None)):
        return True
    number = partition_number(one)
    return number is not None and number == partition_number(other)


def _has_elements(element: Any) -> bool:
    array = _partitions_of(element)
    return array is not None and bool(getattr(element, array))


def _is_same(one: Any, other: Any) -> bool:
    """Whether two structs are about the same topic or group. Partitions are never the same."""
    names = [each for each in _SAME_ELEMENT if isinstance(one, Message) and hasattr(one, each)]
    return bool(names) and all(getattr(one, each) == getattr(other, each) for each in names)


def _topics_of(request: Message) -> str | None:
    """Name of the array of topics: structs that have a topic's name or id, or plain names."""
    arrays = _arrays_of_topics(type(request))
    return next((each for each in arrays if getattr(request, each)), None)


def _arrays_of_topics(request: MessageType) -> list[str]:
    found = []
    for field in request.__schema__.fields:
        element = field.kind.element
        if element is None or not _is_of_topics(field.name):
            continue
        struct = element.message
        names = set(_TOPIC_NAMES) if struct is None else {each.name for each in struct.__schema__.fields}
        if any(each in names for each in (*_TOPIC_NAMES, "topic_id")):
            found.append(field.name)
    return found


def named_by(request: MessageType) -> frozenset[str]:
    """Kinds of things that a request class names, in any version: `topic`, `partition`, `group`, …"""
    fields = {each.name: each for each in request.__schema__.fields}
    found: set[str] = set()
    for array in _arrays_of_topics(request):
        found.add("topic")
        element = fields[array].kind.element
        struct = None if element is None else element.message
        if struct is not None and _array_of_partitions(struct) is not None:
            found.add("partition")
    groups = fields[_GROUPS].kind.element if _GROUPS in fields else None
    if groups is not None and groups.message is not None:
        found |= named_by(groups.message)
    by_key = {"key", _COORDINATOR_KEYS}
    if fields.keys() & {*_GROUP_NAMES, *_GROUP_ARRAYS, *by_key}:
        found.add("group")
    if fields.keys() & {*TRANSACTIONAL_IDS, "transactions", "transactional_ids", *by_key}:
        found.add("transactional_id")
    if _RESOURCES in fields:
        found.add("resource")
    if {"member_id", "group_id"} <= fields.keys():
        found.add("member")
    return frozenset(found)


def _is_of_topics(field: str) -> bool:
    return field.startswith("topic") or field == "v3_and_below_topics"  # the latter in AddPartitionsToTxn


def _partitions_of(topic: Any) -> str | None:
    return _array_of_partitions(type(topic)) if isinstance(topic, Message) else None


def _array_of_partitions(topic: MessageType) -> str | None:
    for field in topic.__schema__.fields:
        if field.kind.element is not None and field.name.startswith("partition"):
            return field.name
    return None


def _with(message: Any, array: str, elements: list[Any]) -> Any:
    changed = copy(message)
    setattr(changed, array, elements)
    return changed
