"""Connections to PostgreSQL. The only package that imports database drivers."""
