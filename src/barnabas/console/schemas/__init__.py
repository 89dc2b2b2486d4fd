"""Schemas: a client of schema registries, and the decoders that its schemas become."""
