"""`make site`: the site of docs/, built by Zensical into build/site and checked.

python tools/build_site.py         # from mkdocs.yml, into build/site
python tools/build_site.py FOLDER  # the same below another folder

The site works without a network, from a server and from files. Zensical's `offline` plugin makes the search
work from files with a script of another host. A script of our own replaces it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from check_site import check
from stage_site import REPOSITORY, DeadLink, stage

SEARCH_FROM_FILES = Path(__file__).with_name("search_from_files.js")
_FOREIGN_SCRIPT = re.compile(r'(?<=<script src=")https://unpkg\.com/iframe-worker/shim(?=")')


def build(folder: Path) -> Path:
    """The folder of the built site."""
    import_module("zensical")  # a missing one is named before the work
    if folder != REPOSITORY:
        shutil.copyfile(REPOSITORY / "mkdocs.yml", folder / "mkdocs.yml")
    stage(folder / "build" / "site-pages")
    subprocess.run([sys.executable, "-m", "zensical", "build", "--clean", "--strict"], cwd=folder, check=True)
    site = folder / "build" / "site"
    script = site / "assets" / "javascripts" / SEARCH_FROM_FILES.name
    shutil.copyfile(SEARCH_FROM_FILES, script)
    for page in site.rglob("*.html"):
        ours = os.path.relpath(script, page.parent)
        page.write_text(_FOREIGN_SCRIPT.sub(ours, page.read_text(encoding="utf-8")), encoding="utf-8")
    return site


def main(arguments: list[str]) -> int:
    try:
        site = build(Path(arguments[0]).resolve() if arguments else REPOSITORY)
    except DeadLink as error:
        print(error, file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        print(f"{error.name} is missing: pip install -e '.[site]'", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        return error.returncode
    return check(site)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
