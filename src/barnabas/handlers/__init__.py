"""What the broker answers: one file per API, no sockets.

The directory listing is the API table. Each file opens with the API's key, its versions and
its gaps, and ends with the `Api` row that registers it; ApiVersions is derived from those
rows, so what is advertised is what is implemented.
"""
