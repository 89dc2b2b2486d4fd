"""Principals, authentication (TLS, SASL) and authorization (ACLs).

No code here knows a socket. The network and the clients carry the bytes of an authentication, and handlers
ask the authorizer.
"""
