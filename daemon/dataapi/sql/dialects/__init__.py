"""The dialects of relatives of PostgreSQL: where their SQL differs from what the generator writes."""
