"""Stored credentials that verify clients: SCRAM credentials and delegation tokens."""
