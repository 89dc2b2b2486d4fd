"""Short names for what the rows of the broker's keys say again and again."""

from __future__ import annotations

from barnabas.config.keys import ConfigType, Update

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

INT_MAX = (1 << 31) - 1
LONG_MAX = (1 << 63) - 1

SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

KIB = 1 << 10
MIB = 1 << 20

NO_EFFECT = "Accepted so that a Kafka properties file works unchanged; it has no effect here. "
"""Opens the sentence of a key that describes machinery this broker does not have."""
