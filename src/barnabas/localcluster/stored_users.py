"""Users in the coordination store, written without a broker, before the first one starts.

The user that brokers log in with must exist before them. The embedded store of a single broker can be opened
only while that broker is down.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from barnabas.cluster.stores.config_store import ZnodeConfigStore
from barnabas.cluster.stores.registration import make_persistent_paths
from barnabas.config.broker_config import BrokerConfig
from barnabas.config.dynamic.client_entities import USERS, Values, ValuesChange, user
from barnabas.core.clock import SystemClock
from barnabas.core.errors import ResourceNotFound
from barnabas.core.scheduler import InlineBackground
from barnabas.node.membership.coordination_store import open_coordination
from barnabas.security.credentials.scram_credential import (
    ITERATIONS_MIN,
    ScramCredential,
    ScramMechanism,
)

ITERATIONS = 2 * ITERATIONS_MIN


@dataclass(frozen=True, slots=True)
class FirstUsers:
    """Users that must exist before the first broker. An existing user keeps its password, unless the setup
    replaces it."""

    mechanism: ScramMechanism
    passwords: Mapping[str, str] = field(repr=False)
    replaces: AbstractSet[str]

    async def put(self, config: BrokerConfig) -> None:
        async with open_coordination(config, SystemClock(), InlineBackground()) as znodes:
            await make_persistent_paths(znodes)
            for name in self.passwords:
                await self._put(ZnodeConfigStore(znodes), name)

    async def _put(self, store: ZnodeConfigStore, name: str) -> None:
        key = self.mechanism.mechanism_name
        known = await store.read_entity(user(name)) or {}
        if name in self.replaces or key not in known:
            password = self.passwords[name]
            credential = ScramCredential.derive(self.mechanism, password, ITERATIONS)  # no client waits yet
            await store.change_entity(user(name), lambda values: {**values, key: credential.encode()})


async def put_user(
    config: BrokerConfig, name: str, mechanism: ScramMechanism, credential: ScramCredential
) -> None:
    await _change(config, name, lambda values: {**values, mechanism.mechanism_name: credential.encode()})


async def delete_user(config: BrokerConfig, name: str) -> None:
    names = {each.mechanism_name for each in ScramMechanism}

    def without(values: Values) -> Values:
        if not names & values.keys():
            raise ResourceNotFound(f"user {name} has no such credential")
        return {key: value for key, value in values.items() if key not in names}

    await _change(config, name, without)


async def list_users(config: BrokerConfig) -> dict[str, dict[str, int]]:
    """Iterations of each credential, by user and mechanism."""
    async with open_coordination(config, SystemClock(), InlineBackground()) as znodes:
        await make_persistent_paths(znodes)
        entities = await ZnodeConfigStore(znodes).read_entities()
    found: dict[str, dict[str, int]] = {}
    for path, values in entities.items():
        if len(path) == 1 and path[0].type == USERS and path[0].name is not None:
            for mechanism in ScramMechanism:
                text = values.get(mechanism.mechanism_name)
                if text is not None:
                    credential = ScramCredential.decode(mechanism, text)
                    found.setdefault(path[0].name, {})[mechanism.mechanism_name] = credential.iterations
    return found


async def _change(config: BrokerConfig, name: str, change: ValuesChange) -> None:
    async with open_coordination(config, SystemClock(), InlineBackground()) as znodes:
        await make_persistent_paths(znodes)
        await ZnodeConfigStore(znodes).change_entity(user(name), change)
