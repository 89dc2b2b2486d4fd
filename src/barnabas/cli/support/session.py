"""Clients of a command: bootstrap addresses, settings, errors.

`--command-config` names a file of Kafka's client properties. One file serves all commands, so a key may be of
the producer, the consumer or the admin client; each takes its own. A key that none of them knows is refused,
with a suggestion. `bootstrap.servers` of the file counts where no address is given. Passwords come from that
file or by reference, and never from the command line, which every user of the machine can read.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import click

from barnabas.cli.support.connection_hints import advice, login_is_missing
from barnabas.cli.support.exit_codes import INTERRUPTED, InvalidSettings, Unreachable, failure_for
from barnabas.cli.support.progress import announced
from barnabas.client.admin.admin import Admin
from barnabas.client.admin.calls.per_resource import SomeFailed
from barnabas.client.config.admin_keys import ADMIN_KEYS
from barnabas.client.config.consumer_keys import CONSUMER_KEYS
from barnabas.client.config.foreign_keys import known_key
from barnabas.client.config.producer_keys import PRODUCER_KEYS
from barnabas.client.core.steps import ClusterUnreachable
from barnabas.client.security.settings import SecurityProtocol, SecuritySettings
from barnabas.config.definitions.keys import ConfigType, Definition, Key
from barnabas.config.properties import read_properties
from barnabas.core.addressing.endpoints import Endpoint
from barnabas.core.errors import InvalidConfig, KafkaError, NetworkException

T = TypeVar("T")

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
PATIENCE: Final[Mapping[str, str]] = {
    "default.api.timeout.ms": "30000",
    "socket.connection.setup.timeout.ms": "5000",
    "socket.connection.setup.timeout.max.ms": "5000",
}
"""Defaults of a command, which a person waits for."""

FORMATTED: Final = frozenset({"key.serializer", "value.serializer", "key.deserializer", "value.deserializer"})
"""A file that is made for a Java client may name classes here. Commands have formats of their own."""

_CLIENT_PROPERTIES = "barnabas.client_properties"
_CLIENT_FILE = "barnabas.client_file"
_CONSOLE_KEYS = ("listener.name.console.", "schema.registry.", "console.")
_COMMAND_CONFIG = Definition(
    (
        *{**ADMIN_KEYS, **CONSUMER_KEYS, **PRODUCER_KEYS}.values(),
        *(
            Key(name, ConfigType.PASSWORD, None, doc="For the pipeline service.")
            for name in ("http.user", "http.password", "http.token")
        ),
    )
)


class Bootstrap(NamedTuple):
    addresses: tuple[Endpoint, ...]
    security: SecuritySettings = SecuritySettings()
    properties: Mapping[str, str] = {}
    """Properties of `--command-config`."""

    @classmethod
    def of(cls, ctx: click.Context, given: str | None) -> Bootstrap:
        """Bootstrap from the command's option, else the root's, else the file. ValueError if it is no
        address.
        """
        properties = given_properties(ctx)
        return cls(addresses_of(ctx, given), SecuritySettings.parse(properties), properties)

    def config(self, definition: Definition, **keywords: Any) -> dict[str, Any]:
        """Settings of one kind of client: those of the file, and `keywords` with `_` for each dot."""
        chosen = {**PATIENCE, **self.properties}
        found = {name: text for name, text in chosen.items() if name in definition and name not in FORMATTED}
        wanted = {name.replace("_", "."): value for name, value in keywords.items() if value is not None}
        return {**found, **wanted, "bootstrap.servers": list(map(str, self.addresses))}

    def __str__(self) -> str:
        return ",".join(map(str, self.addresses))


def addresses_of(ctx: click.Context, given: str | None) -> tuple[Endpoint, ...]:
    """Bootstrap addresses alone, as `Bootstrap.of` finds them."""
    properties = given_properties(ctx)
    text = given or ctx.find_root().params.get("bootstrap") or properties.get("bootstrap.servers")
    return tuple(Endpoint.parse(part) for part in (text or DEFAULT_BOOTSTRAP).split(",") if part.strip())


def _resolve(ctx: click.Context, _: click.Parameter, value: str | None) -> Bootstrap:
    try:
        return Bootstrap.of(ctx, value)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--bootstrap") from None
    except InvalidConfig as error:
        raise InvalidSettings(f"--command-config: {error.message}") from None


def given_properties(ctx: click.Context) -> dict[str, str]:
    """Properties in the file of `--command-config`."""
    found: Mapping[str, str] = ctx.meta.get(_CLIENT_PROPERTIES, {})
    return dict(found)


def given_file(ctx: click.Context) -> Path | None:
    found: Path | None = ctx.meta.get(_CLIENT_FILE)
    return found


def _read_client_properties(ctx: click.Context, _: click.Parameter, path: Path | None) -> None:
    path = path or ctx.find_root().params.get("command_config")
    if path is not None:
        ctx.meta[_CLIENT_PROPERTIES], ctx.meta[_CLIENT_FILE] = client_properties_of(path), path


def client_properties_of(path: Path, option: str = "--command-config") -> dict[str, str]:
    """Client properties of a file. Unknown keys and values that cannot be are refused."""
    found = properties_of(path)
    try:
        for name, text in found.items():
            if not is_of_console(name):
                known_key(_COMMAND_CONFIG, name).parse(text)
    except InvalidConfig as error:
        raise InvalidSettings(f"{option} {path}: {error.message}") from None
    return found


def is_of_console(name: str) -> bool:
    """Whether a key is one of the web console's page, which checks it."""
    return name.startswith(_CONSOLE_KEYS) or name == "http.open"


