"""What the salts of unknown users are made of: one secret of the whole cluster, in the store.

Every broker must answer for an unknown user as it would for a known one, with one salt for ever
(`security.credentials.decoys`). Who knows the secret can tell who has a SCRAM credential,
and nothing else.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final

from barnabas.cluster.coordination import Coordination, NodeExists

PATH: Final = "/barnabas/decoy_secret"
SECRET_BYTES: Final = 32


async def get_or_create_decoy_secret(znodes: Coordination) -> bytes:
    """Made by the first broker that ever asked."""
    with suppress(NodeExists):
        await znodes.create(PATH, os.urandom(SECRET_BYTES), make_parents=True)
    return (await znodes.get(PATH))[0]
