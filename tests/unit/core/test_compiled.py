"""The code knows whether it was compiled, and the build what to compile."""

from __future__ import annotations

import tomllib
from pathlib import Path

from barnabas.core import compiled

REPOSITORY = Path(__file__).parents[3]


def test_the_code_says_what_it_is() -> None:
    assert (compiled.CODE == "pure Python") == (Path(compiled.__file__).suffix == ".py")


def test_every_module_that_is_to_be_compiled_is_there() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    hook = project["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]
    package = REPOSITORY / "src" / "barnabas"
    for pattern in hook["modules"]:
        folder, _, names = pattern.rpartition("/")
        if folder == "protocol/codecs":
            continue  # the build writes these
        for name in names.removesuffix(".py").strip("{}").split(","):
            assert [*(package / folder).glob(f"{name}.py")], f"{folder}/{name}.py"
