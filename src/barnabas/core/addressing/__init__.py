"""Host names, IP addresses and endpoints."""
