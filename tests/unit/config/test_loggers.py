"""Log levels as settings."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from barnabas.config.dynamic.changes import Change
from barnabas.config.dynamic.loggers import AUDIT, change_levels, describe_loggers
from barnabas.core.errors import InvalidConfig, InvalidRequest
from barnabas.protocol.config_numbers import ConfigOperation

NAME = "barnabas.test_loggers"


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    logging.getLogger("barnabas").setLevel(logging.WARNING)
    logger = logging.getLogger(NAME)
    yield logger
    logger.setLevel(logging.NOTSET)


def level() -> str | None:
    return next(entry.value for entry in describe_loggers() if entry.name == NAME)


def test_a_level_is_set_and_deleted(logger: logging.Logger) -> None:
    change_levels([Change(NAME, ConfigOperation.SET, "ERROR")], validate_only=False)
    assert logger.level == logging.ERROR
    assert level() == "ERROR"
    change_levels([Change(NAME, ConfigOperation.DELETE)], validate_only=False)
    assert logger.level == logging.NOTSET
    assert level() == "WARN"


def test_the_audit_log_is_one_of_them() -> None:
    assert AUDIT in {entry.name for entry in describe_loggers()}


def test_a_trial_changes_nothing(logger: logging.Logger) -> None:
    change_levels([Change(NAME, ConfigOperation.SET, "ERROR")], validate_only=True)
    assert logger.level == logging.NOTSET


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (Change(NAME, ConfigOperation.SET, "LOUD"), InvalidConfig),
        (Change("barnabas.nobody", ConfigOperation.SET, "INFO"), InvalidConfig),
        (Change("asyncio", ConfigOperation.SET, "INFO"), InvalidConfig),
        (Change(NAME, ConfigOperation.APPEND, "INFO"), InvalidRequest),
        (Change("root", ConfigOperation.DELETE), InvalidRequest),
    ],
)
def test_a_wrong_change_is_refused_with_all_others(
    logger: logging.Logger, change: Change, expected: type[Exception]
) -> None:
    with pytest.raises(expected):
        change_levels([Change(NAME, ConfigOperation.SET, "ERROR"), change], validate_only=False)
    assert logger.level == logging.NOTSET
