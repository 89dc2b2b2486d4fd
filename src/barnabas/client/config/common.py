"""Keys that every client has: bootstrap, connections, timeouts, security."""

from __future__ import annotations

from typing import Final

from barnabas.client.security.settings import CODE_OPTIONS, HARMLESS, OPTIONS, SECRETS
from barnabas.config.definitions.keys import ConfigType, Key, at_least, one_of

INT_MAX: Final = (1 << 31) - 1
NO_LIMIT: Final = -1

CONNECTIONS: Final = (
    Key(
        "bootstrap.servers",
        ConfigType.LIST,
        None,
        doc="Brokers to begin with, as HOST:PORT separated by commas. The others are found through them.",
    ),
    Key(
        "client.id",
        ConfigType.STRING,
        "barnabas",
        doc="Name of this client in the broker's logs, metrics and quotas.",
    ),
    Key(
        "client.dns.lookup",
        ConfigType.STRING,
        "use_all_dns_ips",
        one_of("use_all_dns_ips"),
        doc="All addresses of a host name are tried in turn.",
    ),
    Key(
        "metadata.max.age.ms",
        ConfigType.LONG,
        300_000,
        at_least(0),
        doc="Metadata is refreshed after this time, without any error too.",
    ),
    Key(
        "metadata.recovery.strategy",
        ConfigType.STRING,
        "rebootstrap",
        one_of("none", "rebootstrap"),
        doc="With rebootstrap, a client that reaches none of the known brokers begins again with "
        "bootstrap.servers.",
    ),
    Key(
        "metadata.recovery.rebootstrap.trigger.ms",
        ConfigType.LONG,
        300_000,
        at_least(0),
        doc="Known brokers that give no metadata for this long are forgotten.",
    ),
    Key(
        "reconnect.backoff.ms",
        ConfigType.LONG,
        50,
        at_least(0),
        doc="First pause before the next attempt to connect to a broker.",
    ),
    Key(
        "reconnect.backoff.max.ms",
        ConfigType.LONG,
        1_000,
        at_least(0),
        doc="Longest pause between attempts to connect. The pauses double and are spread by 20 %.",
    ),
    Key(
        "retry.backoff.ms",
        ConfigType.LONG,
        100,
        at_least(0),
        doc="First pause before a failed request is sent again.",
    ),
    Key(
        "retry.backoff.max.ms",
        ConfigType.LONG,
        1_000,
        at_least(0),
        doc="Longest pause before a failed request is sent again.",
    ),
    Key(
        "request.timeout.ms",
        ConfigType.INT,
        30_000,
        at_least(1),
        doc="A connection whose answer is later than this is closed, and its requests are sent again.",
    ),
    Key(
        "socket.connection.setup.timeout.ms",
        ConfigType.LONG,
        10_000,
        at_least(1),
        doc="An attempt to connect ends after this time. The time doubles with each failure.",
    ),
    Key(
        "socket.connection.setup.timeout.max.ms",
        ConfigType.LONG,
        30_000,
        at_least(1),
        doc="Upper bound of socket.connection.setup.timeout.ms.",
    ),
    Key(
        "connections.max.idle.ms",
        ConfigType.LONG,
        540_000,
        at_least(NO_LIMIT),
        doc="Connections without a request for this long are closed; -1 keeps them.",
    ),
    Key(
        "send.buffer.bytes",
        ConfigType.INT,
        128 * 1024,
        at_least(NO_LIMIT),
        doc="Send buffer of the sockets (SO_SNDBUF); -1 leaves it to the system.",
    ),
    Key(
        "receive.buffer.bytes",
        ConfigType.INT,
        64 * 1024,
        at_least(NO_LIMIT),
        doc="Receive buffer of the sockets (SO_RCVBUF); -1 leaves it to the system.",
    ),
)

SECURITY: Final = tuple(
    Key(
        name,
        ConfigType.PASSWORD if name in SECRETS else ConfigType.STRING,
        "PLAINTEXT" if name == "security.protocol" else None,
        doc="See [Security](SECURITY.md)." if name in OPTIONS else "Accepted, without effect.",
    )
    for name in sorted(OPTIONS | HARMLESS | CODE_OPTIONS)
)
"""Text that `client.security.settings` parses, with every mechanism."""

WITHOUT_EFFECT: Final = tuple(
    Key(name, ConfigType.STRING, None, doc="Accepted, without effect: Java's client alone has it.")
    for name in (
        "auto.include.jmx.reporter",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "enable.metrics.push",
    )
)

COMMON: Final = (*CONNECTIONS, *SECURITY, *WITHOUT_EFFECT)
