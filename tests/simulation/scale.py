"""Sizes of the product that only large logs reach, made small while a run lasts.

A run writes little. With these the embedded store compacts its log after as many changes as a busy day
brings, and a log takes as many turns to move as a large one. Other tests of the process keep the real sizes.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from barnabas.cluster.embedded import session as embedded
from barnabas.handlers import create_delegation_token
from barnabas.replication import log_dir_mover


@contextmanager
def small_sizes() -> Iterator[None]:
    with (
        mock.patch.object(embedded, "COMPACT_BYTES_MIN", 8_192),
        mock.patch.object(log_dir_mover, "SLICE_BYTES", 1_024),
        mock.patch.object(log_dir_mover, "SYNC_EVERY_BYTES", 1_024),
        # The ids of tokens, which brokers read in their order.
        mock.patch.object(create_delegation_token, "_UNPREDICTABLE", random.Random("tokens")),
    ):
        yield
