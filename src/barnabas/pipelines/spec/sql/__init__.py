"""SQL inside a spec: DDL, columns and text."""
