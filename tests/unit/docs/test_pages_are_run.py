"""Pages with blocks of commands or code: each has tests that run them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
RUN_BY = {
    "README.md": (
        "tests/scenario/cli/test_shown_sessions.py",
        "tests/scenario/local_cluster/test_readme_session.py",
        "tests/scenario/pages/test_readme_blocks.py",
        "tests/scenario/testing/test_run_broker.py",
        "tests/unit/docs/test_specs_shown.py",
    ),
    "docs/CLIENT.md": ("tests/scenario/client/test_client_page.py",),
    "docs/CONSOLE.md": ("tests/scenario/pages/test_watching_pages.py",),
    "docs/FUZZING.md": ("tests/scenario/pages/test_tool_pages.py",),
    "docs/MONITORING.md": ("tests/scenario/pages/test_watching_pages.py",),
    "docs/PIPELINES.md": (
        "tests/unit/docs/test_specs_shown.py",
        "tests/scenario/pages/test_pipeline_pages.py",
    ),
    "docs/PIPELINE_SPEC.md": ("tests/unit/docs/test_reference_pages.py",),
    "docs/PYTHON.md": ("tests/unit/docs/test_reference_pages.py",),
    "docs/SECURITY.md": (
        "tests/scenario/security/test_page_walk.py",
        "tests/unit/docs/test_security_page.py",
    ),
    "docs/SIMULATION.md": ("tests/scenario/pages/test_tool_pages.py",),
    "docs/SPARK.md": ("tests/spark/test_spark_page.py",),
    "docs/TABLES.md": (
        "tests/spark/pipelines/test_tables_tutorial.py",
        "tests/unit/docs/test_specs_shown.py",
    ),
    "docs/TESTING.md": (
        "tests/scenario/pages/test_tool_pages.py",
        "tests/scenario/testing/test_recipes.py",
    ),
    "docs/TLS.md": ("tests/scenario/pages/test_tls_page.py",),
    "docs/TUTORIAL.md": ("tests/scenario/cli/test_tutorial.py",),
    "examples/README.md": ("tests/scenario/pages/test_pipeline_pages.py",),
}
TO_BE_RUN = re.compile(r"^```(?!mermaid)\w", re.MULTILINE)


def test_every_page_with_blocks_has_its_tests() -> None:
    pages = [REPOSITORY / "README.md", *(REPOSITORY / "docs").glob("*.md"), *REPOSITORY.glob("examples/*.md")]
    with_blocks = {page for page in pages if TO_BE_RUN.search(page.read_text(encoding="utf-8"))}
    assert {str(page.relative_to(REPOSITORY)) for page in with_blocks} == set(RUN_BY)


@pytest.mark.parametrize("page", RUN_BY)
def test_its_tests_read_the_page(page: str) -> None:
    name = "render_reference" if "test_reference_pages" in RUN_BY[page][0] else Path(page).name
    for test in RUN_BY[page]:
        text = (REPOSITORY / test).read_text(encoding="utf-8")
        assert name in text, f"{test} does not read {page}"
