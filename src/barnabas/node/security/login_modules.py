"""Login modules of a broker, from its settings or from a JAAS file.

A Kafka broker gets the file by a Java property (`java.security.auth.login.config`). The section of a listener
is `<listener>.KafkaServer` or `KafkaServer`. Settings win over the file.
"""

from __future__ import annotations

from typing import Final

from barnabas.client.security.settings import login_module
from barnabas.config.broker_config import BrokerConfig
from barnabas.config.listeners import for_listener
from barnabas.core.errors import InvalidConfig
from barnabas.core.files import read_regular_file
from barnabas.security.sasl.jaas import JaasEntry, parse_jaas, parse_jaas_file

JAAS_BYTES_MAX: Final = 1 << 20
_FILE_KEY: Final = "java.security.auth.login.config"


def jaas_sections(config: BrokerConfig) -> dict[str, list[JaasEntry]]:
    """Sections of the file; empty without one. Blocks; INVALID_CONFIG names the fault, and no secret."""
    path = config.values[_FILE_KEY]
    if not path:
        return {}
    where = f"{_FILE_KEY}: {path}"
    try:
        return parse_jaas_file(read_regular_file(path, JAAS_BYTES_MAX).decode())
    except OSError as error:
        raise InvalidConfig(f"{where} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidConfig(f"{where} is not a text in UTF-8") from None
    except InvalidConfig as error:
        raise InvalidConfig(f"{where}: {error.message}") from None


def login_entry(config: BrokerConfig, listener_name: str, mechanism: str) -> JaasEntry | None:
    """Login module for a mechanism on a listener. Blocks."""
    module = login_module(mechanism)
    text = for_listener(config.values, listener_name, "sasl.jaas.config", mechanism)
    if text is not None:
        entries = parse_jaas(text)
    else:
        sections = jaas_sections(config)
        own = f"{listener_name.lower()}.KafkaServer"
        entries = sections.get(own, sections.get("KafkaServer", []))
    return next((each for each in entries if each.module_name == module), None)
