"""Exactly-once under `kill -9`: what is killed, where, and what must hold afterwards."""
