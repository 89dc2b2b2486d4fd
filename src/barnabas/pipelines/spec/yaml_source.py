"""YAML parser that keeps the line of every key and item.

A complaint about a spec names a line. PyYAML's plain loader drops lines, so this module walks the node tree.
A duplicate key is an error; other YAML loaders accept it silently.

Aliases are expanded, so a few lines of them could stand for more values than memory holds, or contain
themselves. A document has at most `VALUES_MAX` values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import yaml

from barnabas.pipelines.spec.options.option import Value

Path = tuple[str | int, ...]

VALUES_MAX = 100_000
"""Values in one document with aliases expanded. A pipeline has some dozens."""


class UnreadableSpec(Exception):
    """The text is not YAML; the message gives location and reason."""


@dataclass(frozen=True, slots=True)
class Located:
    """Document, its file, and the line of every key and item."""

    document: Value
    file: str = "<spec>"
    lines: Mapping[Path, int] = field(default_factory=dict)

    def line(self, path: Path) -> int | None:
        """Line of the value at `path`, or of the nearest enclosing one."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path)


def read_yaml(text: str, file: str = "<spec>") -> Located:
    loader: yaml.SafeLoader | None = None
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        lines: dict[Path, int] = {}
        document = None if node is None else _value(loader, node, (), lines, file)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        location = f"{file}:{mark.line + 1}" if mark else file
        raise UnreadableSpec(f"{location}: not YAML: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise UnreadableSpec(f"{file}: not YAML: {error}") from None
    except ValueError as error:  # a malformed number or date
        raise UnreadableSpec(f"{file}: not YAML: {error}") from None
    except RecursionError:
        raise UnreadableSpec(f"{file}: nested too deep, or an alias that contains itself") from None
    finally:
        if loader is not None:
            loader.dispose()
    return Located(document, file, lines)


def _value(loader: yaml.SafeLoader, node: yaml.Node, path: Path, lines: dict[Path, int], file: str) -> Value:
    lines.setdefault(path, node.start_mark.line + 1)
    if len(lines) > VALUES_MAX:
        raise UnreadableSpec(f"{file}: more than {VALUES_MAX} values with aliases expanded")
    if isinstance(node, yaml.MappingNode):
        loader.flatten_mapping(node)
        found: dict[str, Value] = {}
        for key_node, value_node in node.value:
            # A key is text as in YAML 1.2: PyYAML reads the `on` of a join as true.
            is_plain = isinstance(key_node, yaml.ScalarNode)
            key = str(key_node.value if is_plain else loader.construct_object(key_node, deep=True))
            line = key_node.start_mark.line + 1
            if key in found:
                raise UnreadableSpec(f"{file}:{line}: duplicate key {key!r}")
            lines[*path, key] = line
            found[key] = _value(loader, value_node, (*path, key), lines, file)
        return found
    if isinstance(node, yaml.SequenceNode):
        return [_value(loader, item, (*path, at), lines, file) for at, item in enumerate(node.value)]
    value = loader.construct_object(node, deep=True)
    # YAML makes objects of dates; a spec has text, numbers and booleans.
    return value if value is None or isinstance(value, (str, bool, int, float)) else node.value
