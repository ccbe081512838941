"""Dialects of databases derived from PostgreSQL."""
