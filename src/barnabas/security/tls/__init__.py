"""TLS of a listener: from settings to an `ssl.SSLContext`, and from a certificate to a principal.

This package touches no socket. `cryptography` is imported with the first TLS listener, so that a broker
without one does not need it.
"""
