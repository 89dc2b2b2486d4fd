"""Decoy secret: the cluster-wide secret from which the salts of unknown SCRAM users derive.

Every broker must answer for an unknown user as for a known one, with one constant salt
(`security.credentials.decoys`). The secret reveals which users have a SCRAM credential, and nothing else.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final

from barnabas.cluster.coordination.contract import Coordination, NodeExists

PATH: Final = "/barnabas/decoy_secret"
SECRET_BYTES: Final = 32


async def get_or_create_decoy_secret(znodes: Coordination) -> bytes:
    """Secret of the cluster, created by the first broker that asks."""
    with suppress(NodeExists):
        await znodes.create(PATH, os.urandom(SECRET_BYTES), make_parents=True)
    return (await znodes.get(PATH))[0]
