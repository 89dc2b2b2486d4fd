"""One file per API: its request, its response, and the structs inside them.

Nothing is imported here. `protocol.api_keys.request_class` finds a message by its key, or
import the one you need.
"""
