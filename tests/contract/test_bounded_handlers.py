"""Handlers loop over client-named elements in slices only: this test reads every loop of every handler.

A loop has such elements if it iterates an array field of a request or response, a local made from one, or a
parameter that is a collection. It must be a `for` whose body yields or awaits, or one of
`requests.bounded_loops`. Three kinds of loop need not stop: one over few elements by a bound in the code (a
slice with an end); one that only reads fields and calls nothing (a hundred thousand take a few milliseconds);
and one in a function that `FEW` names with the reason.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import barnabas
from barnabas.handlers import APIS
from barnabas.protocol.messages import request_class, response_class
from barnabas.protocol.schema.declarations import MessageType

SOURCE = Path(barnabas.__file__).parent
MODULES = sorted([*SOURCE.glob("handlers/**/*.py"), *SOURCE.glob("requests/**/*.py")])

FEW = {
    "handlers/alter_client_quotas._alter": "each key once, of a handful",
    "handlers/create_delegation_token.handle_create_delegation_token": "DELEGATION_TOKEN_RENEWERS_MAX",
    "handlers/create_topics._succeeded": "the settings of one topic",
    "handlers/describe_client_quotas._filter": "each type of entity once, of three",
    "handlers/describe_configs._describe": "the settings of one resource",
    "handlers/describe_configs._shown": "the layers of one setting",
    "handlers/describe_delegation_token._described": "DELEGATION_TOKEN_RENEWERS_MAX",
    "handlers/describe_topic_partitions._described": "max.request.partition.size.limit",
    "handlers/fetch.handle_fetch": "MANY",
    "handlers/fetch._partition_fetches": "MANY",
    "handlers/fetch._add": "MANY",
    "handlers/fetch._partition_data": "aborted transactions in one read of one segment",
    "handlers/produce.keep_records": "ELEMENTS_PER_TURN_MAX: a longer request is kept as a whole",
    "handlers/produce._refusal": "two bytes of each batch",
    "requests/access.check_guards": "the rights of one API",
    "handlers/shared/up_conversion.is_long_conversion": "two bytes of each batch",
}
"""Functions that loop over client-named elements in one go, and why they may."""

COLLECTIONS = {"Sequence", "Iterable", "Collection", "list", "List", "Iterator", "Counter"}
HARMLESS = {"len", "bool", "min", "max", "isinstance", "id"}
"""Calls whose result is no collection."""
CHEAP = HARMLESS | {
    "TopicPartition",
    "tuple",
    "append",
    "add",
    "get",
    "setdefault",
    "items",
    "values",
    "range",
    "enumerate",
}
"""Calls that take no longer than a look at a field."""


def _array_fields(cls: MessageType) -> Iterator[str]:
    for field in cls.__schema__.fields:
        kind = field.kind.element or field.kind
        if field.kind.element is not None:
            yield field.name
        if kind.message is not None:
            yield from _array_fields(kind.message)


ARRAYS = {
    name
    for api in APIS
    for cls in (request_class(api.key), response_class(api.key))
    for name in _array_fields(cls)
}


class _Function(ast.NodeVisitor):
    """The loops of one function; nested functions see the locals of those around them."""

    def __init__(self, tainted: set[str]) -> None:
        self.tainted = set(tainted)
        self.faults: list[tuple[int, str]] = []

    def read(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        arguments = function.args
        for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            if argument.annotation is not None and _names(argument.annotation) & COLLECTIONS:
                self.tainted.add(argument.arg)
        for statement in function.body:
            self.visit(statement)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        inner = _Function(self.tainted)
        inner.read(node)
        self.faults += inner.faults

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        inner = _Function(self.tainted)
        inner.read(node)
        self.faults += inner.faults

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        for target in node.targets:
            self._assign(target, node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.generic_visit(node)
        if node.value is not None:
            self._assign(node.target, node.value)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if self._is_named_by_client(value):
            self.tainted |= {each.id for each in ast.walk(target) if isinstance(each, ast.Name)}

    def visit_For(self, node: ast.For) -> None:
        if self._is_named_by_client(node.iter) and not _stops(node.body) and _calls(node.body):
            self.faults.append((node.lineno, "for"))
        self.generic_visit(node)

    def visit_ListComp(self, node: ast.ListComp) -> None:
        self._comprehension(node)

    def visit_SetComp(self, node: ast.SetComp) -> None:
        self._comprehension(node)

    def visit_DictComp(self, node: ast.DictComp) -> None:
        self._comprehension(node)

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> None:
        self._comprehension(node)

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> None:
        is_named = any(self._is_named_by_client(each.iter) for each in node.generators)
        if is_named and not _stops([node]) and _calls([node]):
            self.faults.append((node.lineno, "comprehension"))
        self.generic_visit(node)

    def _is_named_by_client(self, node: ast.AST) -> bool:
        """Whether the expression may be a collection of elements that a client named."""
        if isinstance(node, ast.Attribute):
            return node.attr in ARRAYS
        if isinstance(node, ast.Name):
            return node.id in self.tainted
        if isinstance(node, ast.Subscript):
            few = isinstance(node.slice, ast.Slice) and node.slice.upper is not None
            return not few and self._is_named_by_client(node.value)
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id in HARMLESS:
                return False
            called = [node.func.value] if isinstance(node.func, ast.Attribute) else []
            return any(self._is_named_by_client(each) for each in (*called, *node.args))
        if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            return any(self._is_named_by_client(each.iter) for each in node.generators)
        if isinstance(node, ast.Compare | ast.Lambda | ast.JoinedStr):
            return False
        return any(self._is_named_by_client(each) for each in ast.iter_child_nodes(node))


def _names(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _stops(body: Sequence[ast.AST]) -> bool:
    """Whether it yields or awaits, but not in a function that is defined there."""
    waiting: list[ast.AST] = list(body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Yield | ast.YieldFrom | ast.Await):
            return True
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            waiting += ast.iter_child_nodes(node)
    return False


def _calls(nodes: Sequence[ast.AST]) -> bool:
    """Whether anything is called that may take long."""
    calls = [each.func for node in nodes for each in ast.walk(node) if isinstance(each, ast.Call)]
    names = {each.attr if isinstance(each, ast.Attribute) else getattr(each, "id", "?") for each in calls}
    return not names <= CHEAP


def loops_in_one_go(source: str) -> dict[str, list[tuple[int, str]]]:
    """The offending loops by the outermost function or class they are in."""
    found: dict[str, list[tuple[int, str]]] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = _Function(set())
            function.read(node)
            if function.faults:
                found[node.name] = function.faults
    return found


def place_of(module: Path) -> str:
    return module.relative_to(SOURCE).with_suffix("").as_posix()


def test_an_excused_function_is_in_a_module_that_is_read() -> None:
    assert {name.rpartition(".")[0] for name in FEW} <= set(map(place_of, MODULES))


@pytest.mark.parametrize("module", MODULES, ids=place_of)
def test_loops_over_client_named_elements_are_sliced(module: Path) -> None:
    place = place_of(module)
    found = {f"{place}.{name}": faults for name, faults in loops_in_one_go(module.read_text()).items()}
    excused = {name for name in FEW if name.rpartition(".")[0] == place}
    assert excused <= found.keys(), "what is excused exists"
    assert {name: faults for name, faults in found.items() if name not in FEW} == {}
