"""Who somebody is, and what they may do: principals, authentication and authorization.

Nothing here knows a socket. The network and the clients carry the bytes of an authentication,
handlers ask whether a principal may do what a request wants.
"""
