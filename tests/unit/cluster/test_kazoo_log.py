"""Log of kazoo: its warnings about lost connections are left to the session, which says what they mean."""

from __future__ import annotations

import logging

import pytest

pytest.importorskip("kazoo", reason="kazoo is not installed")


def test_kazoo_does_not_warn() -> None:
    from barnabas.cluster.zookeeper import wire

    assert not wire._logger.isEnabledFor(logging.WARNING)
    assert wire._logger.isEnabledFor(logging.ERROR)
