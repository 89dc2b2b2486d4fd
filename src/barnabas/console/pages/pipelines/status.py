"""Status of a pipeline as its service says it, and what can be done in its state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from barnabas.console.html.components import Tone, badge
from barnabas.console.html.elements import Element

_TONES: Final[Mapping[str, Tone]] = {
    "RUNNING": "good",
    "FINISHED": "good",
    "FAILED": "bad",
    "PAUSED": "warn",
    "RESTARTING": "warn",
    "STARTING": "info",
    "STOPPING": "info",
}


class Step(NamedTuple):
    button: str
    method: str
    path: str
    done: str
    useless_in: frozenset[str]
    """States in which the step changes nothing."""


_AT_REST: Final = frozenset({"PAUSED", "STOPPED"})
STEPS: Final[Mapping[str, Step]] = {
    "resume": Step(
        "Start",
        "PUT",
        "/resume",
        "Started",
        frozenset({"RUNNING", "STARTING", "RESTARTING", "FINISHED", "FAILED"}),
    ),
    "pause": Step("Pause", "PUT", "/pause", "Paused", frozenset({"PAUSED"})),
    "stop": Step("Stop", "PUT", "/stop", "Stopped", frozenset({"STOPPED"})),
    "restart": Step("Restart", "POST", "/restart?includeTasks=true", "Restarted", _AT_REST),
}


@dataclass(frozen=True, slots=True)
class Status:
    name: str
    document: Mapping[str, Any]

    @property
    def about(self) -> Mapping[str, Any]:
        """Fields that our service adds to Connect's status; empty from a Connect worker."""
        found: Mapping[str, Any] = self.document.get("pipeline") or {}
        return found

    @property
    def state(self) -> str:
        return str(self.about.get("state") or (self.document.get("connector") or {}).get("state") or "?")

    @property
    def progress(self) -> Mapping[str, Any]:
        return self.about.get("progress") or {}

    @property
    def last_error(self) -> str | None:
        """Of the pipeline, or of a failed task of a Connect worker."""
        rows = [self.document.get("connector") or {}, *(self.document.get("tasks") or ())]
        found = self.about.get("last_error") or next(filter(None, (each.get("trace") for each in rows)), None)
        return None if found is None else str(found)

    @property
    def steps(self) -> list[str]:
        return [name for name, step in STEPS.items() if self.state not in step.useless_in]

    def badge(self) -> Element:
        return badge(self.state.lower(), _TONES.get(self.state, "plain"))


def page_path(name: str) -> str:
    return f"/pipeline?{urlencode({'name': name})}"
