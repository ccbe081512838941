"""GraphQL: a schema for each role, and a compiler from documents to the algebra of ``dataapi.sql``."""
