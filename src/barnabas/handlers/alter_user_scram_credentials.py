"""AlterUserScramCredentials (51), v0. Gaps: none.

A client sends the salted password, never the password. The broker stores only the keys that verify it. All
changes to one user succeed or none. Any broker takes them: each write is conditional on the znode's version.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain

from barnabas.config.dynamic.client_entities import ClientEntities, Values, user
from barnabas.core.errors import (
    DuplicateResource,
    KafkaError,
    ResourceNotFound,
    UnacceptableCredential,
    UnsupportedSaslMechanism,
)
from barnabas.core.limits import DECISION_ELEMENTS_MAX
from barnabas.core.steps import Sliced
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from barnabas.requests.bounded_loops import distinct, each
from barnabas.requests.context import RequestContext
from barnabas.requests.errors import as_kafka_error
from barnabas.requests.registry import Api
from barnabas.security.credentials.scram_credential import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    ScramCredential,
    ScramMechanism,
)


@dataclass(slots=True)
class _Changes:
    """Changes to one user: the text of a credential by mechanism name, or None for a deletion."""

    texts: dict[str, str | None] = field(default_factory=dict, repr=False)
    error: KafkaError | None = None

    def put(self, mechanism: ScramMechanism, text: str | None) -> None:
        if mechanism.mechanism_name in self.texts:
            raise DuplicateResource("A user credential cannot be altered twice in the same request")
        self.texts[mechanism.mechanism_name] = text

    def applied(self, present: Values) -> Values:
        after = dict(present)
        for name, text in self.texts.items():
            if text is not None:
                after[name] = text
            elif after.pop(name, None) is None:
                raise ResourceNotFound("Attempt to delete a user credential that does not exist")
        return after


async def handle_alter_user_scram_credentials(
    request: AlterUserScramCredentialsRequest, context: RequestContext
) -> AlterUserScramCredentialsResponse:
    clients = context.broker.configs.clients
    by_user = await context.spread(_changes_by_user(request))
    results = [await _change(clients, name, changes) for name, changes in by_user.items()]
    return AlterUserScramCredentialsResponse(results=results)


def _changes_by_user(
    request: AlterUserScramCredentialsRequest,
) -> Sliced[dict[str, _Changes]]:
    by_user: dict[str, _Changes] = {}
    for deletion in request.deletions:
        _note(by_user, deletion.name, deletion.mechanism, None)
        yield
    for upsertion in request.upsertions:
        _note(by_user, upsertion.name, upsertion.mechanism, upsertion)
        yield
    return by_user


def _note(
    by_user: dict[str, _Changes], name: str, number: int, wanted: ScramCredentialUpsertion | None
) -> None:
    changes = by_user.setdefault(name, _Changes())
    try:
        mechanism = ScramMechanism.numbered(number)
        if not name:
            raise UnacceptableCredential("Username must not be empty")
        if mechanism is None:
            raise UnsupportedSaslMechanism("Unknown SCRAM mechanism")
        changes.put(mechanism, None if wanted is None else _credential_text(mechanism, wanted))
    except KafkaError as error:
        changes.error = changes.error or error


def _credential_text(mechanism: ScramMechanism, wanted: ScramCredentialUpsertion) -> str:
    if wanted.iterations < ITERATIONS_MIN:
        raise UnacceptableCredential("Too few iterations")
    if wanted.iterations > ITERATIONS_MAX:
        raise UnacceptableCredential("Too many iterations")
    if not wanted.salt or len(wanted.salted_password) != mechanism.size:
        raise UnacceptableCredential("The salt or the salted password does not fit this mechanism")
    return ScramCredential.of_salted_password(
        mechanism, bytes(wanted.salted_password), bytes(wanted.salt), wanted.iterations
    ).encode()


async def _change(clients: ClientEntities, name: str, changes: _Changes) -> AlterUserScramCredentialsResult:
    error = changes.error
    if error is None:
        try:
            await clients.change(user(name), changes.applied)
        except Exception as failure:  # noqa: BLE001 - each user has its own answer
            error = as_kafka_error(failure, "AlterUserScramCredentials")
    if error is None:
        return AlterUserScramCredentialsResult(user=name)
    return AlterUserScramCredentialsResult(user=name, error_code=error.code, error_message=error.message)


def _refused(
    request: AlterUserScramCredentialsRequest, error: KafkaError, _version: int
) -> Sliced[AlterUserScramCredentialsResponse]:
    """Give the error to every user of either array, once: clients expect a result for each."""
    rows: Iterable[ScramCredentialDeletion | ScramCredentialUpsertion]
    rows = chain(request.deletions, request.upsertions)
    names = (row.name for row in rows)
    results = yield from each(
        (yield from distinct(names, str)),
        lambda name: AlterUserScramCredentialsResult(
            user=name, error_code=error.code, error_message=error.message
        ),
    )
    return AlterUserScramCredentialsResponse(results=results)


ALTER_USER_SCRAM_CREDENTIALS = Api(
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    handle=handle_alter_user_scram_credentials,
    elements_max=DECISION_ELEMENTS_MAX,
    refused=_refused,
)
