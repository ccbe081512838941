"""GraphQL: a schema for each role, and documents compiled to the algebra."""
