"""Column expressions over one record."""
