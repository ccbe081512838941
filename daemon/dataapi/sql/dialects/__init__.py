"""What relatives of PostgreSQL have otherwise than the generator writes it."""
