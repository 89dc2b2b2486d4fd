"""Graph of a pipeline: sources, transforms, sink and dead letters, as a drawing and as its table.

The pipeline service says the stages. A Connect worker does not, so its graph comes from the configuration:
topics and connector.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from barnabas.console.html.charts import label, rect, svg, wide
from barnabas.console.html.components import Column, data_table
from barnabas.console.html.elements import Content, Element, a, code, div, element, span
from barnabas.console.html.figures import number, rate
from barnabas.console.pages.pipelines.status import Status

WIDTH: Final = 960.0
COLUMNS: Final = 5
BOX_WIDTH, BOX_HEIGHT = 156.0, 70.0
GAP: Final = (WIDTH - 2 - COLUMNS * BOX_WIDTH) / (COLUMNS - 1)
TOP: Final = 24.0
ROW: Final = BOX_HEIGHT + 44.0
STAGES_DRAWN_MAX: Final = 40
CHARACTERS: Final = 24
LETTERS: Final = "dead letters"


@dataclass(frozen=True, slots=True)
class Stage:
    kind: str
    type: str
    title: str
    settings: Mapping[str, str]
    topics: tuple[str, ...]
    is_foreign: bool


@dataclass(frozen=True, slots=True)
class Graph:
    stages: tuple[Stage, ...]
    edges: tuple[tuple[int, int], ...]
    group_id: str | None

    @classmethod
    def of_service(cls, document: Mapping[str, Any]) -> Graph:
        stages = tuple(
            Stage(
                str(each["kind"]),
                str(each["type"]),
                str(each["title"]),
                {str(name): str(value) for name, value in each["settings"].items()},
                tuple(map(str, each["topics"])),
                bool(each["is_foreign"]),
            )
            for each in document["stages"]
        )
        edges = [(int(first), int(second)) for first, second in document["edges"]]
        return cls(
            stages,
            tuple(each for each in edges if 0 <= each[0] < each[1] < len(stages)),
            document.get("group_id"),
        )

    @classmethod
    def of_connector(cls, config: Mapping[str, str], kind: str, topics: Sequence[str]) -> Graph:
        """Topics and connector, and Connect's transforms by their names."""
        letters = config.get("errors.deadletterqueue.topic.name", "")
        used = tuple(each for each in topics if each != letters)
        class_name = config.get("connector.class", "").rpartition(".")[2] or "connector"
        connector = Stage("sink" if kind == "sink" else "source", class_name, class_name, {}, (), False)
        end = Stage(
            "source" if kind == "sink" else "sink", "topic", ", ".join(used) or "topics", {}, used, False
        )
        changed = [each.strip() for each in config.get("transforms", "").split(",") if each.strip()]
        between = [
            Stage(
                "transform",
                config.get(f"transforms.{each}.type", "").rpartition(".")[2] or each,
                each,
                {},
                (),
                False,
            )
            for each in changed
        ]
        chain = [end, *between, connector] if kind == "sink" else [connector, *between, end]
        edges = [(at, at + 1) for at in range(len(chain) - 1)]
        if letters:
            edges += [(at, len(chain)) for at in range(len(chain))]
            chain.append(Stage(LETTERS, "topic", letters, {}, (letters,), False))
        name = config.get("name", "")
        return cls(tuple(chain), tuple(edges), f"connect-{name}" if kind == "sink" else None)

    @property
    def letters_topic(self) -> str | None:
        return next((each.topics[0] for each in self.stages if each.kind == LETTERS and each.topics), None)

    @property
    def are_letters_foreign(self) -> bool:
        return any(each.is_foreign for each in self.stages if each.kind == LETTERS)

    @property
    def own_topics(self) -> frozenset[str]:
        """Topics of the sources that lie in this cluster."""
        return frozenset(
            topic
            for each in self.stages
            if each.kind == "source" and not each.is_foreign
            for topic in each.topics
        )


def graph_chart(found: Graph, status: Status) -> Element:
    stages = found.stages[:STAGES_DRAWN_MAX]
    places = _places(stages)
    height = max(y for _, y in places) + BOX_HEIGHT + 2
    name = f"The graph of {status.name}"
    edges = [each for each in found.edges if each[1] < len(stages)]
    chart = svg(
        WIDTH,
        height,
        name,
        _description(stages, status),
        [_edge(places, *each) for each in edges if stages[each[1]].kind != LETTERS],
        _to_letters(places, [each for each in edges if stages[each[1]].kind == LETTERS]),
        [_box(places[at], stage, status, is_first=not at) for at, stage in enumerate(stages)],
        class_="chart graph",
    )
    return wide(name, chart)


def _places(stages: Sequence[Stage]) -> list[tuple[float, float]]:
    """Left upper corners: rows of five from left to right, and dead letters in a row of their own."""
    places: list[tuple[float, float]] = []
    for at, stage in enumerate(stages):
        row, column = divmod(at, COLUMNS)
        if stage.kind == LETTERS:
            row, column = (at - 1) // COLUMNS + 1, 0
        places.append((1 + column * (BOX_WIDTH + GAP), TOP + row * ROW))
    return places


def _description(stages: Sequence[Stage], status: Status) -> str:
    chain = " → ".join(f"{each.kind} {each.title[:80]}" for each in stages if each.kind != LETTERS)
    figures = [(each.kind, _figure(each, status, is_first=not at)) for at, each in enumerate(stages)]
    said = [f"{kind}: {figure}" for kind, figure in figures if figure]
    return ". ".join([f"{status.state.lower()}: {chain}", *said]) + "."


