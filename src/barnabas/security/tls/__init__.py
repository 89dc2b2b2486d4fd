"""TLS of a listener: from settings to an `ssl.SSLContext`, and from a certificate to a principal.

No socket is touched here; the network does the talking. `cryptography` is imported when the first TLS
listener is made, so that a broker without one does without it.
"""
