"""Databases of the jdbc source and sink: PostgreSQL, MySQL, MariaDB and SQLite."""
