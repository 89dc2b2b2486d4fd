"""Asyncio client: connections, producer, consumer."""
