"""`python -m tests.fuzz.hunt`: plant bugs one by one, and write into docs/FUZZING.md how soon each is met."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

from tests.fuzz.planted import BROKERS, BUGS, DECODERS, LARGE, SCRIPTS, SIMULATED
from tests.fuzz.run import CAUGHT
from tests.support.planting import Bug

PAGE = Path(__file__).resolve().parents[2] / "docs" / "FUZZING.md"
BEGIN, END = "<!-- planted bugs: begin -->", "<!-- planted bugs: end -->"


def hunt(bug: Bug, seed: int) -> str | None:
    """Number of inputs or requests until the bug was caught; None if it was not."""
    sizes = ["--inputs", "5000000", "--requests", "0"]
    if bug in BROKERS:
        sizes = ["--inputs", "0", "--requests", "60000"]
    if bug in LARGE:
        sizes = ["--inputs", "0", "--requests", "0", "--large"]
    if bug in SCRIPTS:
        sizes = ["--inputs", "0", "--requests", "0", "--scripts"]
    if bug in SIMULATED:
        sizes = ["--inputs", "0", "--requests", "0", "--simulated", "60000"]
    command = [
        *(sys.executable, "-m", "tests.fuzz.run", "--bug", bug.name, "--seed", str(seed), *sizes),
        *("--until-failure", "--no-shrink"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(rf"^{CAUGHT} (\d+ [\w ]+)$", done.stdout, re.MULTILINE)
    if found is None and not done.stdout:
        raise RuntimeError(done.stderr[-3_000:])
    return found and found[1]


def write_table(rows: dict[str, str]) -> None:
    """Rows of bugs that were not hunted this time stay as they are."""
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    old, _, after = rest.partition(END)
    known = dict(re.findall(r"^\| (.+?) \| (.+?) \|$", old, re.MULTILINE)) | rows
    lines = [f"| {bug.name} | {known.get(bug.name, 'not hunted yet')} |" for bug in BUGS]
    table = "\n".join(("| planted bug | caught after |", "|---|---|", *lines))
    PAGE.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="which bugs, by parts of their names; without any, all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", choices=("decoders", "brokers", "large", "scripts", "simulated"))
    options = parser.parse_args()
    wanted = {
        "decoders": DECODERS,
        "brokers": BROKERS,
        "large": LARGE,
        "scripts": SCRIPTS,
        "simulated": SIMULATED,
        None: BUGS,
    }[options.kind]
    survivors = 0
    for bug in wanted:
        if options.names and not any(each in bug.name for each in options.names):
            continue
        caught = hunt(bug, options.seed)
        survivors += caught is None
        write_table({bug.name: caught or "**not caught**"})
        print(f"{bug.name}: {caught or 'not caught'}", flush=True)
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
