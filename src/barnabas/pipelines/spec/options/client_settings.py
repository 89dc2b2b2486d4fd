"""Checks of Kafka client settings in a spec (`kafka:` of a topic source or sink).

A spec is stored, shown over HTTP and passed to Spark, whose plans show options. So every secret in it must be
a reference. A client that may submit a spec must not thereby load code. So settings that name classes are
refused, and so is a login module other than Kafka's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from barnabas.client.security.settings import SECRETS, loads_code
from barnabas.core.errors import InvalidConfig
from barnabas.pipelines.spec.options.option import Value
from barnabas.security.identity.secret_references import REFERENCE
from barnabas.security.sasl.jaas import parse_jaas

JAAS = "sasl.jaas.config"
PROTOCOL = "security.protocol"
_PASSWORDS = ("password", "clientSecret")
_MODULES = {
    "PlainLoginModule": "org.apache.kafka.common.security.plain.",
    "ScramLoginModule": "org.apache.kafka.common.security.scram.",
    "OAuthBearerLoginModule": "org.apache.kafka.common.security.oauthbearer.",
    "Krb5LoginModule": "com.sun.security.auth.module.",
}


def client_settings_complaint(given: Mapping[str, str]) -> str | None:
    return next(_complaints(plain_names(given)), None)


def plain_names(given: Mapping[str, Value]) -> dict[str, str]:
    """Kafka's names of the settings, without the `kafka.` prefix of Spark's options."""
    return {name.removeprefix("kafka."): str(value) for name, value in given.items()}


def _complaints(named: Mapping[str, str]) -> Iterator[str]:
    for name, text in named.items():
        if loads_code(name, text):
            yield f"{name} names code to load, which a spec must not do"
        if name == JAAS:
            yield from _jaas_complaints(text)
        elif name in SECRETS and not is_reference(text):
            yield f"{name} is a secret in plain text; expected a reference: ${{env:NAME}} or ${{file:path:key}}"


def _jaas_complaints(text: str) -> Iterator[str]:
    if is_reference(text):
        return
    try:
        entries = parse_jaas(text)
    except InvalidConfig as error:
        yield error.message
        return
    for entry in entries:
        name = entry.module_name
        if entry.module not in (name, _MODULES.get(name, "") + name) or name not in _MODULES:
            yield f"{JAAS} names the login module {entry.module}; expected one of {', '.join(_MODULES)}"
        for option in _PASSWORDS:
            if option in entry.options and not is_reference(entry.options[option]):
                yield f'{JAAS} has its {option} in plain text; expected a reference: {option}="${{env:NAME}}"'


def is_reference(text: str) -> bool:
    return REFERENCE.fullmatch(text.strip()) is not None
