"""Principals and references to secrets."""
