"""Client side of GSSAPI (RFC 4752), with the `gssapi` package.

The credentials come from a keytab, or are the tickets of the current user. Its steps contact the KDC: run
them outside of the event loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import gssapi

from barnabas.core.errors import InvalidConfig, SaslAuthenticationFailed
from barnabas.security.sasl.client import Exchange

_NO_LAYER: Final = 1
_CHOICE: Final = bytes([_NO_LAYER, 0, 0, 0])


def initiate(options: Mapping[str, str], service_name: str, host: str) -> Exchange:
    """Start an exchange with the service on that host, with the options of Krb5LoginModule. Its proof is
    checked.
    """
    try:
        context = gssapi.SecurityContext(
            name=gssapi.Name(f"{service_name}@{host}", gssapi.NameType.hostbased_service),
            creds=_credentials(options),
            usage="initiate",
            mech=gssapi.MechType.kerberos,
            flags=gssapi.RequirementFlag.mutual_authentication | gssapi.RequirementFlag.integrity,
        )
        token = context.step()
        while not context.complete:
            token = context.step((yield token))
        offer = context.unwrap((yield token or b"")).message
        if not offer or not offer[0] & _NO_LAYER:
            raise SaslAuthenticationFailed("GSSAPI: the broker wants a security layer, unlike Kafka")
        yield context.wrap(_CHOICE, False).message
    except gssapi.exceptions.GSSError as error:
        raise SaslAuthenticationFailed(f"GSSAPI: {error}") from None


def _credentials(options: Mapping[str, str]) -> Any:
    """Credentials from a keytab, or None for the tickets of the current user."""
    principal = options.get("principal")
    name = gssapi.Name(principal, gssapi.NameType.kerberos_principal) if principal else None
    if options.get("useKeyTab", "").lower() == "true":
        keytab = options.get("keyTab")
        if not keytab or not principal:
            raise InvalidConfig("Krb5LoginModule with useKeyTab needs keyTab and principal")
        store = {"client_keytab": keytab, "ccache": f"MEMORY:barnabas {principal}"}
    elif options.get("ticketCache"):
        store = {"ccache": options["ticketCache"]}
    else:
        return None
    return gssapi.Credentials(name=name, usage="initiate", mechs=[gssapi.MechType.kerberos], store=store)
