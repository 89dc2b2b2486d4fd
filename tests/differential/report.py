"""Agreement of both sides, by (API, version, case), printed and written at the end of a run."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from tests.differential.case import Triple
from tests.differential.compare import Accepted, Difference


@dataclass
class Report:
    version: str = ""
    agreed: list[Triple] = field(default_factory=list)
    accepted: list[Triple] = field(default_factory=list)
    differing: dict[Triple, list[Difference]] = field(default_factory=dict)
    needed: Counter[str] = field(default_factory=Counter)
    _apis: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    def add(self, triple: Triple, kept: list[Difference], used: list[Accepted]) -> None:
        outcome = "differ" if kept else "accepted" if used else "agree"
        self._apis[triple.case.api.camel_name][outcome] += 1
        self.needed.update(each.label for each in used)
        if kept:
            self.differing[triple] = kept
        else:
            (self.accepted if used else self.agreed).append(triple)

    @property
    def count(self) -> int:
        return len(self.agreed) + len(self.accepted) + len(self.differing)

    def text(self) -> str:
        lines = [
            f"Side by side with Apache Kafka {self.version}: {self.count} (API, version, case) triples",
            f"  {len(self.agreed)} agree",
            f"  {len(self.accepted)} agree but for accepted differences (accepted.toml)",
            f"  {len(self.differing)} differ",
            "",
            f"{'API':<30}{'agree':>8}{'accepted':>10}{'differ':>8}",
        ]
        for api, counts in sorted(self._apis.items()):
            lines.append(f"{api:<30}{counts['agree']:>8}{counts['accepted']:>10}{counts['differ']:>8}")
        lines += self._what_differs()
        return "\n".join(lines) + "\n"

    def _what_differs(self) -> list[str]:
        """One line per difference, with the versions that have it."""
        versions: dict[tuple[str, str], list[int]] = defaultdict(list)
        for triple, found in self.differing.items():
            for each in dict.fromkeys(str(difference) for difference in found):
                versions[f"{triple.case.api.camel_name} {triple.case.name}", each].append(triple.version)
        lines: list[str] = []
        heading = ""
        for (name, each), found_in in versions.items():
            if name != heading:
                heading = name
                lines += ["", name]
            lines.append(f"  v{','.join(map(str, found_in))} {each}")
        return lines

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.text())
