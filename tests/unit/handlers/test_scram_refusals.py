"""Refused requests about SCRAM credentials answer for every user that they name."""

from __future__ import annotations

from typing import Any

from barnabas.core.errors import ClusterAuthorizationFailed
from barnabas.core.steps import advance
from barnabas.handlers import APIS
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from barnabas.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)

DENIED = ClusterAuthorizationFailed("no")


def refused(key: ApiKey, request: Any) -> Any:
    api = APIS.get(key, 0)
    assert api is not None
    assert api.refused is not None
    work = api.refused(request, DENIED, 0)
    while (ended := advance(work)) is None:
        pass
    return ended.result


def test_users_of_both_arrays_get_the_error_once() -> None:
    request = AlterUserScramCredentialsRequest(
        deletions=[ScramCredentialDeletion(name="alice"), ScramCredentialDeletion(name="bob")],
        upsertions=[ScramCredentialUpsertion(name="bob"), ScramCredentialUpsertion(name="carol")],
    )
    answer = refused(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, request)
    assert [(each.user, each.error_code) for each in answer.results] == [
        (name, DENIED.code) for name in ("alice", "bob", "carol")
    ]


def test_a_description_is_refused_whole_and_for_each_user() -> None:
    request = DescribeUserScramCredentialsRequest(users=[UserName(name="alice"), UserName(name="bob")])
    answer = refused(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, request)
    assert answer.error_code == DENIED.code
    assert [(each.user, each.error_code) for each in answer.results] == [
        ("alice", DENIED.code),
        ("bob", DENIED.code),
    ]
    everything = refused(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, DescribeUserScramCredentialsRequest(users=None)
    )
    assert (everything.error_code, everything.results) == (DENIED.code, [])
