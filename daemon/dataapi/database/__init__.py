"""The way to PostgreSQL: the only importer of its drivers."""
