"""Authorizer of a broker, if one is configured. The broker serves no request before it has read the ACLs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from barnabas.cluster.coordination.contract import Coordination
from barnabas.cluster.stores.acl_replica import AclReplica
from barnabas.cluster.znodes.json_codec import MalformedZnode
from barnabas.config.broker_config import BrokerConfig
from barnabas.core.clock import Clock
from barnabas.core.errors import InvalidConfig, InvalidRequest
from barnabas.node.membership.store_watcher import following
from barnabas.security.acl.audit import Audit
from barnabas.security.acl.authorizer import AclAuthorizer, parse_super_users


@asynccontextmanager
async def open_acls(
    config: BrokerConfig, znodes: Coordination, clock: Clock
) -> AsyncIterator[AclReplica | None]:
    if not config.authorizer_class_name:
        yield None
        return
    try:
        super_users = parse_super_users(config.values["super.users"])
    except InvalidRequest as error:
        raise InvalidConfig(f"super.users: {error.message}") from error
    is_open = config.values["allow.everyone.if.no.acl.found"]
    authorizer = AclAuthorizer(Audit(clock), super_users, is_open_without_rules=is_open)
    acls = AclReplica(znodes, authorizer, clock)
    async with AsyncExitStack() as exits:
        try:
            await exits.enter_async_context(following(znodes, acls, "ACLs"))
        except MalformedZnode as error:
            reason = f"cannot read an ACL, and it may deny an operation: {error}"
            raise InvalidConfig(reason) from error
        yield acls
