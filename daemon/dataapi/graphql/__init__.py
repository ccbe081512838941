"""GraphQL: a schema for each role, and a compiler from documents to ``dataapi.sql.algebra``."""
