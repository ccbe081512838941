"""The way to PostgreSQL: the only importer of txpostgres and psycopg2."""
