"""Client quotas: bytes, broker time, mutations of topics, new connections.

A request above its quota is handled and answered at once. The response carries the time for which the
connection is then not read (KIP-219). Without any quota a request pays for one comparison.
"""
