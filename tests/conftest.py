"""Options of the whole suite. Fixtures live beside the tests that use them."""

from __future__ import annotations

import gc
import importlib
import logging
import os
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from barnabas.config.dynamic.loggers import AUDIT
from barnabas.core.compiled import CODE
from barnabas.core.reporting.state_changes import STATE_CHANGES
from tests.tiers import SOURCE_ONLY, is_all_rest, is_rest, mixed

REPOSITORY = Path(__file__).resolve().parents[1]

# How long an example takes is the machine's affair, not a test's.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


# The page of a local cluster takes one address of the machine, and a process; its own tests ask for it.
os.environ.setdefault("BARNABAS_CONSOLE", "off")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--broker",
        choices=("barnabas", "kafka"),
        default="barnabas",
        help="which broker client and wire tests talk to; `kafka` shows that the tests are right",
    )
    parser.addoption(
        "--compatibility",
        metavar="FILE",
        help="write the matrix of clients and features to this file when the run ends (not with xdist)",
    )
    parser.addoption(
        "--comparison",
        metavar="FILE",
        help="render the table of tests/clients/behaviour into this page when the run ends (not with xdist)",
    )
    parser.addoption(
        "--screenshots", metavar="DIR", help="write the console's pictures of docs/ to this folder"
    )
    parser.addoption("--hostile-seed", type=int, default=1, help="of tests/contract/test_hostile_requests.py")
    parser.addoption(
        "--hostile-rounds", type=int, default=2, help="how often it asks each API in each version"
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--compatibility"):
        if config.getoption("numprocesses", None):
            raise pytest.UsageError("--compatibility needs one process: the matrix is gathered in it")
        from tests.clients.matrix import Matrix

        config.pluginmanager.register(Matrix(Path(config.getoption("--compatibility"))))
    if config.getoption("--comparison"):
        from tests.clients.behaviour.comparison import Comparison

        config.pluginmanager.register(Comparison(Path(config.getoption("--comparison"))))
    # kafka-python reads its message schemas through functions that Python 3.11 deprecated.
    config.addinivalue_line("filterwarnings", "ignore:(read|open)_text is deprecated:DeprecationWarning")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Modules without a test for `make test` are not imported for it."""
    if not collection_path.is_relative_to(REPOSITORY):
        return None
    place = collection_path.relative_to(REPOSITORY).as_posix()
    return _is_left_out(f"{place}/" if collection_path.is_dir() else place, config) or None


def _is_left_out(place: str, config: pytest.Config) -> bool:
    return config.option.markexpr.startswith("not rest") and is_all_rest(place)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Collect without the garbage collector: nearly every object stays until the end."""
    gc.disable()
    try:
        _import_a_share(session.config)
        return (yield)
    finally:
        gc.enable()


def _import_a_share(config: pytest.Config) -> None:
    """Let each worker import a share of the test modules first, so that no two rewrite the assertions of one.

    The collection of every worker then finds the other modules in the cache of bytecode. In a fresh clone,
    two thirds of the work of a collection are the rewriting.
    """
    worker = getattr(config, "workerinput", None)
    if worker is None or config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return
    places = sorted(path.relative_to(REPOSITORY) for path in (REPOSITORY / "tests").rglob("test_*.py"))
    wanted = [place for place in places if not _is_left_out(place.as_posix(), config)]
    for place in wanted[int(worker["workerid"].removeprefix("gw")) :: worker["workercount"]]:
        with suppress(Exception, pytest.skip.Exception):  # the collection imports it again, and reports it
            importlib.import_module(".".join(place.with_suffix("").parts))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        _mix_files(items)
    for item in items:
        if item.get_closest_marker("slow") or is_rest(item.nodeid):
            item.add_marker(pytest.mark.rest)
        if CODE == "compiled" and item.nodeid.startswith(SOURCE_ONLY):
            item.add_marker(pytest.mark.skip(reason="shown on the source alone"))


def _mix_files(items: list[pytest.Item]) -> None:
    by_file: dict[str, list[pytest.Item]] = {}
    for item in items:
        by_file.setdefault(item.nodeid.partition("::")[0], []).append(item)
    items[:] = [item for file in mixed(list(by_file)) for item in by_file[file]]


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Items and modules stay until the end: no later collection visits their objects, half a million."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """Tests that run a command in this process let it set up logging, which is the whole process's."""
    loggers = [logging.getLogger(name) for name in ("barnabas", AUDIT, STATE_CHANGES)]
    before = [(each.handlers, each.level, each.propagate) for each in loggers]
    switches = (logging.logThreads, logging.logProcesses, logging.logMultiprocessing)
    yield
    for each, (handlers, level, propagate) in zip(loggers, before, strict=True):
        each.handlers, each.propagate = handlers, propagate
        if each.level != level:
            each.setLevel(level)
    logging.logThreads, logging.logProcesses, logging.logMultiprocessing = switches