def _figure(stage: Stage, status: Status, *, is_first: bool) -> str:
    """Figure below a stage: the lag at the source, the rate at the sink, the sum of dead letters."""
    about = status.about
    match stage.kind:
        case "source" if is_first:
            lag = about.get("lag")
            return "" if lag is None else f"{number(lag)} waiting"
        case "sink":
            per_second = about.get("records_per_second")
            return "" if per_second is None else rate(per_second, " rec")
        case "dead letters":
            letters = about.get("dead_letters")
            return "" if letters is None else f"{number(letters)} {'record' if letters == 1 else 'records'}"
    return ""


def _box(place: tuple[float, float], stage: Stage, status: Status, *, is_first: bool) -> Element:
    x, y = place
    kind = {"dead letters": "letters", "transform": "transform"}.get(stage.kind, "end")
    has_trouble = status.state == "FAILED" or (stage.kind == LETTERS and status.about.get("dead_letters"))
    told = element("title", f"{stage.kind}, {stage.type}: {stage.title}")
    heading = stage.kind if stage.kind == LETTERS else f"{stage.kind} · {stage.type}"
    return element(
        "g",
        rect(
            x,
            y,
            BOX_WIDTH,
            BOX_HEIGHT,
            f"stage {kind}{' trouble' if has_trouble else ''}",
            told,
            radius=6,
        ),
        label(x + 10, y + 18, _cut(heading)),
        label(x + 10, y + 37, _cut(stage.title), "stage-title"),
        label(x + 10, y + 56, _figure(stage, status, is_first=is_first), "stage-figure"),
    )


def _cut(shown: str) -> str:
    return shown if len(shown) <= CHARACTERS else f"{shown[: CHARACTERS - 1]}…"


def _edge(places: Sequence[tuple[float, float]], first: int, second: int) -> Element:
    (x1, y1), (x2, y2) = places[first], places[second]
    if y1 == y2 and second == first + 1:
        middle = y1 + BOX_HEIGHT / 2
        return _path(f"M{x1 + BOX_WIDTH:.1f} {middle:.1f} H{x2:.1f}", x2, middle, is_right=True)
    if y1 == y2:  # over the boxes between
        above, start, end = y1 - 12, x1 + BOX_WIDTH - 24, x2 + 24
        return _path(f"M{start:.1f} {y1:.1f} V{above:.1f} H{end:.1f} V{y2:.1f}", end, y2)
    start, end, between = x1 + BOX_WIDTH / 2, x2 + BOX_WIDTH / 2, y1 + BOX_HEIGHT + 14
    return _path(f"M{start:.1f} {y1 + BOX_HEIGHT:.1f} V{between:.1f} H{end:.1f} V{y2:.1f}", end, y2)


def _to_letters(places: Sequence[tuple[float, float]], edges: Sequence[tuple[int, int]]) -> Content:
    """Lines from the stages down to one line, which ends at the dead letters."""
    if not edges:
        return None
    x, y = places[edges[0][1]]
    into, across = x + BOX_WIDTH / 2, y - 14
    downs = [places[first][0] + BOX_WIDTH / 2 + 24 for first, _ in edges]
    tops = [places[first][1] + BOX_HEIGHT for first, _ in edges]
    lines = " ".join(f"M{down:.1f} {top:.1f} V{across:.1f}" for down, top in zip(downs, tops, strict=True))
    return _path(f"{lines} M{max(downs):.1f} {across:.1f} H{into:.1f} V{y:.1f}", into, y, is_bad=True)


def _path(d: str, x: float, y: float, *, is_right: bool = False, is_bad: bool = False) -> Element:
    """A line with its arrow head, which ends at x and y."""
    corners = (
        ((x, y), (x - 7, y - 4), (x - 7, y + 4)) if is_right else ((x, y), (x - 4, y - 7), (x + 4, y - 7))
    )
    points = " ".join(f"{left:.1f},{top:.1f}" for left, top in corners)
    tone = " bad" if is_bad else ""
    return element(
        "g",
        element("path", d=d, class_=f"edge{tone}"),
        element("polygon", points=points, class_=f"arrow{tone}"),
    )


def graph_table(found: Graph) -> Element:
    return data_table("Stages of the pipeline", _COLUMNS, list(_rows(found)))


def _rows(found: Graph) -> Iterator[tuple[Content, ...]]:
    inputs: dict[int, list[int]] = {}
    for first, second in found.edges:
        inputs.setdefault(second, []).append(first + 1)
    for at, stage in enumerate(found.stages):
        links = [a(each, href=f"/topics/{each}") for each in stage.topics if is_topic_name(each)]
        if stage.is_foreign or not links:
            does: Content = code(stage.title)
        else:
            does = [[", " if number_ else None, link] for number_, link in enumerate(links)]
        said = [
            (span(f"{name} "), code(value)) for name, value in stage.settings.items() if value != stage.title
        ]
        yield (
            f"{at + 1}. {stage.kind}",
            stage.type,
            (does, span(" (of another cluster, or with its own login)", class_="soft"))
            if stage.is_foreign
            else does,
            ", ".join(map(str, inputs.get(at, []))),
            [div(each) for each in said],
        )


def is_topic_name(topic: str) -> bool:
    """Whether the name can be a link."""
    return topic.isascii() and all(each.isalnum() or each in "._-" for each in topic)


_COLUMNS = (
    Column("Stage"),
    Column("Type"),
    Column("Does"),
    Column("After", is_optional=True),
    Column("Settings", is_optional=True),
)
