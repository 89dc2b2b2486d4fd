"""Short names for types, units and texts that many rows share."""

from __future__ import annotations

from barnabas.config.definitions.keys import ConfigType, Update

BOOLEAN = ConfigType.BOOLEAN
STRING = ConfigType.STRING
INT = ConfigType.INT
SHORT = ConfigType.SHORT
LONG = ConfigType.LONG
DOUBLE = ConfigType.DOUBLE
LIST = ConfigType.LIST
CLASS = ConfigType.CLASS
PASSWORD = ConfigType.PASSWORD

READ_ONLY = Update.READ_ONLY
PER_BROKER = Update.PER_BROKER
PER_LISTENER = Update.PER_LISTENER
CLUSTER_WIDE = Update.CLUSTER_WIDE

SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

KIB = 1 << 10
MIB = 1 << 20

NO_EFFECT = "Accepted so that a Kafka properties file works unchanged; it has no effect here. "
"""First sentence of a key for machinery that this broker does not have."""
