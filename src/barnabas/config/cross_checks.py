"""Checks across several keys: each value is valid alone, and together they must agree."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from barnabas.config.connect_string import ConnectString
from barnabas.config.definitions.keys import Key
from barnabas.config.definitions.lookup import broker_key
from barnabas.config.definitions.security import TOKENS
from barnabas.config.definitions.shorthand import NO_EFFECT
from barnabas.config.derived import Derived, retention_ms
from barnabas.config.listeners import check_distinct_ports, for_listener
from barnabas.core.errors import InvalidConfig

AUTHORIZERS = (
    "kafka.security.authorizer.AclAuthorizer",
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "kafka.security.auth.SimpleAclAuthorizer",
)
"""Kafka's authorizers, whose rules and decisions the built-in one shares."""

LOCAL_ZOOKEEPER = "local"
"""Value of `zookeeper.connect` that runs a ZooKeeper beside the broker."""

_UNROUTABLE = ("", "0.0.0.0", "::")  # noqa: S104 - recognised, not bound
_WITH_USER = re.compile(r"[^/?#]*//[^/?#]*@")
_CLEANER_BYTES_PER_THREAD_MIN = 1 << 20


def check_agreement(config: Derived) -> None:
    """Raise INVALID_CONFIG with all conflicts."""
    check_distinct_ports(config.listeners)
    rules = (_identity, _zookeeper, _security, _unserved, _sasl, _addresses_with_secrets)
    refuse([complaint for rule in (*rules, *_DYNAMIC_RULES) for complaint in rule(config)])


def check_dynamic_agreement(config: Derived) -> None:
    """The same, by the rules that a change at run time can break."""
    refuse([complaint for rule in _DYNAMIC_RULES for complaint in rule(config)])


def refuse(complaints: Sequence[str]) -> None:
    """Raise INVALID_CONFIG that names all complaints, so that one correction of the file is enough."""
    if len(complaints) > 1:
        listed = "; ".join(f"({number}) {each}" for number, each in enumerate(complaints, 1))
        raise InvalidConfig(f"{len(complaints)} problems: {listed}")
    for complaint in complaints:
        raise InvalidConfig(complaint)


def _identity(config: Derived) -> Iterator[str]:
    if config["broker.id.generation.enable"]:
        if config["broker.id"] > config["reserved.broker.max.id"]:
            yield (
                f"broker.id {config['broker.id']} is above reserved.broker.max.id"
                f" {config['reserved.broker.max.id']}, where generated ids begin; choose a smaller id, raise"
                " reserved.broker.max.id, or set broker.id.generation.enable=false"
            )
    elif config["broker.id"] < 0:
        yield "broker.id must be given when broker.id.generation.enable is false"


def _addresses(config: Derived) -> Iterator[str]:
    names = {listener.listener_name for listener in config.listeners}
    known = ", ".join(sorted(names))
    for name, advertised in config.advertised_listeners.items():
        if name not in names:
            yield f"advertised.listeners names {name}, which is not among listeners ({known})"
        if advertised.endpoint.host in _UNROUTABLE:
            yield f"advertised.listeners: no client can connect to {advertised}; name a reachable address"
    plane = config.control_plane_listener_name
    if plane is not None:
        if plane not in names:
            yield f"control.plane.listener.name {plane} is not among listeners ({known})"
        if plane == config.inter_broker_listener.listener_name:
            yield f"control.plane.listener.name and the listener between brokers are both {plane}"
    if config["max.connections.per.ip"] == 0 and not config["max.connections.per.ip.overrides"]:
        yield "max.connections.per.ip may be 0 only with max.connections.per.ip.overrides, or all are refused"


def _zookeeper(config: Derived) -> Iterator[str]:
    connect = config["zookeeper.connect"]
    if connect and config["coordination.socket"]:
        yield "zookeeper.connect and coordination.socket name two coordination stores; set only one"
    if connect and connect != LOCAL_ZOOKEEPER:
        try:
            ConnectString.parse(connect)
        except InvalidConfig as error:
            yield f"zookeeper.connect: {error.message}"
    credentials = config["zookeeper.auth"]
    if credentials is not None and not re.fullmatch(r"[^:]+:.+", credentials):
        yield "zookeeper.auth must be of the form USER:PASSWORD"
    has_login = config["zookeeper.sasl.client"] and config["java.security.auth.login.config"]
    if config["zookeeper.set.acl"] and credentials is None and not has_login:
        yield (
            "zookeeper.set.acl needs credentials for the ACLs of znodes; set"
            " java.security.auth.login.config or zookeeper.auth"
        )


