"""Verification of transactional writes (KIP-890)."""