def properties_of(path: Path) -> dict[str, str]:
    try:
        return read_properties(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise InvalidSettings(f"{path} is not a properties file: it is not UTF-8 text") from None
    except ValueError as error:
        raise InvalidSettings(f"{path} cannot be read: {error}") from None


def bootstrap_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--bootstrap` and `--command-config`. The command's own option wins over the root's, which wins
    over the environment.
    """
    return properties_option(address_option(command))


def properties_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--command-config` alone."""
    return click.option(
        "--command-config",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        is_eager=True,
        expose_value=False,
        callback=_read_client_properties,
        help="Client properties file, for a secured cluster.  [env: BARNABAS_COMMAND_CONFIG]",
    )(command)


def address_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--bootstrap` alone."""
    return click.option(
        "--bootstrap",
        metavar="HOST:PORT",
        callback=_resolve,
        help="Bootstrap brokers, separated by commas.  [env: BARNABAS_BOOTSTRAP;"
        f" default: {DEFAULT_BOOTSTRAP}]",
    )(command)


def admin_of(bootstrap: Bootstrap) -> Admin:
    try:
        return Admin(bootstrap.config(ADMIN_KEYS))
    except InvalidConfig as error:
        raise InvalidSettings(f"--command-config: {error.message}") from None


def run(
    bootstrap: Bootstrap, action: Callable[[Admin], Awaitable[T]], *, announces_itself: bool = False
) -> T:
    """Connect, run the action, disconnect. Errors become a message and an exit code.

    A wait of some seconds is announced on standard error. An action that follows a topic
    `announces_itself`: silence of a topic is no wait.
    """

    async def connected() -> T:
        admin = admin_of(bootstrap)
        async with admin:
            async with announced(f"waiting for {bootstrap}"):
                await admin.cluster.any_channel()
                if bootstrap.security.sasl is None:
                    await _meet(admin, bootstrap.security.protocol)
                if not announces_itself:
                    return await action(admin)
            return await action(admin)

    logging.getLogger("barnabas").addHandler(logging.NullHandler())  # the command reports errors itself
    try:
        return asyncio.run(connected())
    except ClusterUnreachable as error:
        raise Unreachable(f"{error}: {advice(str(error), bootstrap.security.protocol)}") from None
    except NetworkException as error:
        raise Unreachable(error.message) from None
    except SomeFailed as error:
        raise failure_for(next(iter(error.errors.values()))) from None
    except KafkaError as error:
        raise failure_for(error) from None
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


async def _meet(admin: Admin, protocol: SecurityProtocol) -> None:
    """Send the first Metadata request. A listener that requires a login closes the connection with it, which
    is not worth half a minute of retries. The command itself meets and retries any other error.
    """
    for is_last in (False, True):
        try:
            await admin.cluster.refresh(())
        except NetworkException as error:
            if is_last:
                raise Unreachable(f"{error.message}: {login_is_missing(protocol)}") from None
        except (KafkaError, ClusterUnreachable):
            return
        else:
            return
