"""Rights of the user for whom a question is asked: the rights that the Kafka protocol would ask of it.

The socket itself belongs to the user that runs the broker. The console asks for its own signed-in users, and
names them.
"""

from __future__ import annotations

from typing import Final

from barnabas.core.errors import InvalidRequest, KafkaError
from barnabas.security.acl.authorizer import Authorizer
from barnabas.security.acl.vocabulary import CLUSTER_NAME, DENIED, Operation, ResourceType
from barnabas.security.identity.principal import ANONYMOUS, KafkaPrincipal

HOST: Final = "127.0.0.1"


class Viewer:
    def __init__(self, authorizer: Authorizer, principal: object) -> None:
        """`principal` is a text as `User:alice`; None is a client that has not authenticated."""
        if principal is not None and not isinstance(principal, str):
            raise InvalidRequest("a principal is a text as User:alice")
        self._authorizer = authorizer
        self._principal = ANONYMOUS if principal is None else KafkaPrincipal.parse(principal)

    def sees(self, kind: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Whether the user may describe the resource."""
        authorizer = self._authorizer
        return authorizer.allows_everything or authorizer.allows(
            self._principal, HOST, Operation.DESCRIBE, kind, name, audited=False
        )

    def sees_topic(self, name: str) -> bool:
        return self.sees(ResourceType.TOPIC, name)

    def sees_group(self, name: str) -> bool:
        return self.sees(ResourceType.CLUSTER) or self.sees(ResourceType.GROUP, name)

    def require(self, kind: ResourceType, name: str = CLUSTER_NAME) -> None:
        if not self.sees(kind, name):
            error: type[KafkaError] = DENIED[kind]
            raise error(f"not authorized: DESCRIBE on {kind.name} {name}")