def _security(config: Derived) -> Iterator[str]:
    authorizer = config["authorizer.class.name"]
    if authorizer and authorizer not in AUTHORIZERS:
        yield (
            f"authorizer.class.name is {authorizer}, which cannot be loaded here;"
            f" the built-in authorizer has the names {', '.join(AUTHORIZERS)}"
        )
    if not authorizer:
        for name in ("super.users", "allow.everyone.if.no.acl.found"):
            if config[name]:
                yield (
                    f"{name} is given, but no authorizer.class.name: every client is allowed everything;"
                    " name an authorizer, or remove the key to accept that"
                )


def _unserved(config: Derived) -> Iterator[str]:
    """Keys that ask for a missing feature; their default asks for nothing."""
    for name, text in config.given.items():
        row = broker_key(name)
        missing = _missing_for(row)
        if missing is None or row.doc.startswith(NO_EFFECT) or _is_default(row, text):
            continue
        yield f"{name} is given, but this version has no {missing}; remove the key to do without"


def _missing_for(row: Key) -> str | None:
    """The missing feature that the key asks for."""
    if row in TOKENS and not row.name.startswith("delegation."):
        return "encryption of settings: passwords are not stored"
    is_revocation = row.name in ("zookeeper.ssl.crl.enable", "zookeeper.ssl.ocsp.enable")
    return "revocation check of ZooKeeper's certificates" if is_revocation else None


def _is_default(row: Key, text: str) -> bool:
    return row.render(row.parse(text)) == row.render(row.default)


def without_effect(given: Mapping[str, str]) -> list[str]:
    """Keys that were given a value and have no effect, for a warning."""
    rows = {name: broker_key(name) for name in given}
    return sorted(
        name
        for name, row in rows.items()
        if row.doc.startswith(NO_EFFECT) and not _is_default(row, given[name])
    )


def _times(config: Derived) -> Iterator[str]:
    if retention_ms(config.values) == 0:
        yield "log.retention.{ms,minutes,hours} must be at least 1, or -1 to keep records forever"
    if config["replica.fetch.wait.max.ms"] > config["replica.socket.timeout.ms"]:
        yield "replica.fetch.wait.max.ms must be at most replica.socket.timeout.ms, or quiet fetches time out"
    if config["replica.fetch.wait.max.ms"] > config["replica.lag.time.max.ms"]:
        yield "replica.fetch.wait.max.ms must be at most replica.lag.time.max.ms, or followers leave the ISR"
    idle_ms = config["connections.max.idle.ms"]
    if 0 <= idle_ms <= config["connection.failed.authentication.delay.ms"]:
        yield "connection.failed.authentication.delay.ms must be less than connections.max.idle.ms"
    if config["group.min.session.timeout.ms"] > config["group.max.session.timeout.ms"]:
        yield "group.min.session.timeout.ms must be at most group.max.session.timeout.ms"
    values = config.values
    for what in ("session.timeout", "heartbeat.interval"):
        low, middle, high = (values[f"group.consumer.{bound}{what}.ms"] for bound in ("min.", "", "max."))
        if not low <= middle <= high:
            yield f"group.consumer.{what}.ms must lie between its min ({low}) and its max ({high})"


def _sizes(config: Derived) -> Iterator[str]:
    per_thread = config["log.cleaner.dedupe.buffer.size"] // max(1, config["log.cleaner.threads"])
    if per_thread <= _CLEANER_BYTES_PER_THREAD_MIN:
        yield "log.cleaner.dedupe.buffer.size must be more than 1 MiB for each of log.cleaner.threads"
    if 0 < config["queued.max.request.bytes"] < config["socket.request.max.bytes"]:
        yield "queued.max.request.bytes must be at least socket.request.max.bytes, or some requests never fit"


def _sasl(config: Derived) -> Iterator[str]:
    between_brokers = config.inter_broker_listener
    if not between_brokers.security_protocol.startswith("SASL_"):
        return
    mechanism = config.values["sasl.mechanism.inter.broker.protocol"]
    enabled = for_listener(config.values, between_brokers.listener_name, "sasl.enabled.mechanisms")
    if mechanism not in enabled:
        yield (
            f"sasl.mechanism.inter.broker.protocol is {mechanism}, which sasl.enabled.mechanisms"
            f" ({', '.join(enabled)}) does not have"
        )


def _addresses_with_secrets(config: Derived) -> Iterator[str]:
    """Reject credentials in addresses, because clients that may describe settings can read them."""
    for name, text in config.given.items():
        if name.endswith(".endpoint.url") and _WITH_USER.match(text):
            yield (
                f"{name} has a user, and perhaps a password, before its host; settings of this kind are"
                " shown to clients, so leave everything up to the @ out"
            )


_DYNAMIC_RULES = (_addresses, _times, _sizes)
