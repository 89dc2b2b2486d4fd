"""pytest fixtures that pytest finds once Barnabas is installed: no import, no conftest needed.

def test_orders(barnabas_bootstrap):
    producer = Producer({"bootstrap.servers": barnabas_bootstrap})

pytest loads this module in every project that has Barnabas installed, so only the fixtures import the broker.
Each worker of pytest-xdist has a broker and a cluster of its own. They live as long as the session, or as the
ini option `barnabas_scope` says: session, package, module, class or function.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import pytest

if TYPE_CHECKING:
    from barnabas.testing.broker import RunningBroker
    from barnabas.testing.cluster import RunningCluster
    from barnabas.testing.faults.rules import Faults

SCOPES: Final = ("session", "package", "module", "class", "function")
CLUSTER_BROKERS: Final = 3
_SCOPE_OPTION: Final = "barnabas_scope"
_Scope = Literal["session", "package", "module", "class", "function"]
PACKAGES: Final = ("barnabas", "pyspark_barnabas")
_HISTORY: Final = "barnabas.testing.history"
_BROKER: Final = "barnabas.testing.broker"
_CLUSTER: Final = "barnabas.testing.cluster"
_RECEIVED: Final = pytest.StashKey[dict[int, int]]()
"""Numbers of requests that brokers had received before the test."""


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """Import the packages of this distribution as they are.

    pytest rewrites the asserts of every module in a distribution that has a plugin. Here these are the
    invariants of a broker: rewritten, a broker in the test process starts later and takes a fifth more CPU.
    pytest offers no setting against it but a word in the docstring of each module.
    """
    for finder in sys.meta_path:
        rewritten = getattr(finder, "_must_rewrite", None)
        if isinstance(rewritten, set):
            rewritten.difference_update(PACKAGES)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(
        _SCOPE_OPTION, f"how long barnabas_broker and barnabas_cluster live: {', '.join(SCOPES)}",
        default="session",
    )  # fmt: skip


def _scope(fixture_name: str, config: pytest.Config) -> _Scope:  # noqa: ARG001 - as pytest calls it
    wanted = str(config.getini(_SCOPE_OPTION))
    if wanted not in SCOPES:
        raise pytest.UsageError(f"{_SCOPE_OPTION} = {wanted}: write one of {', '.join(SCOPES)}")
    return cast("_Scope", wanted)


@pytest.fixture(scope=_scope)
def barnabas_broker() -> Iterator[RunningBroker]:
    """One broker for the whole scope; topics are created at first use."""
    from barnabas.testing.broker import run_broker  # noqa: PLC0415 - only users of the fixture pay for it

    with run_broker() as broker:
        yield broker


@pytest.fixture(scope=_scope)
def barnabas_cluster() -> Iterator[RunningCluster]:
    """Three brokers for the whole scope."""
    from barnabas.testing.cluster import run_cluster  # noqa: PLC0415 - only users of the fixture pay for it

    with run_cluster(CLUSTER_BROKERS) as cluster:
        yield cluster


@pytest.fixture
def barnabas_bootstrap(barnabas_broker: RunningBroker) -> str:
    """The address to put into `bootstrap.servers`."""
    return barnabas_broker.bootstrap


@pytest.fixture
def barnabas_topic(barnabas_broker: RunningBroker) -> str:
    """Name of a new topic with one partition, for this test alone."""
    return barnabas_broker.create_topic()


@pytest.fixture
def barnabas_faults(barnabas_broker: RunningBroker) -> Iterator[Faults]:
    """Fault rules of the broker; they end with the test, and faults of its disk with them."""
    yield barnabas_broker.faults
    barnabas_broker.faults.clear()
    barnabas_broker.disk.heal()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    history = sys.modules.get(_HISTORY)
    item.stash[_RECEIVED] = {} if history is None else history.begin_test()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show with a failed test what its brokers saw: the last requests, fault rules, the end of the log.

    Its brokers are those of its fixtures, and others that it started or sent requests to. A process that has
    not imported the broker has none.
    """
    report = yield
    history = sys.modules.get(_HISTORY)
    if report.failed and history is not None:
        named = dict(_brokers_of(getattr(item, "funcargs", {})))
        known = {id(each) for each in named.values()}
        for broker in history.used_since(item.stash.get(_RECEIVED, {})):
            if id(broker) not in known:
                named[f"the broker on {broker.bootstrap}"] = broker
        for name, broker in named.items():
            report.sections += history.sections(broker, name)
    return report


def _brokers_of(arguments: dict[str, Any]) -> Iterator[tuple[str, RunningBroker]]:
    """Brokers of fixtures, by the name of the fixture."""
    broker_module, cluster_module = sys.modules.get(_BROKER), sys.modules.get(_CLUSTER)
    for name, value in arguments.items():
        if broker_module is not None and isinstance(value, broker_module.RunningBroker):
            yield name, value
        if cluster_module is not None and isinstance(value, cluster_module.RunningCluster):
            yield from ((f"{name}, broker {each.broker_id}", each) for each in value.brokers)
