"""Tools of the MCP endpoint: the questions of a `ClusterView`, with bounds.

All of them read. None of them returns records: what a cluster holds is not what it looks like.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, get_args

from barnabas.console.view.interface import ClusterView
from barnabas.console.view.rows import GroupQuery, GroupSort, TopicQuery, TopicSort

ROWS_MAX: Final = 200
TEXT_LENGTH_MAX: Final = 1_024
NUMBER_MAX: Final = 1_000_000_000


class InvalidArguments(Exception):
    """Arguments that a tool does not take; the message says which."""


@dataclass(frozen=True, slots=True)
class Parameter:
    kind: type
    doc: str
    required: bool = False
    choices: tuple[str, ...] = ()
    most: int = NUMBER_MAX

    def schema(self) -> dict[str, Any]:
        if self.kind is int:
            return {"type": "integer", "minimum": 0, "maximum": self.most, "description": self.doc}
        if self.kind is bool:
            return {"type": "boolean", "description": self.doc}
        schema: dict[str, Any] = {"type": "string", "maxLength": TEXT_LENGTH_MAX, "description": self.doc}
        return {**schema, "enum": list(self.choices)} if self.choices else schema

    def checked(self, name: str, value: object) -> Any:
        if type(value) is not self.kind:
            raise InvalidArguments(f"{name} must be of type {self.schema()['type']}")
        if isinstance(value, str) and (
            len(value) > TEXT_LENGTH_MAX or (self.choices and value not in self.choices)
        ):
            allowed = (
                f"one of {', '.join(self.choices)}"
                if self.choices
                else f"{TEXT_LENGTH_MAX} characters at most"
            )
            raise InvalidArguments(f"{name} must be {allowed}")
        if type(value) is int and not 0 <= value <= self.most:
            raise InvalidArguments(f"{name} must be from 0 to {self.most}")
        return value


@dataclass(frozen=True, slots=True)
class Tool:
    name: str
    doc: str
    parameters: Mapping[str, Parameter]
    ask: Callable[[ClusterView, Mapping[str, Any]], Awaitable[object]]

    def described(self) -> dict[str, Any]:
        """The tool as `tools/list` shows it."""
        return {
            "name": self.name,
            "description": self.doc,
            "inputSchema": {
                "type": "object",
                "properties": {name: each.schema() for name, each in self.parameters.items()},
                "required": [name for name, each in self.parameters.items() if each.required],
                "additionalProperties": False,
            },
            "annotations": {"readOnlyHint": True, "openWorldHint": False},
        }

    def checked(self, arguments: object) -> dict[str, Any]:
        """The arguments, if the tool takes them."""
        if not isinstance(arguments, dict):
            raise InvalidArguments("the arguments must be an object")
        unknown = [name for name in arguments if name not in self.parameters]
        if unknown:
            raise InvalidArguments(f"{self.name} takes no {str(unknown[0])[:64]}")
        missing = [name for name, each in self.parameters.items() if each.required and name not in arguments]
        if missing:
            raise InvalidArguments(f"{self.name} needs {missing[0]}")
        return {name: self.parameters[name].checked(name, value) for name, value in arguments.items()}


_SEARCH = Parameter(str, "Words that the name must contain.")
_DESCENDING = Parameter(bool, "Largest first.")
_OFFSET = Parameter(int, "Rows to skip.")
_LIMIT = Parameter(int, "Rows to return, 50 if not given.", most=ROWS_MAX)
_TOPIC = Parameter(str, "Name of the topic.", required=True)

TOOLS: Final = (
    Tool(
        "cluster_overview",
        "Brokers, counts of topics, partitions and groups, offline and under-replicated partitions, traffic.",
        {},
        lambda view, _: view.overview(),
    ),
    Tool(
        "list_topics",
        "A page of topics with partitions, records, size, traffic and number of groups.",
        {
            "search": _SEARCH,
            "sort": Parameter(str, "Order.", choices=get_args(TopicSort)),
            "descending": _DESCENDING,
            "offset": _OFFSET,
            "limit": _LIMIT,
            "include_internal": Parameter(bool, "Show the brokers' own topics too."),
        },
        lambda view, given: view.topics(TopicQuery(**given)),
    ),
    Tool(
        "describe_topic",
        "A topic with the leader, replicas, offsets and size of each partition.",
        {"topic": _TOPIC},
        lambda view, given: view.topic(given["topic"]),
    ),
    Tool(
        "list_groups",
        "A page of consumer groups with their lag in records and in milliseconds.",
        {
            "search": _SEARCH,
            "topic": Parameter(str, "Only groups that read this topic."),
            "sort": Parameter(str, "Order.", choices=get_args(GroupSort)),
            "descending": _DESCENDING,
            "offset": _OFFSET,
            "limit": _LIMIT,
        },
        lambda view, given: view.groups(GroupQuery(**given)),
    ),
    Tool(
        "describe_group",
        "A consumer group with its members, and the committed offset and lag of each partition.",
        {"group": Parameter(str, "Id of the group.", required=True)},
        lambda view, given: view.group(given["group"]),
    ),
    Tool(
        "describe_log",
        "One partition's log: segments, offsets, leader epochs, followers, open and aborted transactions.",
        {"topic": _TOPIC, "partition": Parameter(int, "Number of the partition.", required=True)},
        lambda view, given: view.log_picture(given["topic"], given["partition"]),
    ),
    Tool(
        "list_transactions",
        "Transactional ids with the state of their transaction.",
        {"find_hanging": Parameter(bool, "Look for open transactions that no coordinator will end, too.")},
        lambda view, given: view.transactions(**given),
    ),
    Tool(
        "list_clients",
        "Metrics that clients report of themselves (KIP-714).",
        {},
        lambda view, _: view.clients(),
    ),
)
TOOL_NAMES: Final = tuple(tool.name for tool in TOOLS)
