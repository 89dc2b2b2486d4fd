"""How far an error reaches, also when only what was being handled is known of it, as in compiled code."""

from __future__ import annotations

import errno

import pytest

from barnabas.core.errors import KafkaStorageError
from barnabas.storage.failures import Reach, reach_of
from barnabas.storage.segment.batch_scan import GarbledLog

CASES = [
    (GarbledLog("no batch"), Reach.LOG),
    (OSError(errno.EMFILE, "too many open files"), Reach.REQUEST),
    (OSError(errno.EIO, "input/output error"), Reach.DIRECTORY),
]


@pytest.mark.parametrize(("error", "reach"), CASES)
@pytest.mark.parametrize("is_cause_known", [True, False])
def test_an_error_reaches_as_far_as_what_it_was_made_from(
    error: Exception, reach: Reach, *, is_cause_known: bool
) -> None:
    assert reach_of(error) is reach
    made = KafkaStorageError("the log cannot be read")
    made.__context__ = error
    made.__cause__ = error if is_cause_known else None
    assert reach_of(made) is reach
