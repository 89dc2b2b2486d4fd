"""Reference pages of docs/, rendered from the code: CLI.md, PIPELINE_SPEC.md and PYTHON.md.

python tools/render_reference.py          # writes the pages
python tools/render_reference.py --check  # fails if a page differs

- CLI.md: the commands, from the argument parsers.
- PIPELINE_SPEC.md: every option of a spec, from the catalogue's rows, with examples that `pipeline_examples`
  lists.
- PYTHON.md: the public names of the public modules, from their signatures and docstrings.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import click
import yaml

sys.path.insert(0, str(Path(__file__).parent))

from pipeline_examples import PLUGINS, example_of

from barnabas.cli.main import cli
from barnabas.pipelines.spec.options.catalogue import CATALOGUE
from barnabas.pipelines.spec.options.option import Kind, Option, Plugin
from barnabas.pipelines.spec.options.sections import ERRORS, RESTART, SPARK, TOP

DOCS = Path(__file__).resolve().parents[1] / "docs"
RENDERED = "This page is rendered from the code (`make diagrams`)."

# --- the command line ---

CLI_PREFACE = f"""\
# Command line

Every command with its arguments and options. `barnabas <command> --help` shows the same. {RENDERED}

"""


def cli_page() -> Iterator[str]:
    yield CLI_PREFACE.rstrip("\n")
    yield ""
    root = click.Context(cli, info_name="barnabas")
    yield from _options_of(cli, root)
    yield "| command | |"
    yield "|---|---|"
    for name in cli.list_commands(root):
        command = cli.get_command(root, name)
        assert command is not None
        yield f"| [`{name}`](#barnabas-{name}) | {command.get_short_help_str(200)} |"
    yield ""
    for name in cli.list_commands(root):
        command = cli.get_command(root, name)
        assert command is not None
        yield from _command(command, root, name, level=2)
    yield f"**Exit codes.** {' '.join(str(cli.epilog or '').split())}"
    yield ""


def _command(command: click.Command, parent: click.Context, name: str, level: int) -> Iterator[str]:
    context = click.Context(command, info_name=name, parent=parent)
    yield f"{'#' * level} {context.command_path}"
    yield ""
    yield from _help_of(command)
    if isinstance(command, click.Group):
        yield from _options_of(command, context)
        for each in command.list_commands(context):
            found = command.get_command(context, each)
            assert found is not None
            yield from _command(found, context, each, level=3)
        return
    yield "```"
    yield " ".join([context.command_path, *command.collect_usage_pieces(context)])
    yield "```"
    yield ""
    yield from _options_of(command, context)


def _help_of(command: click.Command) -> Iterator[str]:
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        if paragraph.startswith("\b"):
            yield "```"
            yield paragraph.removeprefix("\b").strip("\n")
            yield "```"
        else:
            yield _plain(" ".join(paragraph.split()))
        yield ""


def _options_of(command: click.Command, context: click.Context) -> Iterator[str]:
    rows = [
        row
        for parameter in command.get_params(context)
        if "--help" not in parameter.opts and (row := parameter.get_help_record(context)) is not None
    ]
    if rows:
        yield "| option | |"
        yield "|---|---|"
        for names, text in rows:
            yield f"| `{_cell(names)}` | {_cell(_plain(' '.join(text.split())))} |"
        yield ""


def _plain(text: str) -> str:
    """Text outside of backticks must not look like HTML or a link to a reader of Markdown."""
    return text.replace("<", "&lt;") if "`" not in text else text


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


# --- the spec of a pipeline ---

SPEC_PREFACE = f"""\
# Pipeline spec

Every section, source, transform and sink of a pipeline, with every option. [PIPELINES.md](PIPELINES.md)
explains how they work together. [pipeline.schema.json](pipeline.schema.json) is the same for editors.
{RENDERED}

- A required option has no default.
- A value may be a reference, such as `${{env:NAME}}` or `${{file:path:key}}`. A secret must be one.
- A transform, source or sink with a main option has a short form: `- filter: a > 1` is
  `- {{type: filter, where: a > 1}}`.
- In a Connect configuration an option has its name with dots (`partition.by`), or a name of Connect.
"""


def spec_page() -> Iterator[str]:
    yield SPEC_PREFACE
    yield "## Sections\n"
    yield from _rows("", TOP)
    for title, rows in (("errors", ERRORS), ("restart", RESTART), ("spark", SPARK)):
        yield f"### {title}\n"
        yield from _rows(title, rows)
    for role, title in (("source", "Sources"), ("transform", "Transforms"), ("sink", "Sinks")):
        yield f"## {title}\n"
        for plugin in CATALOGUE[role].values():
            yield from _plugin(role, plugin)


def _plugin(role: str, plugin: Plugin) -> Iterator[str]:
    yield f"### {role} {plugin.name}\n"
    main = f" Main option: `{plugin.primary}`." if plugin.primary else ""
    yield f"{plugin.doc}{main}\n"
    yield "```yaml"
    yield yaml.safe_dump(
        PLUGINS[role, plugin.name], sort_keys=False, default_flow_style=None, width=90
    ).rstrip()
    yield "```"
    yield ""
    yield from _rows(plugin.name, plugin.options)


def _rows(name: str, rows: tuple[Option, ...]) -> Iterator[str]:
    yield "| option | type | default | example | what it does |"
    yield "|---|---|---|---|---|"
    for row in rows:
        default = (
            "required" if row.is_required else "" if row.default is None else f"`{_written(row.default)}`"
        )
        example = example_of(name, row)
        shown = "" if example is None else f"`{_written(example)}`"
        aliases = f" Connect: {', '.join(f'`{each}`' for each in row.aliases)}." if row.aliases else ""
        cells = (f"`{row.name}`", _type(row), default, shown, f"{row.doc}{aliases}")
        yield f"| {' | '.join(map(_cell, cells))} |"
    yield ""


WORDS_OF_SECTIONS = {
    "transforms": "a list",
    "trigger": "a duration such as '10 seconds', or `available_now`",
}
"""Types of sections that are no mapping."""


def _type(row: Option) -> str:
    if row.name in WORDS_OF_SECTIONS:
        return WORDS_OF_SECTIONS[row.name]
    if row.kind is Kind.CHOICE:
        return ", ".join(f"`{each}`" for each in row.choices)
    return row.expected


def _written(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, dict)):
        return str(yaml.safe_dump(value, default_flow_style=True, width=1_000)).strip()
    return str(value)


# --- the Python API ---

MODULES = (
    ("barnabas.client", "Kafka clients for Barnabas and Apache Kafka."),
    ("barnabas.testing.broker", "A broker inside a test or a script."),
    ("barnabas.testing.cluster", "A cluster inside a test or a script."),
    ("barnabas.testing.asking.looking", "Questions to a broker and to a cluster."),
    ("barnabas.testing.faults.rules", "Fault rules."),
    ("barnabas.testing.running.virtual_time", "Time that a test moves."),
    ("barnabas.testing.traffic.replay", "Replay of recorded traffic."),
    ("barnabas.testing.plugin", "pytest fixtures; see [TESTING.md](TESTING.md)."),
    ("barnabas.pipelines", "Pipelines from Python; they run on Spark."),
    ("pyspark_barnabas", '`format("barnabas")` on Spark, and functions beside it.'),
)
PYTHON_PREFACE = f"""\
# Python API

