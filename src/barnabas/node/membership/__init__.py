"""Membership of a broker in its cluster: identity, registration, store, peers."""
