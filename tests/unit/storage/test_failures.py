"""Reach of an error, also with only a `__context__` and no `__cause__`, as in compiled code."""

from __future__ import annotations

import errno

import pytest

from barnabas.core.errors import KafkaStorageError
from barnabas.storage.files.failures import GarbledLog, Reach, reach_of

CASES = [
    (GarbledLog("no batch"), Reach.LOG),
    (OSError(errno.EMFILE, "too many open files"), Reach.REQUEST),
    (OSError(errno.EIO, "input/output error"), Reach.DIRECTORY),
]


@pytest.mark.parametrize(("error", "reach"), CASES)
@pytest.mark.parametrize("is_cause_known", [True, False])
def test_an_error_reaches_as_far_as_its_cause(
    error: Exception, reach: Reach, *, is_cause_known: bool
) -> None:
    assert reach_of(error) is reach
    made = KafkaStorageError("the log cannot be read")
    made.__context__ = error
    made.__cause__ = error if is_cause_known else None
    assert reach_of(made) is reach