The public modules with their public names. Everything else may change without notice. {RENDERED}

"""


def python_page() -> Iterator[str]:
    yield PYTHON_PREFACE.rstrip("\n")
    yield ""
    for name, summary in MODULES:
        module = importlib.import_module(name)
        yield f"## {name}\n"
        yield f"{summary}\n"
        for public in public_names(module):
            yield from _described(public, getattr(module, public))


def public_names(module: Any) -> list[str]:
    """`__all__`, or the functions and classes that the module defines."""
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return sorted(listed)
    return [
        name
        for name, each in vars(module).items()
        if not name.startswith("_") and getattr(each, "__module__", "") == module.__name__
    ]


def _described(name: str, each: Any) -> Iterator[str]:
    each = getattr(each, "__wrapped__", each)
    is_class = inspect.isclass(each)
    yield f"### {name}\n"
    if callable(each):
        yield "```python"
        yield f"{'class ' if is_class else ''}{name}{_signature(each)}"
        yield "```"
        yield ""
    yield from _docstring(each)
    if is_class and not issubclass(each, BaseException):
        for method, function in sorted(vars(each).items()):
            yield from _method(method, function)


def _method(name: str, member: Any) -> Iterator[str]:
    if name.startswith("_"):
        return
    function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
    if not inspect.isfunction(function):
        return
    shown = name if isinstance(member, property) else f"{name}{_signature(function, method=True)}"
    doc = " ".join(inspect.cleandoc(function.__doc__ or "").split("\n\n")[0].split())
    yield f"- `{shown}`{': ' + doc if doc else ''}"
    yield ""


def _signature(each: Callable[..., Any], *, method: bool = False) -> str:
    if inspect.isclass(each) and issubclass(each, BaseException):
        return ""
    found = inspect.signature(each)
    parameters = list(found.parameters.values())
    if method and parameters and parameters[0].name in ("self", "cls"):
        parameters = parameters[1:]
    words: list[str] = []
    for parameter in parameters:
        is_named_only = parameter.kind is inspect.Parameter.KEYWORD_ONLY
        if is_named_only and "*" not in words and not any(word.startswith("*") for word in words):
            words.append("*")
        words.append(_parameter(parameter))
    returned = found.return_annotation
    is_shown = returned is not inspect.Signature.empty and not inspect.isclass(each)
    return f"({', '.join(words)}){f' -> {_annotation(returned)}' if is_shown else ''}"


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    text = f"{stars.get(parameter.kind, '')}{parameter.name}"
    if parameter.annotation is not inspect.Parameter.empty:
        text += f": {_annotation(parameter.annotation)}"
    if parameter.default is inspect.Parameter.empty:
        return text
    default = parameter.default
    if isinstance(default, Enum):
        return f"{text} = {type(default).__name__}.{default.name}"
    is_plain = default is None or isinstance(default, (str, int, float, bool, tuple))
    return f"{text} = {default!r}" if is_plain else f"{text} = ..."


def _annotation(annotation: Any) -> str:
    forward = getattr(annotation, "__forward_arg__", None)
    if forward is not None:
        return str(forward)
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))


def _docstring(each: Any) -> Iterator[str]:
    text = inspect.cleandoc(getattr(each, "__doc__", None) or "")
    if inspect.isclass(each) and "__init__" in vars(each) and each.__init__.__doc__:
        text = "\n\n".join(filter(None, (text, inspect.cleandoc(each.__init__.__doc__))))
    if text and not text.startswith(f"{getattr(each, '__name__', '')}("):
        yield text
        yield ""


PAGES = {"CLI.md": cli_page, "PIPELINE_SPEC.md": spec_page, "PYTHON.md": python_page}


def main() -> None:
    stale = []
    for name, render in PAGES.items():
        page = DOCS / name
        fresh = "\n".join(render()).rstrip("\n") + "\n"
        if "--check" not in sys.argv:
            page.write_text(fresh, encoding="utf-8")
        elif not page.exists() or page.read_text(encoding="utf-8") != fresh:
            stale.append(name)
    if stale:
        raise SystemExit(f"{', '.join(stale)} differ from the code: run make diagrams")


if __name__ == "__main__":
    main()
