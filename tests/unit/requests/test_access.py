"""The table of rights: complete, and enforced before a handler runs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.core.errors import ClusterAuthorizationFailed, GroupAuthorizationFailed
from barnabas.handlers import APIS
from barnabas.network.transport.exchange import Exchange
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages import request_class
from barnabas.requests.access import ACCESS, check_guards, guards
from barnabas.requests.context import RequestContext
from barnabas.requests.registry import Api
from barnabas.security.acl.audit import Audit
from barnabas.security.acl.authorizer import AclAuthorizer, AllowAll, Authorizer
from barnabas.security.acl.bindings import AccessRule, ResourcePattern
from barnabas.security.acl.vocabulary import CLUSTER_NAME, OPERATIONS, Operation, Permission, ResourceType
from tests.support.manual_time import ManualClock
from tests.unit.handlers.support import FakePeer, Finisher

WITHOUT_RIGHTS = {
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
    ApiKey.PUSH_TELEMETRY,
    ApiKey.API_VERSIONS,
    ApiKey.SASL_HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
}


def context_for(authorizer: Authorizer, request: object, version: int) -> RequestContext:
    broker: Any = SimpleNamespace(authorizer=authorizer)
    exchange = Exchange(FakePeer(), 0.0)
    finisher: Any = Finisher()
    return RequestContext(broker, exchange, request, version, 1, "test", 0.0, finisher)


@pytest.mark.parametrize("api", list(APIS), ids=lambda api: api.key.name)
def test_every_api_says_what_it_needs(api: Api) -> None:
    assert bool(ACCESS[api.key]) == (api.key not in WITHOUT_RIGHTS)


@pytest.mark.parametrize("key", list(ACCESS), ids=lambda key: key.name)
def test_rights_make_sense_for_their_resources(key: ApiKey) -> None:
    for check in ACCESS[key]:
        for operation, kind in check.rights:
            assert operation in OPERATIONS[kind]


@pytest.mark.parametrize("api", list(APIS), ids=lambda api: api.key.name)
def test_fields_that_name_resources_exist(api: Api) -> None:
    for version in api.versions:
        request = request_class(api.key)()
        check_guards(guards(api.key, version), request, context_for(AllowAll(), request, version))


def test_orders_of_a_controller_need_the_right_of_brokers() -> None:
    authorizer = AclAuthorizer(Audit(ManualClock()), (), is_open_without_rules=False)
    for key in (
        ApiKey.LEADER_AND_ISR,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
        ApiKey.CONTROLLED_SHUTDOWN,
        ApiKey.WRITE_TXN_MARKERS,
    ):
        with pytest.raises(ClusterAuthorizationFailed):
            check_guards(guards(key, 1), request_class(key)(), context_for(authorizer, None, 1))


def test_one_of_several_rights_is_enough() -> None:
    authorizer = AclAuthorizer(Audit(ManualClock()), (), is_open_without_rules=False)
    cluster = ResourcePattern(ResourceType.CLUSTER, CLUSTER_NAME)
    request = request_class(ApiKey.WRITE_TXN_MARKERS)()
    for operation in (Operation.ALTER, Operation.CLUSTER_ACTION):
        authorizer.replace(cluster, frozenset({AccessRule("User:*", "*", operation, Permission.ALLOW)}))
        check_guards(guards(ApiKey.WRITE_TXN_MARKERS, 1), request, context_for(authorizer, request, 1))


def test_the_group_of_the_request_is_the_one_that_counts() -> None:
    authorizer = AclAuthorizer(Audit(ManualClock()), (), is_open_without_rules=False)
    mine = ResourcePattern(ResourceType.GROUP, "mine")
    authorizer.replace(mine, frozenset({AccessRule("User:*", "*", Operation.READ, Permission.ALLOW)}))
    request: Any = request_class(ApiKey.JOIN_GROUP)()
    request.group_id = "mine"
    check_guards(guards(ApiKey.JOIN_GROUP, 5), request, context_for(authorizer, request, 5))
    request.group_id = "other"
    with pytest.raises(GroupAuthorizationFailed):
        check_guards(guards(ApiKey.JOIN_GROUP, 5), request, context_for(authorizer, request, 5))
