"""Protobuf: the wire format, `.proto` files and descriptor sets, and values by their message."""
