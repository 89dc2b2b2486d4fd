"""DescribeUserScramCredentials (50), v0. Gaps: none.

SCRAM mechanisms and iterations of each user. No response holds the credentials themselves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from barnabas.config.dynamic.client_entities import USERS, ClientEntities, Values, user
from barnabas.core.errors import DuplicateResource, KafkaError, ResourceNotFound
from barnabas.core.steps import Sliced
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from barnabas.requests.bounded_loops import each
from barnabas.requests.context import RequestContext
from barnabas.requests.registry import Api
from barnabas.security.credentials.scram_credential import ScramCredential, ScramMechanism


def handle_describe_user_scram_credentials(
    request: DescribeUserScramCredentialsRequest, context: RequestContext
) -> Sliced[DescribeUserScramCredentialsResponse]:
    clients = context.broker.configs.clients
    results = []
    if not request.users:
        for name, values in sorted(_users(clients), key=lambda found: found[0]):
            if infos := _infos(values):
                results.append(DescribeUserScramCredentialsResult(user=name, credential_infos=infos))
            yield
    else:
        for name, count in Counter(named.name for named in request.users).items():
            results.append(_result(name, count, clients))
            yield
    return DescribeUserScramCredentialsResponse(results=results)


def _result(name: str, count: int, clients: ClientEntities) -> DescribeUserScramCredentialsResult:
    if count > 1:
        return _failed(
            name,
            DuplicateResource(
                f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
            ),
        )
    infos = _infos(clients.get(user(name)))
    if not infos:
        return _failed(
            name, ResourceNotFound(f"Attempt to describe a user credential that does not exist: {name}")
        )
    return DescribeUserScramCredentialsResult(user=name, credential_infos=infos)


def _failed(name: str, error: KafkaError) -> DescribeUserScramCredentialsResult:
    return DescribeUserScramCredentialsResult(user=name, error_code=error.code, error_message=error.message)


def _users(clients: ClientEntities) -> Iterator[tuple[str, Values]]:
    for path, values in clients:
        if len(path) == 1 and path[0].type == USERS and path[0].name is not None:
            yield path[0].name, values


def _infos(values: Values) -> list[CredentialInfo]:
    infos = []
    for mechanism in ScramMechanism:
        text = values.get(mechanism.mechanism_name)
        if text is not None:
            try:
                iterations = ScramCredential.decode(mechanism, text).iterations
            except ValueError:
                continue  # no client can log in by it
            infos.append(CredentialInfo(mechanism=mechanism.number, iterations=iterations))
    return infos


def _refused(
    request: DescribeUserScramCredentialsRequest, error: KafkaError, _version: int
) -> Sliced[DescribeUserScramCredentialsResponse]:
    """Give the error to the whole response and to every named user: librdkafka reads a result for each."""
    results = yield from each(request.users or [], lambda named: _failed(named.name, error))
    return DescribeUserScramCredentialsResponse(
        error_code=error.code, error_message=error.message, results=results
    )


DESCRIBE_USER_SCRAM_CREDENTIALS = Api(
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, handle=handle_describe_user_scram_credentials, refused=_refused
)
