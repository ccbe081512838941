"""The algebra that GraphQL and REST requests compile to, and its SQL generator."""
