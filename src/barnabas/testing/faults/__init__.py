"""Fault rules, the layer that applies them to requests, and the faulty disk."""
