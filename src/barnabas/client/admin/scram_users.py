"""SCRAM user requests. The password itself is never sent."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from barnabas.client.aio.cluster_client import ClusterClient
from barnabas.client.core.steps import Steps, raise_for
from barnabas.core.errors import ResourceNotFound
from barnabas.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from barnabas.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from barnabas.security.credentials.scram_credential import SALT_BYTES, ScramMechanism


class ScramUser(NamedTuple):
    name: str
    iterations: dict[str, int]
    """Iterations by mechanism name."""


class ScramUsers:
    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster

    async def put(self, name: str, mechanism: ScramMechanism, password: str, iterations: int) -> None:
        """Create or replace a credential of the user."""
        salt = os.urandom(SALT_BYTES)
        upsertion = ScramCredentialUpsertion(
            name=name,
            mechanism=mechanism.number,
            iterations=iterations,
            salt=salt,
            salted_password=mechanism.salted_password(password, salt, iterations),
        )
        await self._alter(AlterUserScramCredentialsRequest(upsertions=[upsertion]), name)

    async def delete(self, name: str, mechanisms: Sequence[ScramMechanism]) -> None:
        deletions = [ScramCredentialDeletion(name=name, mechanism=each.number) for each in mechanisms]
        await self._alter(AlterUserScramCredentialsRequest(deletions=deletions), name)

    async def list(self) -> list[ScramUser]:
        """Users with a credential, by name."""

        def attempt() -> Steps[list[ScramUser]]:
            answer = yield from self._cluster.state.ask_controller(
                DescribeUserScramCredentialsRequest(users=None), DescribeUserScramCredentialsResponse
            )
            raise_for(answer.error_code, answer.error_message, "users")
            return [
                ScramUser(
                    row.user,
                    {
                        mechanism.mechanism_name: info.iterations
                        for info in row.credential_infos
                        if (mechanism := ScramMechanism.numbered(info.mechanism)) is not None
                    },
                )
                for row in sorted(answer.results, key=lambda row: row.user)
            ]

        return await self._cluster.run_with_retries(attempt)

    async def _alter(self, request: AlterUserScramCredentialsRequest, name: str) -> None:
        def attempt() -> Steps[None]:
            answer = yield from self._cluster.state.ask_controller(request, AlterUserScramCredentialsResponse)
            row = answer.results[0]
            if row.error_code == ResourceNotFound.code:
                raise ResourceNotFound(f"user {name} has no such credential")
            raise_for(row.error_code, row.error_message, f"user {name}")

        await self._cluster.run_with_retries(attempt)
