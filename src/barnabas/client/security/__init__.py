"""Security settings of clients: TLS, SASL, Kerberos."""
