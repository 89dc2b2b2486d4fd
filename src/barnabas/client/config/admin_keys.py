"""Keys of the admin client."""

from __future__ import annotations

from typing import Final

from barnabas.client.config.common import COMMON, INT_MAX
from barnabas.config.definitions.keys import ConfigType, Definition, Key, at_least, between

ADMIN: Final = (
    Key(
        "default.api.timeout.ms",
        ConfigType.INT,
        60_000,
        at_least(0),
        doc="Longest wait of a call, retries included.",
    ),
    Key(
        "retries",
        ConfigType.INT,
        INT_MAX,
        between(0, INT_MAX),
        doc="How often a request is sent again. Leave it, and set default.api.timeout.ms.",
    ),
)

ADMIN_KEYS: Final = Definition((*ADMIN, *COMMON))
