"""YAML that remembers where everything stood.

A complaint about a spec names a line; PyYAML's plain loader forgets lines, so the node tree is
walked here. Twice the same key, which YAML loaders let pass silently, is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import yaml

from barnabas.pipelines.spec.options import Value

Path = tuple[str | int, ...]


class UnreadableSpec(Exception):
    """The text is not YAML; the message says where and why."""


@dataclass(frozen=True, slots=True)
class Located:
    """A document, the file it is from, and the line of every key and item."""

    document: Value
    file: str = "<spec>"
    lines: Mapping[Path, int] = field(default_factory=dict)

    def line(self, path: Path) -> int | None:
        """Of what stands at `path`, or of the nearest thing around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path)


def read_yaml(text: str, file: str = "<spec>") -> Located:
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        lines: dict[Path, int] = {}
        document = None if node is None else _value(loader, node, (), lines, file)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{file}:{mark.line + 1}" if mark else file
        raise UnreadableSpec(f"{place}: not YAML: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise UnreadableSpec(f"{file}: not YAML: {error}") from None
    finally:
        loader.dispose()
    return Located(document, file, lines)


def _value(loader: yaml.SafeLoader, node: yaml.Node, path: Path, lines: dict[Path, int], file: str) -> Value:
    lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        loader.flatten_mapping(node)
        found: dict[str, Value] = {}
        for key_node, value_node in node.value:
            key = str(loader.construct_object(key_node, deep=True))
            line = key_node.start_mark.line + 1
            if key in found:
                raise UnreadableSpec(f"{file}:{line}: {key!r} stands here a second time")
            lines[*path, key] = line
            found[key] = _value(loader, value_node, (*path, key), lines, file)
        return found
    if isinstance(node, yaml.SequenceNode):
        return [_value(loader, item, (*path, at), lines, file) for at, item in enumerate(node.value)]
    value = loader.construct_object(node, deep=True)
    # Dates come out of YAML as objects; a spec is text, numbers and booleans.
    return value if value is None or isinstance(value, (str, bool, int, float)) else node.value
